"""Prepared scenarios in memory-mapped Arrow shards; docs/concepts/store.md documents the format."""

from trajpred.store.prepare import prepare
from trajpred.store.reader import ScenarioStore, find_scenarios
from trajpred.store.sample import ensure_store

__all__ = ["ScenarioStore", "ensure_store", "find_scenarios", "prepare"]
