"""Synthetic scenarios in Argoverse 2's format. ``python tools/synthesize.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("synthesize")
