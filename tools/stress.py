"""Checkpoint or baseline -> metrics with less input. ``python tools/stress.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("stress")
