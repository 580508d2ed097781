"""Checkpoint -> weights that ship with the package. ``python tools/ship.py --help`` explains it."""

from trajpred.cli.main import main

if __name__ == "__main__":
    main("ship")
