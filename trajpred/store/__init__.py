"""Prepared scenarios in memory-mapped Arrow shards; docs/concepts/store.md documents the format."""

from trajpred.store.prepare import prepare
from trajpred.store.reader import ScenarioStore, find_scenarios

__all__ = ["ScenarioStore", "find_scenarios", "prepare"]
