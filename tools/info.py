"""What a store, checkpoint, bundle or file contains. ``python tools/info.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("info")
