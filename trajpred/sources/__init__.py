"""Sources: one reader for each data set, which yields :class:`~trajpred.data.scenario.Scenario` records.

Other packages register theirs; docs/how-to/own-data.md describes how.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path

from trajpred.data.registry import GROUP, REGISTRIES, Registry, load_plugins, register
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError, require
from trajpred.sources import argoverse1, argoverse2
from trajpred.sources import argoverse2_sensor as sensor
from trajpred.sources.reading import RawScenario


@dataclass(frozen=True)
class Source:
    """The functions that find and read the scenarios of a data set.

    Attributes:
        discover: raw folder -> the scenarios of each split, in the order of the store. With ``every_s`` its
            second argument are the seconds between windows.
        read: one of those -> scenario. Raises :class:`~trajpred.errors.DataError`.
        layout: of the raw folder, for messages.
        every_s: of a source that cuts windows out of longer recordings, the usual seconds between their
            starts; None of other sources.

    Example:
        >>> from pathlib import Path
        >>> source = find_source("argoverse2")
        >>> scenario = source.read(source.scenarios(Path("datasets/argoverse2/sample"))["val"][0])
    """

    discover: Callable[..., dict[str, list[RawScenario]]]
    read: Callable[[RawScenario], Scenario]
    layout: str = ""
    every_s: float | None = None

    @property
    def code(self) -> object:
        """What tells the package of the source."""
        return self.read

    def spacing_s(self, every_s: float | None = None) -> float | None:
        """Return the seconds between windows: ``every_s``, or the usual ones; None if no windows are cut.

        Raises: DataError if ``every_s`` is not positive, or no windows are cut.
        """
        if every_s is None:
            return self.every_s
        whole = "applies to sources that cut windows out of longer recordings; this one reads whole scenarios"
        require(self.every_s is not None, "every_s", whole)
        require(0 < every_s < math.inf, "every_s", f"must be a positive number of seconds, is {every_s}")
        return every_s

    def scenarios(self, raw: Path, every_s: float | None = None) -> dict[str, list[RawScenario]]:
        """Return what is discovered in each split that has any scenario.

        Args:
            every_s: seconds between the starts of windows, of sources that cut windows.

        Raises: DataError if no split has any, or ``every_s`` does not apply.
        """
        if not raw.is_dir():
            raise DataError("no such folder", file=raw)
        spacing_s = self.spacing_s(every_s)
        options = [] if spacing_s is None else [spacing_s]
        try:
            discovered = self.discover(raw, *options)
            splits = {name: list(scenarios) for name, scenarios in discovered.items() if scenarios}
        except DataError:
            raise
        except Exception as error:  # third-party sources may raise anything
            raise DataError(f"cannot be listed ({type(error).__name__}: {error})", file=raw) from None
        for scenarios in splits.values():
            records = all(isinstance(scenario, RawScenario) for scenario in scenarios)
            require(records, "source", "must discover RawScenario records, see docs/how-to/own-data.md")
        if not splits:
            problem = "no scenarios"
            if self.layout:
                problem += f"; expected {raw}/{self.layout}"
            raise DataError(problem, file=raw)
        return splits


#: All sources by name; :func:`find_source` also loads those of other packages.
SOURCES: Registry[Source] = REGISTRIES["source"]
for _name, _source in {
    "argoverse1": Source(argoverse1.discover, argoverse1.read, "{train,val,test_obs}/data/<id>.csv"),
    "argoverse2": Source(argoverse2.discover, argoverse2.read, "{train,val,test}/<id>/"),
    "argoverse2-sensor": Source(sensor.discover, sensor.read, "{train,val,test}/<log>/", sensor.EVERY_S),
}.items():
    register("source", _name)(_source)


def find_source(name: str) -> Source:
    """Return a source: built in, registered by another package, or given as ``package.module:OBJECT``.

    Raises: DataError if the name is unknown, or the source or another package's plugin cannot be imported.
    """
    if ":" in name:
        return _load(name)
    if name not in SOURCES:
        load_plugins()
    require(name in SOURCES, "source", f"unknown source {name!r}; known: {', '.join(SOURCES)}")
    return SOURCES[name]


@cache
def _load(location: str) -> Source:
    try:
        source = EntryPoint(location, location, GROUP).load()
    except (Exception, SystemExit) as error:  # anything that a foreign module raises on import
        problem = f"{location!r} cannot be loaded ({type(error).__name__}: {error})"
        raise DataError(problem, field="source") from None
    other = f"{location!r} is not a trajpred.sources.Source: {source!r}"
    require(isinstance(source, Source), "source", other)
    return source
