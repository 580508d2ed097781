"""Scenario and predictions -> picture. ``python tools/visualize.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("visualize")
