"""Sources: one reader for each data set, which yields :class:`~trajpred.scenario.Scenario` records.

Other packages register theirs by entry point; docs/how-to/own-data.md describes how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from trajpred.errors import DataError, require
from trajpred.scenario import Scenario
from trajpred.sources import argoverse1, argoverse2, argoverse2_sensor, commonroad

#: Entry point group of sources.
GROUP = "trajpred.sources"


@dataclass(frozen=True)
class Source:
    """The functions that find and read the scenarios of a data set.

    Attributes:
        discover: raw folder -> sorted paths of the scenarios of each split.
        read: one of those paths -> scenario. Raises :class:`~trajpred.errors.DataError`.

    Example:
        >>> from pathlib import Path
        >>> source = find_source("argoverse2")
        >>> scenario = source.read(source.discover(Path("datasets/argoverse2/sample"))["val"][0])
    """

    discover: Callable[[Path], dict[str, list[Path]]]
    read: Callable[[Path], Scenario]


#: Built-in sources; :func:`find_source` also finds those of other packages.
SOURCES: dict[str, Source] = {
    "argoverse1": Source(argoverse1.discover, argoverse1.read_scenario),
    "argoverse2": Source(argoverse2.discover, argoverse2.read_scenario),
    "argoverse2-sensor": Source(argoverse2_sensor.discover, argoverse2_sensor.read_scenario),
    "commonroad": Source(commonroad.discover, commonroad.read_scenario),
}


def find_source(name: str) -> Source:
    """Return a source: built in, registered by another package, or given as ``package.module:OBJECT``.

    Built-in sources take precedence.

    Raises: DataError if the name is unknown or ambiguous, or if the source cannot be imported.
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
    advice = f"{name!r} is registered more than once; give {' or '.join(values)}"
    require(len(values) == 1, "source", advice)
    return EntryPoint(name, values[0], GROUP)


@cache
def _load(point: EntryPoint) -> Source:
    try:
        source = point.load()
    except Exception as error:  # anything that a foreign module raises on import
        problem = f"{point.value!r} cannot be loaded ({type(error).__name__}: {error})"
        raise DataError(problem, field="source") from None
    if not isinstance(source, Source):
        raise DataError(f"{point.value!r} is not a trajpred.sources.Source: {source!r}", field="source")
    return source
