"""Speed and memory of every stage. ``python tools/benchmark.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("benchmark")
