"""Store -> checkpoint and TensorBoard. ``python tools/train.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("train")
