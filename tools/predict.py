"""Scenarios -> a predictions file. ``python tools/predict.py --help`` explains it."""

from trajpred.__main__ import main

if __name__ == "__main__":
    main("predict")
