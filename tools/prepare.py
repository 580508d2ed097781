"""Raw scenarios -> store. ``python tools/prepare.py --help`` explains it."""

from trajpred.cli.main import main

if __name__ == "__main__":
    main("prepare")
