"""Raw scenarios -> store. ``python tools/prepare.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("prepare")
