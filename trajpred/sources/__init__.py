"""Sources: one reader per data set, which yields :class:`~trajpred.data.scenario.Scenario` records.

Other packages register theirs; docs/how-to/own-data.md describes how.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from trajpred.data.environment import in_repository
from trajpred.data.registry import GROUP, REGISTRIES, Registry, load_plugins, register
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError, quoted, require
from trajpred.sources import argoverse1, argoverse2
from trajpred.sources import argoverse2_sensor as sensor
from trajpred.sources.reading import RawScenario
from trajpred.sources.windows import Spacing


@dataclass(frozen=True)
class Source:
    """The functions that find and read the scenarios of a data set.

    Attributes:
        discover: raw folder -> scenarios by split, in the order of the store.
        read: discovered scenario -> scenario. Raises :class:`~trajpred.errors.DataError`.
        layout: layout of the raw folder, for messages.
        options: a frozen dataclass whose fields have defaults and are described under "Attributes:" in its
            docstring: the options of ``prepare`` for this source, and the second argument of both functions,
            such as :class:`~trajpred.sources.windows.Windows`. None for a source without options.
        describe: raw folder or file -> facts about the first recording for ``info``, by name.

    Example:
        >>> from pathlib import Path
        >>> source = find_source("argoverse2")
        >>> scenario = source.scenario(source.scenarios(Path("datasets/argoverse2/sample"))["val"][0])
    """

    discover: Callable[..., dict[str, list[RawScenario]]]
    read: Callable[..., Scenario]
    layout: str = ""
    options: type[Any] | None = None
    describe: Callable[..., dict[str, str]] | None = None

    @property
    def code(self) -> object:
        """The function whose package is the source's."""
        return self.read

    def _arguments(self, options: object) -> list[object]:
        """Return the functions' second argument. Raises: DataError for options of another source."""
        if self.options is None:
            require(options is None, "options", "are of another source: this one has none")
            return []
        if options is None:
            return [self.options()]
        kind = self.options.__name__
        require(isinstance(options, self.options), "options", f"must be {kind}, are {quoted(options)}")
        return [options]

    def facts(self, options: object = None) -> dict[str, Any]:
        """Return the options as JSON values, for the manifest of a store."""
        facts: dict[str, Any] = {}
        for argument in self._arguments(options):
            for field in fields(argument):  # type: ignore[arg-type]
                value = getattr(argument, field.name)
                facts[field.name] = str(value) if isinstance(value, Path) else value
        return json.loads(json.dumps(facts))

    def facts_of(self, raw: Path, options: object = None) -> dict[str, str]:
        """Return the facts about the first recording. Raises: DataError if none can be read."""
        if self.describe is None:
            return {}
        return self.describe(raw, *self._arguments(options))

    def scenario(self, raw: RawScenario, options: object = None) -> Scenario:
        """Read one scenario. Raises: DataError, or anything that another package's reader raises."""
        return self.read(raw, *self._arguments(options))

    def scenarios(self, raw: Path, options: object = None) -> dict[str, list[RawScenario]]:
        """Return the scenarios of each non-empty split. Raises: DataError if there are none."""
        if not raw.exists():
            raise DataError("no such file or folder", file=raw)
        arguments = self._arguments(options)
        splits: dict[str, list[RawScenario]] = {}
        try:
            for name, discovered in self.discover(raw, *arguments).items():
                if discovered:
                    splits[name] = list(discovered)
        except DataError:
            raise
        except (Exception, SystemExit) as error:  # third-party sources may raise anything
            raise DataError(f"cannot be listed ({type(error).__name__}: {error})", file=raw) from None
        for scenarios in splits.values():
            records = all(isinstance(scenario, RawScenario) for scenario in scenarios)
            page = in_repository("docs/how-to/own-data.md")
            require(records, "source", f"must discover RawScenario records, see {page}")
        if not splits:
            problem = "no scenarios"
            if self.layout and raw.is_dir():
                problem += f"; expected {raw}/{self.layout}"
            raise DataError(problem, file=raw)
        return splits


#: All sources by name; :func:`find_source` also loads sources of other packages.
SOURCES: Registry[Source] = REGISTRIES["source"]
for _name, _source in {
    "argoverse1": Source(argoverse1.discover, argoverse1.read, "{train,val,test_obs}/data/<id>.csv"),
    "argoverse2": Source(argoverse2.discover, argoverse2.read, "{train,val,test}/<id>/"),
    "argoverse2-sensor": Source(sensor.discover, sensor.read, "{train,val,test}/<log>/", Spacing),
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
    """Load a source of another package from ``package.module:OBJECT``. Raises: DataError."""
    try:
        source = EntryPoint(location, location, GROUP).load()
    except (Exception, SystemExit) as error:  # anything that a foreign module raises on import
        problem = f"{location!r} cannot be loaded ({type(error).__name__}: {error})"
        raise DataError(problem, field="source") from None
    other = f"{location!r} is not a trajpred.sources.Source: {source!r}"
    require(isinstance(source, Source), "source", other)
    return source
