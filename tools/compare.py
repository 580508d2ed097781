"""Results -> Markdown tables. ``python tools/compare.py --help`` explains it."""

from trajpred.cli.main import main

if __name__ == "__main__":
    main("compare")
