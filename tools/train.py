"""Store -> checkpoint and TensorBoard. ``python tools/train.py --help`` explains it."""

from trajpred.cli.main import main

if __name__ == "__main__":
    main("train")
