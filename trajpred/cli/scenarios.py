"""Which scenarios commands take, of a store or of raw data, and at which updates of a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trajpred.errors import DataError, require
from trajpred.splits import Half

if TYPE_CHECKING:
    from trajpred.scenario import Scenario
    from trajpred.sources import Source
    from trajpred.sources.raw_scenario import RawScenario
    from trajpred.store import ScenarioStore

#: Seconds between the updates of a stream, and their number.
EVERY_S, UPDATES = 0.5, 3


def open_split(store: Path | None, split: str, half: Half | None = None) -> ScenarioStore:
    """Open a split of a store, by default of the sample's, or one half of it. Raises: DataError."""
    from trajpred.store import ScenarioStore
    from trajpred.store.sample import ensure_store

    rows = ScenarioStore(ensure_store(store), split)
    return rows if half is None else rows.halved(half)


@dataclass(frozen=True)
class Choice:
    """A scenario that was found but not yet read."""

    name: str
    load: Callable[[], Scenario]

    def read(self) -> Scenario:
        """Read the scenario. Raises: DataError on any failure."""
        try:
            return self.load()
        except DataError:
            raise
        except Exception as error:  # third-party readers raise anything
            raise DataError(f"cannot be read ({type(error).__name__}: {error})") from error


def choose(
    folder: Path | None,
    source: str | None,
    split: str,
    names: Sequence[str],
    limit: int,
    half: Half | None = None,
) -> list[Choice]:
    """Find the scenarios whose ids start with ``names``, in any split; without names the first of ``split``.

    ``limit`` is the number of those without names, which are of one ``half`` of the split of a store. If
    several splits hold an id, ``split`` takes precedence.
    ``folder`` is a store, by default the sample's, or raw data of the data set ``source``.

    Raises: DataError if there is nothing to read, or no such scenario.
    """
    if source is not None and folder is not None:
        return _from_raw(folder, source, split, names, limit)
    from trajpred.store import find_scenarios
    from trajpred.store.sample import ensure_store

    store = ensure_store(folder)
    names = names or open_split(store, split, half).scenario_ids[:limit]
    require(len(names) > 0, "split", f"{store} has no scenario in split {split!r}")
    found = find_scenarios(store, names, first=split)
    return [Choice(name, partial(rows.__getitem__, rows.index(name))) for name, rows in found]


def _from_raw(raw: Path, source: str, split: str, names: Sequence[str], limit: int) -> list[Choice]:
    from trajpred.sources import find_source
    from trajpred.store.reader import complete_id

    reader = find_source(source)
    require(raw.exists(), "raw", f"no such file or folder: {raw}")
    splits = _discover(reader, raw, split)
    if not names:
        require(split in splits, "split", f"{raw} has no split {split!r}, only {', '.join(splits)}")
        listed = splits[split][:limit]
        return [Choice(scenario.name, partial(reader.read, scenario)) for scenario in listed]
    scenarios: dict[str, RawScenario] = {}
    for name in sorted(splits, key=lambda name: name == split):  # ids of several splits are those of `split`
        scenarios |= {scenario.name: scenario for scenario in splits[name]}
    ids = [complete_id(name, scenarios) for name in names]
    return [Choice(name, partial(reader.read, scenarios[name])) for name in ids]


def _discover(reader: Source, raw: Path, split: str) -> dict[str, list[RawScenario]]:
    """List the scenarios of each split below ``raw``, which may also be a single one of ``split``."""
    from trajpred.sources.raw_scenario import RawScenario

    single = RawScenario.of(raw)
    if raw.is_file():
        return {split: [single]}
    try:
        return reader.scenarios(raw)
    except DataError as problem:
        try:
            reader.read(single)
        except Exception as error:  # third-party sources raise anything
            raise DataError(f"{problem}; nor is it one scenario ({error})") from None
        return {split: [single]}


def require_streaming(streaming: bool, every_s: float, updates: int) -> None:
    """Raise DataError if settings of a stream are given without ``--streaming``."""
    chosen = streaming or (every_s, updates) == (EVERY_S, UPDATES)
    require(chosen, "streaming", "must be given with --every-s and --updates")
