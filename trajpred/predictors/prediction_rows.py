"""The rows of a predictions file: read from parquet or HDF5, grouped by track, checked, modes sorted.

Sizes: ``R`` rows (one per track and mode), ``B`` tracks of all scenarios.

HDF5 files are ``submission.h5`` files of Argoverse 1's challenge, as written by argoverse-api's
``generate_forecasting_h5``: one dataset ``[N, 3 or 4]``, a row per step, mode after mode: sequence, x, y, and
optionally the mode's probability, without which all modes are equally likely. They name no tracks: each is
the focal track of its sequence.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.data.checks import as_names, require_names
from trajpred.data.environment import install_command
from trajpred.data.files import require_file
from trajpred.data.forecast import SAME_PROBABILITY
from trajpred.errors import DataError, require, require_rows

#: The columns of coordinates.
X = "predicted_trajectory_x"
Y = "predicted_trajectory_y"
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
#: A file that claims more rows or uncompressed bytes per byte than this is rejected as damaged.
MAX_PER_BYTE = 100
#: Key of the scenes' digests (JSON) in a parquet file's metadata.
DIGESTS = b"trajpred.scenes"
#: Suffix of HDF5 files, name of their dataset, and F, the steps of every mode.
H5 = ".h5"
H5_DATASET = "argoverse_forecasting"
H5_STEPS = 30
#: Name of a sequence's track in messages.
FOCAL = "focal"
#: Deflate compresses at most this many bytes into one: a dataset that claims more is rejected as damaged.
H5_MAX_PER_BYTE = 1032
#: Tolerance of a sum of probabilities.
SUM_TOLERANCE = 1e-3


class Lists(NamedTuple):
    """A list of numbers per row: all ``values``, and each list's ``start`` and ``length`` ``[R]``."""

    values: NDArray[np.float64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]

    def not_finite(self) -> NDArray[np.bool_]:
        """Rows ``[R]`` with a non-finite number."""
        bad = np.flatnonzero(~np.isfinite(self.values))
        is_bad = np.zeros(len(self.start), bool)
        # If several rows have one start, only the last is not empty.
        is_bad[np.searchsorted(self.start, bad, side="right") - 1] = True
        return is_bad


class Rows(NamedTuple):
    """The columns of a file; ``scenario`` and ``track`` ``[R]`` are indices into the lists of ids."""

    scenario: NDArray[np.int64]
    scenario_ids: list[str]
    track: NDArray[np.int64]
    track_ids: list[str]
    probability: NDArray[np.float64]
    x: Lists
    y: Lists


@dataclass(frozen=True)
class Tracks:
    """The tracks of a file, grouped by scenario, in file order.

    Attributes:
        scenario: ``[B]`` ascending, index into the scenario ids.
        track_id: ``[B]`` strings, unique in a scenario.
        steps: ``[B]`` F; modes: ``[B]`` K.
        row: ``[R]`` rows of the file, grouped by track; probability: ``[R]`` of these rows.
    """

    scenario: NDArray[np.int64]
    track_id: NDArray[np.str_]
    steps: NDArray[np.int64]
    modes: NDArray[np.int64]
    row: NDArray[np.int64]
    probability: NDArray[np.float64]

    @cached_property
    def start(self) -> NDArray[np.int64]:
        """``[B]`` index of each track's first entry in ``row``."""
        return np.asarray(self.modes.cumsum() - self.modes, np.int64)

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """``[R]`` track of each entry of ``row``."""
        return np.repeat(np.arange(len(self.modes)), self.modes)

    def only(self, kept: NDArray[np.bool_]) -> Tracks:
        """Select the tracks ``kept`` ``[B]``."""
        columns = {name: getattr(self, name)[kept] for name in ("scenario", "track_id", "steps", "modes")}
        rows = kept[self.owner]
        return replace(self, **columns, row=self.row[rows], probability=self.probability[rows])


def read_digests(path: Path) -> dict[str, int]:
    """Return the scenarios' digests in a parquet file's metadata."""
    text = (pq.read_metadata(path).metadata or {}).get(DIGESTS)
    try:
        digests = json.loads(text) if text else {}
        return {str(name): int(value) for name, value in digests.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"has damaged metadata ({error})", file=path) from None


def read_rows(path: Path) -> Rows:
    """Read the columns. Raises: DataError if this is not a parquet file with usable columns."""
    require_file(path)
    try:
        metadata = pq.read_metadata(path)
        schema = metadata.schema.to_arrow_schema()
        for name in SCHEMA.names:
            require(name in schema.names, name, f"has no column {name}")
            require(schema.names.count(name) == 1, name, "is a duplicate column")
        _require_plausible(metadata, path.stat().st_size)
        # Read dictionary codes: a long id repeated in every row must not fill the memory.
        texts = [name for name in ("scenario_id", "track_id") if pa.types.is_string(schema.field(name).type)]
        with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts) as file:
            scenario, scenario_ids = _read_ids(file, "scenario_id")
            track, track_ids = _read_ids(file, "track_id")
            probability = _read_column(file, "probability", pa.float64())
            rows = Rows(
                scenario=scenario,
                scenario_ids=scenario_ids,
                track=track,
                track_ids=track_ids,
                probability=probability.to_numpy(zero_copy_only=False),
                x=_read_lists(file, X),
                y=_read_lists(file, Y),
            )
        columns = (rows.scenario, rows.track, rows.probability, rows.x.start, rows.y.start)
        lengths = {len(column) for column in columns}
        require(len(lengths) == 1, "rows", "columns differ in length")
        return rows
    except DataError as error:
        raise error.located(path) from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"is not a readable parquet file ({error})", file=path) from None


def _require_plausible(metadata: pq.FileMetaData, size: int) -> None:
    """Raise :class:`DataError` if a file of ``size`` bytes claims an implausible amount of content."""
    rows = 0
    unpacked = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows += group.num_rows
        unpacked += group.total_byte_size
    require(rows <= MAX_PER_BYTE * size, "rows", f"claims to hold {rows} rows in {size} bytes")
    require(unpacked <= MAX_PER_BYTE * size, "rows", f"claims to unpack {size} bytes to {unpacked}")


def _read_column(file: pq.ParquetFile, name: str, dtype: pa.DataType) -> Any:
    """Read a single column: a whole table would occupy memory in addition to its arrays."""
    try:
        return file.read(columns=[name])[name].cast(dtype).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as {dtype} ({error})", field=name) from None


def _read_ids(file: pq.ParquetFile, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Read ``[R]`` indices into the distinct ids, and those ids in file order."""
    codes = pa.dictionary(pa.int32(), pa.string())
    encoded = file.schema_arrow.field(name).type == codes
    column = _read_column(file, name, codes if encoded else pa.string()).dictionary_encode()
    require(not column.null_count, name, f"is missing in {column.null_count} rows")
    code = column.indices.to_numpy().astype(np.int64)
    used, first, row = np.unique(code, return_index=True, return_inverse=True)
    order = first.argsort()
    try:
        texts: list[str] = column.dictionary.take(used[order]).to_pylist()
    except UnicodeDecodeError:
        raise DataError("contains text that is not UTF-8", field=name) from None
    require_names(texts, name)
    require(len(set(texts)) == len(texts), name, "has a dictionary with a duplicate entry")
    return order.argsort()[row], texts


def _read_lists(file: pq.ParquetFile, name: str) -> Lists:
    """Read a column of lists; null lists are empty, null numbers NaN."""
    column = _read_column(file, name, pa.large_list(pa.float64()))
    length = column.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    return Lists(column.flatten().to_numpy(zero_copy_only=False), length.cumsum() - length, length)


def read_submission(path: Path) -> Rows:
    """Read the rows. Raises: DataError naming the file and what contradicts the challenge's format."""
    require_file(path)
    try:
        return _rows_of_steps(_h5_table(path))
    except DataError as error:
        raise error.located(path) from None


def _h5_table(path: Path) -> NDArray[np.float64]:
    """Read the dataset ``[N, 3 or 4]``."""
    try:
        import h5py
    except ImportError:
        raise DataError(f"needs h5py: {install_command('h5')}") from None
    try:
        with h5py.File(path) as file:
            table = file.get(H5_DATASET)
            missing = "is missing: the file needs a dataset of this name"
            require(isinstance(table, h5py.Dataset), H5_DATASET, missing)
            require(table.dtype.kind in "fiu", H5_DATASET, f"must contain numbers, contains {table.dtype}")
            fits = table.ndim == 2 and table.shape[1] in (3, 4)
            columns = "must have 3 or 4 columns (sequence, x, y, optionally probability)"
            require(fits, H5_DATASET, f"{columns}, has shape {table.shape}")
            plausible = table.nbytes <= H5_MAX_PER_BYTE * path.stat().st_size
            require(plausible, H5_DATASET, f"claims to unpack the file to {table.nbytes} bytes")
            return np.asarray(table, np.float64)
    except DataError:
        raise
    except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"is not a readable HDF5 file ({error})") from None


def _rows_of_steps(table: NDArray[np.float64]) -> Rows:
    """Cut the steps into modes. Raises: DataError if that is impossible."""
    ids, modes = _sequences(table[:, 0])
    scenario = np.repeat(np.arange(len(ids)), modes)
    probability = 1 / modes[scenario]
    if table.shape[1] == 4:
        by_step = table[:, 3].reshape(-1, H5_STEPS)
        probability = by_step.max(axis=1)
        varies = np.bincount(scenario, probability > by_step.min(axis=1), len(ids)) > 0
        _require_of_each(~varies, ids, "probability", f"must be the same in the {H5_STEPS} rows of a mode")
    start = H5_STEPS * np.arange(len(scenario))
    length = np.full(len(scenario), H5_STEPS)
    return Rows(
        scenario=scenario,
        scenario_ids=ids,
        track=np.zeros_like(scenario),
        track_ids=[FOCAL],
        probability=probability,
        x=Lists(table[:, 1], start, length),
        y=Lists(table[:, 2], start, length),
    )


def _sequences(number: NDArray[np.float64]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the sequences' ids and each one's modes, from the sequence of each step."""
    whole = (np.abs(number) < 2**53) & (number == np.floor(number))
    require_rows(whole, "sequence", "must be a whole number")
    first = np.flatnonzero(np.diff(number, prepend=np.nan) != 0)
    ids = [str(int(sequence)) for sequence in number[first]]
    _, first_places = np.unique(number[first], return_index=True)
    is_first = np.isin(np.arange(len(ids)), first_places)
    _require_of_each(is_first, ids, "sequence", "is in two places of the file")
    steps = np.diff(first, append=len(number))
    is_whole = steps % H5_STEPS == 0
    _require_of_each(is_whole, ids, "sequence", f"must have {H5_STEPS} rows for each of its modes")
    return ids, steps // H5_STEPS


def _require_of_each(correct: NDArray[np.bool_], ids: list[str], field: str, message: str) -> None:
    """Raise a :class:`DataError` that names the first incorrect sequence."""
    if not correct.all():
        raise DataError(f"{message}: sequence {ids[correct.argmin()]}", field=field)


def group_tracks(rows: Rows) -> Tracks:
    """Group the rows by track."""
    key = rows.scenario * len(rows.track_ids) + rows.track
    _, first, track, modes = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, rows.scenario[first]))
    row = np.argsort(order.argsort()[track], kind="stable")
    first = first[order]
    ids = as_names(rows.track_ids, "track_id")[rows.track[first]]
    return Tracks(rows.scenario[first], ids, rows.x.length[first], modes[order], row, rows.probability[row])


def check(rows: Rows, tracks: Tracks) -> tuple[Tracks, dict[str, list[str]]]:
    """Select the usable tracks, and report the others' problems by scenario."""
    faults = _faults(rows, tracks)
    sound = ~np.any([fault for fault, _ in faults], axis=0)
    odd = np.zeros_like(sound)
    odd[sound] = _unlike_the_majority(tracks.only(sound))
    faults.append((odd, "a different number of modes or steps than most tracks of the scenario"))
    total = np.bincount(tracks.owner, tracks.probability, len(sound))
    problems: dict[str, list[str]] = defaultdict(list)
    for fault, text in faults:
        for track in np.flatnonzero(fault).tolist():
            problem = f"track {tracks.track_id[track]}: {text.format(total=total[track])}"
            problems[rows.scenario_ids[tracks.scenario[track]]].append(problem)
    return tracks.only(sound & ~odd), dict(problems)


#: Possible reasons why probabilities sum to a whole number.
COPIES = "either they are not normalised, or the track is in the file {total:.0f} times"


def _faults(rows: Rows, tracks: Tracks) -> list[tuple[NDArray[np.bool_], str]]:
    """Return the tracks ``[B]`` with each kind of fault, and its description with ``{total}``."""
    count = len(tracks.modes)
    owner = tracks.owner
    row = tracks.row
    p = tracks.probability

    def any_mode(faulty: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.bincount(owner, faulty, count) > 0

    x_length = rows.x.length[row]
    y_length = rows.y.length[row]
    not_finite = rows.x.not_finite() | rows.y.not_finite()
    finite = ~any_mode(~np.isfinite(p))
    total = np.bincount(owner, np.where(finite[owner], p, 0.0), count)
    copies = np.round(total)
    is_whole = np.abs(total - copies) <= SUM_TOLERANCE
    return [
        (any_mode((x_length == 0) | (y_length == 0)), "an empty trajectory"),
        (any_mode(x_length != y_length), "a trajectory with different numbers of x and y"),
        (any_mode(x_length != tracks.steps[owner]), "modes of different lengths"),
        (any_mode(not_finite[row]), "a coordinate that is not finite"),
        (~finite, "a probability that is not finite"),
        (any_mode(p < 0), "a negative probability (if these are logits, write their softmax)"),
        (finite & is_whole & (copies > 1), "probabilities that sum to {total:.0f}, not to 1; " + COPIES),
        (finite & ~(is_whole & (copies >= 1)), "probabilities that sum to {total:.4g}, not to 1"),
    ]


def _unlike_the_majority(tracks: Tracks) -> NDArray[np.bool_]:
    """Tracks ``[B]`` with other numbers of modes or steps than most tracks of their scenario."""
    shape = np.stack((tracks.scenario, tracks.modes, tracks.steps))
    kinds, first, kind, count = np.unique(
        shape, axis=1, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((first, -count, kinds[0]))
    _, best = np.unique(kinds[0, order], return_index=True)
    return ~np.isin(kind.ravel(), order[best])


def sort_modes(tracks: Tracks) -> tuple[Tracks, NDArray[np.int64]]:
    """Sort each track's modes by descending probability; also return the scenarios with marginal predictions.

    Ties keep their order. If the tracks of a scenario share their probabilities up to rounding, all take the
    first track's order, so that mode k stays one joint mode.
    """
    owner = tracks.owner
    p = tracks.probability
    first_track = np.searchsorted(tracks.scenario, tracks.scenario)
    to_first = tracks.start[first_track] - tracks.start
    counterpart = to_first[owner] + np.arange(len(owner))  # that mode of the scenario's first track

    def differs(p: NDArray[np.float64]) -> NDArray[np.bool_]:
        difference = np.abs(p - p[counterpart])
        return np.bincount(owner, difference > SAME_PROBABILITY, len(first_track)) > 0

    key = np.where(differs(p)[owner], p, p[counterpart])
    order = np.lexsort((-key, owner))
    p = p[order]
    marginal = np.unique(tracks.scenario[differs(p)])
    return replace(tracks, row=tracks.row[order], probability=p), marginal
