"""A scenario streamed through an onboard bundle. ``python tools/replay.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("replay")
