"""Scenario and changes -> predictions, in the browser. ``python tools/explore.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("explore")
