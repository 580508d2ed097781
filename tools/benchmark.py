"""Speed and memory of every stage. ``python tools/benchmark.py --help`` explains it."""

from trajpred.cli.main import main

if __name__ == "__main__":
    main("benchmark")
