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
from trajpred.sources import argoverse1, argoverse2, commonroad
from trajpred.sources import argoverse2_sensor as sensor

#: Entry point group of sources.
GROUP = "trajpred.sources"


@dataclass(frozen=True)
class Source:
    """The functions that find and read the scenarios of a data set.

    Attributes:
        discover: raw folder -> sorted paths of the scenarios of each split.
        read: one of those paths -> scenario. Raises :class:`~trajpred.errors.DataError`.
        layout: of the raw folder, for messages.

    Example:
        >>> from pathlib import Path
        >>> source = find_source("argoverse2")
        >>> scenario = source.read(source.scenarios(Path("datasets/argoverse2/sample"))["val"][0])
    """

    discover: Callable[[Path], dict[str, list[Path]]]
    read: Callable[[Path], Scenario]
    layout: str = ""

    def scenarios(self, raw: Path) -> dict[str, list[Path]]:
        """Return what is discovered in each split that has any scenario. Raises: DataError if none has."""
        if not raw.is_dir():
            raise DataError("no such folder", file=raw)
        try:
            found = {split: list(paths) for split, paths in self.discover(raw).items() if paths}
        except DataError:
            raise
        except Exception as error:  # third-party sources may raise anything
            raise DataError(f"cannot be listed ({type(error).__name__}: {error})", file=raw) from None
        if not found:
            expected = f"; expected {raw}/{self.layout}" if self.layout else ""
            raise DataError(f"no scenarios{expected}", file=raw)
        return found


#: Built-in sources; :func:`find_source` also finds those of other packages.
SOURCES: dict[str, Source] = {
    "argoverse1": Source(argoverse1.discover, argoverse1.read_scenario, "{train,val,test_obs}/data/<id>.csv"),
    "argoverse2": Source(argoverse2.discover, argoverse2.read_scenario, "{train,val,test}/<id>/"),
    "argoverse2-sensor": Source(sensor.discover, sensor.read_scenario, "{train,val,test}/<log>/"),
    "commonroad": Source(commonroad.discover, commonroad.read_scenario, "*.xml, or {train,val,test}/*.xml"),
}


def find_source(name: str) -> Source:
    """Return a source: built in, registered by another package, or given as ``package.module:OBJECT``.

    Built-in sources take precedence.

    Raises: DataError if the name is unknown, or if the source cannot be imported.
    """
    if name in SOURCES:
        return SOURCES[name]
    registered = entry_points(group=GROUP)
    known = ", ".join([*SOURCES, *sorted(registered.names - SOURCES.keys())])
    require(":" in name or name in registered.names, "source", f"unknown source {name!r}; known: {known}")
    return _load(EntryPoint(name, name, GROUP) if ":" in name else registered[name])


@cache
def _load(point: EntryPoint) -> Source:
    try:
        source = point.load()
    except Exception as error:  # anything that a foreign module raises on import
        problem = f"{point.value!r} cannot be loaded ({type(error).__name__}: {error})"
        raise DataError(problem, field="source") from None
    other = f"{point.value!r} is not a trajpred.sources.Source: {source!r}"
    require(isinstance(source, Source), "source", other)
    return source
