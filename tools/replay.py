"""A scenario through an onboard bundle, as it would drive. ``python tools/replay.py --help`` explains it."""

from trajpred.cli.main import main

if __name__ == "__main__":
    main("replay")
