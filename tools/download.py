"""Public bucket -> raw scenarios. ``python tools/download.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("download")
