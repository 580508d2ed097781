"""Synthetic scenarios in Argoverse 2's format. ``python tools/synthesize.py --help`` explains it."""

from trajpred.cli.main import main

if __name__ == "__main__":
    main("synthesize")
