"""Which scenarios a tool takes (named, the worst of an evaluation, or the first), and their files' names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trajpred.errors import DataError
from trajpred.scenario import Scenario
from trajpred.sources import Source, find_source
from trajpred.store import ScenarioStore, find_splits

#: Bytes of a file's name that leave room for a number, a suffix and a mark.
LONGEST = 180
#: Names that Windows keeps for devices, whatever their suffix.
DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Choice:
    """A scenario that was found but not yet read.

    Attributes:
        name: its id, or the name of its path.
        make: reads it; readers of other people's may raise anything.
    """

    name: str
    make: Callable[[], Scenario]

    def read(self) -> Scenario:
        """The scenario. Raises: DataError, whatever is wrong with it."""
        try:
            return self.make()
        except DataError:
            raise
        except Exception as error:  # a reader of other people's may raise anything
            raise DataError(f"cannot be read ({type(error).__name__}: {error})") from error


def from_store(store: Path, split: str, names: Sequence[str], limit: int) -> list[Choice]:
    """The scenarios ``names`` of any split, ``split`` first; without names the first ``limit`` of it.

    Raises: DataError if one is not there.
    """
    if not names:
        rows = ScenarioStore(store, split)
        return [_stored(rows, name) for name in rows.scenario_ids[:limit]]
    homes = find_splits(store, names, first=split)
    return [_stored(rows, name) for rows, name in zip(homes, names, strict=True)]


def _stored(rows: ScenarioStore, name: str) -> Choice:
    return Choice(name, lambda: rows[rows.index(name)])


def from_raw(raw: Path, source: str, split: str, names: Sequence[str], limit: int) -> list[Choice]:
    """Like :func:`from_store`, from raw data, of which only what is chosen is read.

    Args:
        raw: folder that ``source`` lists, or one of the paths that it reads: a single scenario.
        source: as :func:`~trajpred.sources.find_source` takes it.

    Raises: DataError if there is nothing to read, or no such scenario.
    """
    reader = find_source(source)
    if not raw.exists():
        raise DataError("no such file or folder", file=raw)
    splits = _listed(reader, raw, split)
    if not names:
        if split not in splits:
            raise DataError(f"has no split {split!r}, only {', '.join(splits)}", file=raw)
        return [_raw(reader, path) for path in splits[split][:limit]]
    # The last one stays where an id repeats over splits.
    order = sorted(splits, key=lambda one: one == split)
    paths = {path.stem: path for one in order for path in splits[one]}
    for name in names:
        if name not in paths:
            raise DataError(f"no split holds scenario {name!r}", file=raw)
    return [_raw(reader, paths[name]) for name in names]


def _raw(reader: Source, path: Path) -> Choice:
    return Choice(path.stem, partial(reader.read, path))


def _listed(reader: Source, raw: Path, split: str) -> dict[str, list[Path]]:
    """The paths of each split below ``raw``, or of ``split`` that one path."""
    if raw.is_file():
        return {split: [raw]}
    try:
        return {name: list(paths) for name, paths in reader.discover(raw).items() if paths}
    except Exception as problem:  # other people's sources may raise anything
        try:
            reader.read(raw)
        except Exception as error:
            raise DataError(f"{problem}; nor is it one scenario ({error})") from None
        return {split: [raw]}


def file_stems(names: Sequence[str]) -> list[str]:
    """A file name without suffix for each of ``names``, no two the same, safe on every system.

    Letters, digits, ``_``, ``.`` and ``-`` are kept, so that most ids stay what they are.
    """
    taken: set[str] = set()
    stems = []
    for name in names:
        stem = first = _safe(name)
        count = 1
        while stem.casefold() in taken:  # many file systems know no case
            count += 1
            stem = f"{first}-{count}"
        taken.add(stem.casefold())
        stems.append(stem)
    return stems


def _safe(name: str) -> str:
    """``name`` without what leads out of a folder, is a device on Windows, or is too long for a file."""
    kept = re.sub(r"[^\w.-]", "_", name).encode()[:LONGEST].decode(errors="ignore").strip(".")
    return kept if kept and not DEVICE.match(kept) else f"_{kept}"


class Worst(NamedTuple):
    """The scenarios on which a predictor did worst.

    Attributes:
        names: ids, the worst first.
        split: where they are.
        told: of whom, by what and how bad, in one sentence.
    """

    names: list[str]
    split: str
    told: str


def worst(results: Path, by: str, limit: int, checkpoint: str | None) -> Worst:
    """The worst ``limit`` focal agents of an evaluation.

    Args:
        results: JSON of tools/evaluate.py. Of several evaluations it is that of ``checkpoint``, else the
            first one: what ``--checkpoint`` of tools/evaluate.py named.
        by: one of the metrics that it tells of each scenario, such as minFDE6.

    Raises: DataError if the file does not tell it.
    """
    from trajpred.evaluation.results import read_results
    from trajpred.predictors.checkpoint import display_name

    found = read_results(results)
    if not found:
        raise DataError("holds no evaluation", file=results)
    asked = None if checkpoint is None else display_name(checkpoint)
    one = next((one for one in found if one.predictor == asked), found[0])
    try:
        judged = one.focal(by)
    except DataError as error:
        raise error.located(results) from None
    value = np.array(list(judged.values()), np.float64)
    order = np.argsort(-value, kind="stable")  # NaN comes last
    rows = order[~np.isnan(value[order])][:limit]
    if not len(rows):
        raise DataError(f"tells no {by} of any scenario", file=results)
    names = np.array(list(judged))[rows].tolist()
    told = f"the {len(names)} worst of {one.predictor} ({one.split}) by {by}: "
    bounds = dict.fromkeys(f"{value[row]:.2f}" for row in rows[[0, -1]])
    return Worst(names, one.split, told + " to ".join(bounds))
