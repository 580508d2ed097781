"""The store: prepared scenarios in memory-mapped Arrow shards. See README.md here for the format."""

from trajpred.store.prepare import prepare
from trajpred.store.reader import ScenarioStore, find_splits

__all__ = ["ScenarioStore", "find_splits", "prepare"]
