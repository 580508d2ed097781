"""Checkpoint -> weights that ship with the package. ``python tools/ship.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("ship")
