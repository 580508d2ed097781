"""Sources: one reader per data set, each yielding :class:`~trajpred.scenario.Scenario`.

Other packages register theirs by entry point; README.md in this folder says how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from trajpred.errors import DataError, require
from trajpred.scenario import Scenario
from trajpred.sources import argoverse1, argoverse2

#: The entry points of this group are sources.
GROUP = "trajpred.sources"


@dataclass(frozen=True)
class Source:
    """How to find and read one data set.

    Attributes:
        discover: raw folder -> for each split the paths of its scenarios, sorted.
        read: one of those paths -> the scenario. Raises :class:`~trajpred.errors.DataError`.
    """

    discover: Callable[[Path], dict[str, list[Path]]]
    read: Callable[[Path], Scenario]


#: The built-in ones; :func:`find_source` also finds those of other packages.
SOURCES: dict[str, Source] = {
    "argoverse1": Source(argoverse1.discover, argoverse1.read_scenario),
    "argoverse2": Source(argoverse2.discover, argoverse2.read_scenario),
}


def find_source(name: str) -> Source:
    """The source called ``name``: built in, registered by another package, or ``package.module:OBJECT``.

    A built-in source keeps its name whatever others register.

    Raises: DataError if there is none, if packages clash over the name, or if it cannot be imported.
    """
    return SOURCES[name] if name in SOURCES else _load(_entry_point(name))


def _entry_point(name: str) -> EntryPoint:
    if ":" in name:
        return EntryPoint(name, name, GROUP)
    others = entry_points(group=GROUP)
    # The same package may be found twice on sys.path.
    values = sorted({point.value for point in others.select(name=name)})
    if not values:
        known = ", ".join([*SOURCES, *sorted(others.names - SOURCES.keys())])
        raise DataError(f"unknown source {name!r}; known: {known}", field="source")
    advice = f"{name!r} is registered more than once; name the one that you mean: {' or '.join(values)}"
    require(len(values) == 1, "source", advice)
    return EntryPoint(name, values[0], GROUP)


@cache
def _load(point: EntryPoint) -> Source:
    try:
        source = point.load()
    except Exception as error:  # what other people's modules do on import
        problem = f"{point.value!r} cannot be loaded ({type(error).__name__}: {error})"
        raise DataError(problem, field="source") from None
    if not isinstance(source, Source):
        raise DataError(f"{point.value!r} is no trajpred.sources.Source, but {source!r}", field="source")
    return source
