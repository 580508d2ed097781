"""What commands share: options, scenarios of stores and raw data."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from trajpred.data.splits import Half
from trajpred.errors import DataError, require

if TYPE_CHECKING:
    from trajpred.data.scenario import Scenario
    from trajpred.sources import Source
    from trajpred.sources.reading import RawScenario
    from trajpred.store import ScenarioStore

#: Number of an option, 1 or more.
Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]
#: Number of an option, 0 or more.
Count = Annotated[int, Parameter(validator=validators.Number(gte=0))]
#: The options of a source: not an option itself, ``trajpred.cli.main`` makes an option of each field.
SourceOptions = Annotated[Any, Parameter(parse=False)]
#: Number of scenarios per split to try when recognising raw data.
TRIED = 3
#: Values to print, one line per name.
Rows = dict[str, Any]


def describe_raw(path: Path) -> tuple[str, Rows]:
    """Describe raw data: one scenario, or the folder of a data set."""
    from trajpred.sources import SOURCES
    from trajpred.sources.reading import RawScenario

    for name, source in SOURCES.items():
        rows: Rows = {"source": name}
        with suppress(Exception):  # sources of other packages raise anything
            rows.update(scenario_rows(source.scenario(RawScenario.of(path))))
            return f"Scenario {path}", rows
        with suppress(Exception):
            splits = source.scenarios(path)
            _read_one(source, splits)
            for split, scenarios in splits.items():
                rows[split] = f"{len(scenarios):,} scenarios"
            return f"Raw data {path}", rows
    if path.suffix in (".csv", ".txt", ".tsv"):
        raise DataError("is a table: state its columns with --preset or --columns", file=path)
    kinds = "store, run, checkpoint, bundle, predictions file, results file, map, or raw scenario"
    raise DataError(f"is not a {kinds}", file=path)


def _read_one(source: Source, splits: dict[str, list[RawScenario]]) -> None:
    """Read a scenario, since other data may have equal folders. Raises: DataError if none is readable."""
    problem = DataError("contains no scenario")
    for scenarios in splits.values():
        for raw in scenarios[:TRIED]:
            try:
                source.scenario(raw)
                return
            except DataError as error:
                problem = error
    raise problem


def scenario_rows(scenario: Scenario) -> Rows:
    """Return the facts to print about a scenario."""
    from trajpred.data.plausible import Plausibility
    from trajpred.data.tracks import OBJECT_TYPES, TrackCategory

    tracks = scenario.tracks
    observed = scenario.num_observed
    lane_map = scenario.map
    elements = len(lane_map) + len(lane_map.crossing_id) + len(lane_map.drivable_area_id)
    described = str(lane_map) if elements else "no map"
    if scenario.lane_distance:
        described += f", {scenario.lane_distance:,.0f} m from every road user"
    counts = Plausibility.of(scenario)
    if counts.lanes:
        described += f", {counts.lanes}"
    focal_type = OBJECT_TYPES[tracks.object_type[scenario.focal]]
    return {
        "city": scenario.city,
        "time": f"{observed} + {scenario.num_future} steps of {scenario.step_s:.2g} s",
        "tracks": tracks,
        "scored": int((tracks.category >= TrackCategory.SCORED).sum()),
        "focal": f"{focal_type} {scenario.focal_id}",
        "map": described,
    }


#: Seconds between the updates of a stream.
EVERY_S = 0.5
#: Number of updates of a stream.
UPDATES = 3


def open_split(store: Path | None, split: str, half: Half | None = None) -> ScenarioStore:
    """Open a split of a store (by default the sample's), or one half of it. Raises: DataError."""
    from trajpred.store import ScenarioStore, ensure_store

    rows = ScenarioStore(ensure_store(store), split)
    if half is None:
        return rows
    return rows.halved(half)


def deciding(rows: ScenarioStore) -> ScenarioStore:
    """Return the deciding half of validation scenes, by which models are fitted and checked.

    Other splits are returned whole, and so are validation scenes whose deciding half is empty.
    """
    if rows.split != "val":
        return rows
    try:
        return rows.halved("deciding")
    except DataError:
        return rows


@dataclass(frozen=True)
class Choice:
    """A scenario found but not yet read.

    Attributes:
        code: imports and an expression that read it by public names, for scripts.
    """

    name: str
    load: Callable[[], Scenario]
    code: tuple[str, str] = ("", "")

    def read(self) -> Scenario:
        """Read the scenario. Raises: DataError on any failure."""
        try:
            return self.load()
        except DataError:
            raise
        except Exception as error:  # third-party readers raise anything
            raise DataError(f"cannot be read ({type(error).__name__}: {error})") from error


def read_all(choices: Sequence[Choice]) -> list[Scenario]:
    """Read the scenarios that can be read; report the others."""
    scenarios: list[Scenario] = []
    for choice in choices:
        try:
            scenarios.append(choice.read())
        except DataError as error:
            report_skipped(choice.name, error)
    return scenarios


def report_skipped(name: str, error: Exception) -> None:
    """Print that a scenario was left out, and why."""
    from tqdm import tqdm

    reason = str(error)
    if not isinstance(error, DataError):
        reason = f"{type(error).__name__}: {error}"
    tqdm.write(f"{name}: skipped: {reason}", file=sys.stderr)  # keeps a progress bar whole


def store_or_raw(store: Path | None, raw: Path | None, source: str | None) -> tuple[Path | None, str | None]:
    """Return the folder to :func:`choose` from, and the source of raw data, by default argoverse2.

    Raises: DataError if the options contradict each other.
    """
    require(raw is None or store is None, "store", "cannot be combined with --raw")
    require(raw is not None or source is None, "source", "needs --raw")
    if raw is None:
        return store, None
    return raw, source or "argoverse2"


def choose(
    folder: Path | None,
    source: str | None,
    split: str,
    names: Sequence[str],
    limit: int,
    options: object = None,
    half: Half | None = None,
) -> list[Choice]:
    """Find the scenarios whose ids start with ``names``, in any split.

    Without names, find the first ``limit`` scenarios of ``split``, or of one ``half`` of it. If several
    splits contain an id, ``split`` takes precedence. ``folder`` is a store, by default the sample's, or raw
    data of ``source`` with its ``options``.

    Raises: DataError if there is nothing to read, or no such scenario.
    """
    chosen = "selects from a split of a store: omit --scenario and --raw"
    require(half is None or not (names or source), "half", chosen)
    if source is not None and folder is not None:
        return _from_raw(folder, source, split, names, limit, options)
    from trajpred.store import ensure_store, find_scenarios

    store = ensure_store(folder)
    names = names or open_split(store, split, half).scenario_ids[:limit]
    require(len(names) > 0, "split", f"{store} has no scenario in split {split!r}")
    choices: list[Choice] = []
    for name, rows in find_scenarios(store, names, first=split):
        row = rows.index(name)
        code = (
            "from trajpred.store import ScenarioStore",
            f"ScenarioStore({str(store)!r}, {rows.split!r})[{row}]",
        )
        choices.append(Choice(name, partial(rows.__getitem__, row), code))
    return choices


def _from_raw(
    raw: Path, source: str, split: str, names: Sequence[str], limit: int, options: object
) -> list[Choice]:
    """Find scenarios in raw data, as :func:`choose` describes."""
    from trajpred.sources import find_source
    from trajpred.store.reader import complete_id

    reader = find_source(source)
    require(raw.exists(), "raw", f"no such file or folder: {raw}")
    splits = _discover(reader, raw, split, options)
    if not names:
        require(split in splits, "split", f"{raw} has no split {split!r}, only {', '.join(splits)}")
        chosen = splits[split][:limit]
    else:
        by_id: dict[str, RawScenario] = {}
        for name in sorted(splits, key=lambda name: name == split):  # `split` takes precedence
            by_id |= {scenario.name: scenario for scenario in splits[name]}
        chosen = [by_id[complete_id(name, by_id)] for name in names]
    choices: list[Choice] = []
    for scenario in chosen:
        load = partial(reader.scenario, scenario, options)
        choices.append(Choice(scenario.name, load, _code_of(source, scenario, options)))
    return choices


def _code_of(source: str, scenario: RawScenario, options: object) -> tuple[str, str]:
    """Return :attr:`Choice.code` of a scenario in raw data."""
    imports = ["from pathlib import Path", "from trajpred.sources import RawScenario, find_source"]
    arguments = [repr(scenario)]
    if options is not None:
        kind = type(options)
        imports.append(f"from {kind.__module__} import {kind.__name__}")
        arguments.append(repr(options))
    reading = f"find_source({source!r}).scenario({', '.join(arguments)})"
    return "\n".join(imports), re.sub(r"\b(Posix|Windows)Path\(", "Path(", reading)


def _discover(reader: Source, raw: Path, split: str, options: object) -> dict[str, list[RawScenario]]:
    """List the scenarios of each split below ``raw``, which may also be a single scenario of ``split``."""
    from trajpred.sources.reading import RawScenario

    single = RawScenario.of(raw)
    if raw.is_file():
        return {split: [single]}
    try:
        return reader.scenarios(raw, options)
    except DataError as problem:
        try:
            reader.scenario(single, options)
        except Exception as error:  # third-party sources raise anything
            raise DataError(f"{problem}; it is not a single scenario either ({error})") from None
        return {split: [single]}
