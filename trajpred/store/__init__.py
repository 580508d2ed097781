"""Prepared scenarios in memory-mapped Arrow shards; README.md in this folder documents the format."""

from trajpred.store.prepare import prepare
from trajpred.store.reader import ScenarioStore, find_scenarios

__all__ = ["ScenarioStore", "find_scenarios", "prepare"]
