"""Checkpoint -> onboard bundle. ``python tools/export.py --help`` explains it."""

from trajpred.cli.main import main

if __name__ == "__main__":
    main("export")
