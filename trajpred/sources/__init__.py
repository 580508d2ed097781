"""Sources: one reader per data set, each yielding :class:`~trajpred.scenario.Scenario`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trajpred.scenario import Scenario
from trajpred.sources import argoverse1, argoverse2


@dataclass(frozen=True)
class Source:
    """How to find and read one data set.

    Attributes:
        discover: raw folder -> for each split the paths of its scenarios, sorted.
        read: one of those paths -> the scenario. Raises :class:`~trajpred.errors.DataError`.
    """

    discover: Callable[[Path], dict[str, list[Path]]]
    read: Callable[[Path], Scenario]


SOURCES: dict[str, Source] = {
    "argoverse1": Source(argoverse1.discover, argoverse1.read_scenario),
    "argoverse2": Source(argoverse2.discover, argoverse2.read_scenario),
}
