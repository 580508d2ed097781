"""Prepared scenarios in memory-mapped Arrow shards; docs/concepts/store.md documents the format."""

from trajpred.store.prepare import ensure_store, prepare
from trajpred.store.reader import ScenarioStore, find_scenarios

__all__ = ["ScenarioStore", "ensure_store", "find_scenarios", "prepare"]
