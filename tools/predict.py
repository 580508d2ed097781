"""Scenarios -> a predictions file. ``python tools/predict.py --help`` explains it."""

from trajpred.cli.main import main

if __name__ == "__main__":
    main("predict")
