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

#: Seconds between the updates of a stream.
EVERY_S = 0.5
#: Number of updates of a stream.
UPDATES = 3


def open_split(store: Path | None, split: str, half: Half | None = None) -> ScenarioStore:
    """Open a split of a store, by default of the sample's, or one half of it. Raises: DataError."""
    from trajpred.store import ScenarioStore
    from trajpred.store.sample import ensure_store

    rows = ScenarioStore(ensure_store(store), split)
    if half is None:
        return rows
    return rows.halved(half)


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
    choices: list[Choice] = []
    for name, rows in find_scenarios(store, names, first=split):
        row = rows.index(name)
        choices.append(Choice(name, partial(rows.__getitem__, row)))
    return choices


def _from_raw(raw: Path, source: str, split: str, names: Sequence[str], limit: int) -> list[Choice]:
    from trajpred.sources import find_source
    from trajpred.store.reader import complete_id

    reader = find_source(source)
    require(raw.exists(), "raw", f"no such file or folder: {raw}")
    splits = _discover(reader, raw, split)
    if not names:
        require(split in splits, "split", f"{raw} has no split {split!r}, only {', '.join(splits)}")
        chosen = splits[split][:limit]
    else:
        by_id: dict[str, RawScenario] = {}
        for name in sorted(splits, key=lambda name: name == split):  # an id of several splits is of `split`
            for scenario in splits[name]:
                by_id[scenario.name] = scenario
        chosen = [by_id[complete_id(name, by_id)] for name in names]
    return [Choice(scenario.name, partial(reader.read, scenario)) for scenario in chosen]


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
    default = every_s == EVERY_S and updates == UPDATES
    require(streaming or default, "streaming", "must be given with --every-s and --updates")
