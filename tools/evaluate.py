"""Checkpoint or baseline -> metrics. ``python tools/evaluate.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("evaluate")
