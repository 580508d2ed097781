"""Temperature and conformal regions of a model. ``python tools/calibrate.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("calibrate")
