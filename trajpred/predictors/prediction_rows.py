"""The rows of a predictions file: read, brought together by track, checked, put in order.

Sizes: ``R`` rows (one per track and mode), ``V`` coordinates of all rows, ``B`` tracks of all scenarios.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.forecast import SAME_PROBABILITY
from trajpred.sources.limits import names

X, Y = "predicted_trajectory_x", "predicted_trajectory_y"
#: The columns of the Argoverse 2 challenges.
SCHEMA = pa.schema(
    [
        ("scenario_id", pa.string()),
        ("track_id", pa.string()),
        ("probability", pa.float64()),
        (X, pa.list_(pa.float64())),
        (Y, pa.list_(pa.float64())),
    ]
)
#: Rows, or bytes, for each byte of the file: more are not to be believed.
PER_BYTE = 100
#: How far a sum of probabilities may be from 1.
SUM = 1e-3

Index = NDArray[np.int64]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


class Lists(NamedTuple):
    """A list of numbers per row: ``values`` ``[V]``, where each begins ``[R]``, how long it is ``[R]``."""

    values: Floats
    start: Index
    length: Index

    def not_finite(self) -> Mask:
        """Rows ``[R]`` with a number that is not finite."""
        bad = np.flatnonzero(~np.isfinite(self.values))
        found = np.zeros(len(self.start), bool)
        # Of rows that begin at the same place all but the last are empty.
        found[np.searchsorted(self.start, bad, side="right") - 1] = True
        return found


class Rows(NamedTuple):
    """The columns of a file; ``scenario`` and ``track`` ``[R]`` are places in the lists of their ids."""

    scenario: Index
    scenario_ids: list[str]
    track: Index
    track_ids: list[str]
    probability: Floats
    x: Lists
    y: Lists

    def trajectories(self, row: Index, steps: int) -> Floats:
        """``[..., steps, 2]`` metres of the rows ``row`` ``[...]``, which have so many steps."""
        step = np.arange(steps)
        return np.stack([axis.values[axis.start[row][..., None] + step] for axis in (self.x, self.y)], -1)


@dataclass(frozen=True)
class Tracks:
    """The tracks of a file, scenario by scenario, in the order of the file.

    Attributes:
        scenario: ``[B]`` ascending, place in ``Rows.scenario_ids``.
        track_id: ``[B]`` strings, unique in a scenario.
        steps: ``[B]`` F; modes: ``[B]`` K.
        row: ``[R]`` rows of the file, track by track; probability: ``[R]`` of these rows.
    """

    scenario: Index
    track_id: NDArray[np.str_]
    steps: Index
    modes: Index
    row: Index
    probability: Floats

    @cached_property
    def start(self) -> Index:
        """Where in ``row`` each track begins, ``[B]``."""
        return np.asarray(self.modes.cumsum() - self.modes, np.int64)

    @cached_property
    def owner(self) -> Index:
        """The track of each entry of ``row``, ``[R]``."""
        return np.repeat(np.arange(len(self.modes)), self.modes)

    def only(self, kept: Mask) -> Tracks:
        """The tracks ``kept`` ``[B]``."""
        rows = kept[self.owner]
        return Tracks(
            self.scenario[kept],
            self.track_id[kept],
            self.steps[kept],
            self.modes[kept],
            self.row[rows],
            self.probability[rows],
        )


def read_rows(path: Path) -> Rows:
    """The columns of a file. Raises: DataError if it is no parquet file, or lacks one of a usable type."""
    try:
        metadata = pq.read_metadata(path)
        schema = metadata.schema.to_arrow_schema()
        _require_columns(schema.names)
        _require_plausible(metadata, path.stat().st_size)
        # As codes into the distinct ids: a long one, repeated, would else take its room in every row.
        texts = [name for name in ("scenario_id", "track_id") if pa.types.is_string(schema.field(name).type)]
        with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts) as file:
            ids = [_indexed(file, name) for name in ("scenario_id", "track_id")]
            probability = _column(file, "probability", pa.float64()).to_numpy(zero_copy_only=False)
            rows = Rows(*ids[0], *ids[1], probability, _lists(file, X), _lists(file, Y))
        columns = (rows.scenario, rows.track, rows.probability, rows.x.start, rows.y.start)
        require(len(set(map(len, columns))) == 1, "rows", "columns differ in length")
        return rows
    except DataError as error:
        raise error.located(path) from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"is no readable parquet file ({error})", file=path) from None


def _require_columns(found: list[str]) -> None:
    absent = [name for name in SCHEMA.names if name not in found]
    if absent:
        raise DataError(f"has no column {', '.join(absent)}", field=absent[0])
    for name in SCHEMA.names:
        require(found.count(name) == 1, name, "column stands there twice")


def _require_plausible(metadata: pq.FileMetaData, size: int) -> None:
    """Raise :class:`DataError` if a file of ``size`` bytes claims to hold more than can be in them."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    rows, unpacked = sum(one.num_rows for one in groups), sum(one.total_byte_size for one in groups)
    require(rows <= PER_BYTE * size, "rows", f"claims to hold {rows} rows in {size} bytes")
    require(unpacked <= PER_BYTE * size, "rows", f"claims to unpack {size} bytes to {unpacked}")


def _column(file: pq.ParquetFile, name: str, kind: pa.DataType) -> Any:
    """One column alone, for the table would be in memory as a whole beside what is made of it."""
    try:
        return file.read(columns=[name])[name].cast(kind).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as {kind} ({error})", field=name) from None


def _indexed(file: pq.ParquetFile, name: str) -> tuple[Index, list[str]]:
    """``[R]`` places in the list of distinct names, and that list, in the order of the file."""
    codes = pa.dictionary(pa.int32(), pa.string())
    known = file.schema_arrow.field(name).type == codes
    column = _column(file, name, codes if known else pa.string()).dictionary_encode()
    if column.null_count:
        raise DataError(f"is missing in {column.null_count} rows", field=name)
    code = column.indices.to_numpy().astype(np.int64)
    used, first, row = np.unique(code, return_index=True, return_inverse=True)
    order = first.argsort()
    try:
        texts: list[str] = column.dictionary.take(used[order]).to_pylist()
    except UnicodeDecodeError:
        raise DataError("holds text that is not UTF-8", field=name) from None
    require(len(set(texts)) == len(texts), name, "has a dictionary with the same text twice")
    return order.argsort()[row], texts


def _lists(file: pq.ParquetFile, name: str) -> Lists:
    """A column of lists; what is null is empty, and numbers that are null are NaN."""
    column = _column(file, name, pa.large_list(pa.float64()))
    length = column.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    return Lists(column.flatten().to_numpy(zero_copy_only=False), length.cumsum() - length, length)


def by_track(rows: Rows) -> Tracks:
    """Bring the rows of each track together, wherever they stand in the file."""
    key = rows.scenario * len(rows.track_ids) + rows.track
    _, first, track, modes = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, rows.scenario[first]))
    row = np.argsort(order.argsort()[track], kind="stable")
    first = first[order]
    track_id = names(rows.track_ids, "track_id")[rows.track[first]]
    return Tracks(
        rows.scenario[first], track_id, rows.x.length[first], modes[order], row, rows.probability[row]
    )


def check(rows: Rows, tracks: Tracks) -> tuple[Tracks, dict[str, list[str]]]:
    """The tracks that can be used, and by scenario what is wrong with the others."""
    faults = _faults(rows, tracks)
    sound = ~np.any([fault for fault, _ in faults], axis=0)
    odd = np.zeros_like(sound)
    odd[sound] = _odd(tracks.only(sound))
    faults.append((odd, "not as many modes and steps as most tracks of the scenario"))
    total = np.bincount(tracks.owner, tracks.probability, len(sound))
    problems: dict[str, list[str]] = defaultdict(list)
    for fault, text in faults:
        for track in np.flatnonzero(fault).tolist():
            told = f"track {tracks.track_id[track]}: {text.format(total=total[track])}"
            problems[rows.scenario_ids[tracks.scenario[track]]].append(told)
    return tracks.only(sound & ~odd), dict(problems)


def _faults(rows: Rows, tracks: Tracks) -> list[tuple[Mask, str]]:
    """Which tracks ``[B]`` have which fault, told in words."""
    owner, row, p, B = tracks.owner, tracks.row, tracks.probability, len(tracks.modes)

    def any_of(faulty: Mask) -> Mask:
        return np.bincount(owner, faulty, B) > 0

    x, y = rows.x.length[row], rows.y.length[row]
    known = ~any_of(~np.isfinite(p))
    total = np.bincount(owner, np.where(known[owner], p, 0.0), B)
    times, whole = np.round(total), np.abs(total - np.round(total)) <= SUM
    return [
        (any_of((x == 0) | (y == 0)), "an empty trajectory"),
        (any_of(x != y), "a trajectory with more x than y or the other way round"),
        (any_of(x != tracks.steps[owner]), "modes of different lengths"),
        (any_of((rows.x.not_finite() | rows.y.not_finite())[row]), "a coordinate that is not finite"),
        (~known, "a probability that is not finite"),
        (any_of(p < 0), "a negative probability"),
        (known & whole & (times > 1), "in the file {total:.0f} times"),
        (known & ~(whole & (times >= 1)), "probabilities that sum to {total:.4g}, not to 1"),
    ]


def _odd(tracks: Tracks) -> Mask:
    """Tracks ``[B]`` with other numbers of modes or steps than most tracks of their scenario."""
    shape = np.stack((tracks.scenario, tracks.modes, tracks.steps))
    kinds, first, kind, times = np.unique(
        shape, axis=1, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((first, -times, kinds[0]))
    _, best = np.unique(kinds[0, order], return_index=True)
    return ~np.isin(kind.ravel(), order[best])


def in_order(tracks: Tracks) -> tuple[Tracks, Index]:
    """Each track's modes by descending probability, and the scenarios whose tracks do not share theirs.

    Of equal ones the order of the file stays. Where tracks share their probabilities, up to rounding, all
    are put in the order of the first one's, so that mode k stays one world.
    """
    owner, p = tracks.owner, tracks.probability
    lead = np.searchsorted(tracks.scenario, tracks.scenario)
    twin = (tracks.start[lead] - tracks.start)[owner] + np.arange(len(owner))

    def differ(p: Floats) -> Mask:
        return np.bincount(owner, np.abs(p - p[twin]) > SAME_PROBABILITY, len(lead)) > 0

    order = np.lexsort((-np.where(differ(p)[owner], p, p[twin]), owner))
    p = p[order]
    ordered = Tracks(tracks.scenario, tracks.track_id, tracks.steps, tracks.modes, tracks.row[order], p)
    return ordered, np.unique(tracks.scenario[differ(p)])
