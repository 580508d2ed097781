"""Prepared scenarios in memory-mapped Arrow shards; README.md in this folder documents the format."""

from trajpred.store.prepare import prepare
from trajpred.store.reader import ScenarioStore, find_splits

__all__ = ["ScenarioStore", "find_splits", "prepare"]
