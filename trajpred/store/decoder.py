"""Decode rows of a shard into scenarios, many at once.

The *parts* of a row are its columns as arrays, named by :data:`PARTS`; strings are UTF-8 bytes, and a list of
strings makes two parts. :func:`views` locates them in a shard; :func:`decode` and :func:`decode_batch`
concatenate the parts of ``S`` rows and decode them together. Damage raises ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import mean_step_s
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import Tracks
from trajpred.errors import require
from trajpred.store import codec
from trajpred.store.codec import ID_ROWS, LANE_CODES, LANE_IDS, OTHER_IDS, POLYLINES, SCHEMA, TRACK_CODES


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) and pa.types.is_string(kind.value_type))


class Part(NamedTuple):
    """An array of a row, ``[n]`` or, if the width is not 1, ``[n, width]``.

    Attributes:
        kind: type of the entries.
        width: number of columns.
    """

    kind: np.dtype[Any]
    width: int


def _parts() -> Iterator[tuple[str, Part]]:
    """Yield the name and the format of each part."""
    for column in SCHEMA:
        kind = column.type
        width = 1
        if pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_fixed_size_list(kind):
            width = kind.list_size
            kind = kind.value_type
        dtype = np.uint8 if pa.types.is_string(kind) else kind.to_pandas_dtype()
        yield column.name, Part(np.dtype(dtype), width)
        if _is_text(column.type):
            yield f"{column.name}_lengths", Part(np.dtype(np.int32), 1)


#: Format of each of the ``P`` parts.
PARTS = dict(_parts())


def _equal_lengths() -> Iterator[tuple[str, str]]:
    """Yield the parts whose number of entries another part determines, and that part."""
    for column in SCHEMA:
        if pa.types.is_primitive(column.type):
            yield column.name, "num_observed"
    for name in TRACK_CODES:
        yield name, "track_id_lengths"
    for name in ("heading", "velocity"):
        yield name, "position"
    for name in (*LANE_IDS, *LANE_CODES, "is_intersection"):
        yield name, "lane_id"
    for name in (*codec.LANE_LINES, *ID_ROWS):
        yield f"{name}_lengths", "lane_id"
    for name in codec.CROSSING_LINES:
        yield f"{name}_lengths", "crossing_id"
    yield "drivable_area_lengths", "drivable_area_id"


_NAMES = list(PARTS)
_PAIRS = list(_equal_lengths())
#: Rows in :data:`PARTS` of the parts whose lengths must equal those of ``_REFERENCE``.
_CHECKED = np.array([_NAMES.index(name) for name, _ in _PAIRS])
_REFERENCE = np.array([_NAMES.index(reference) for _, reference in _PAIRS])


def views(batch: pa.RecordBatch) -> tuple[list[NDArray[Any]], NDArray[np.int32]]:
    """Locate the parts of all rows of a ``SCHEMA`` batch, copying only offsets.

    Returns the values of each part, and their offsets ``[P, rows + 1]``.

    Raises:
        ValueError: offsets are out of range.
    """
    values: list[NDArray[Any]] = []
    offsets: list[NDArray[np.int32]] = []
    for name, column in zip(SCHEMA.names, batch.columns, strict=True):
        for part_values, part_offsets in _views(name, column):
            values.append(part_values)
            offsets.append(part_offsets)
    for name, part_values, part_offsets in zip(PARTS, values, offsets, strict=True):
        _check(part_offsets, len(part_values), name)
    return values, np.stack(offsets)


def _views(name: str, column: pa.Array) -> list[tuple[NDArray[Any], NDArray[np.int32]]]:
    """Return values and offsets of the parts of one column. Arrow's buffers: validity, offsets …, values."""
    buffers = column.buffers()
    part = PARTS[name]
    values = _numbers(buffers[-1], part.kind)
    if part.width != 1:
        values = values.reshape(-1, part.width)
    if pa.types.is_primitive(column.type):
        scalar_offsets = np.arange(len(column) + 1, dtype=np.int32)
        return [(values, scalar_offsets)]
    offsets = _offsets(buffers[1], len(column))
    if not _is_text(column.type):
        return [(values, offsets)]
    ends = _offsets(buffers[3], len(column.values))
    _check(ends, len(values), name)
    _check(offsets, len(ends) - 1, name)
    return [(values, ends[offsets]), (np.diff(ends), offsets)]


def _numbers(buffer: pa.Buffer | None, kind: np.dtype[Any]) -> NDArray[Any]:
    if buffer is None or buffer.size == 0:
        return np.zeros(0, kind)
    return np.frombuffer(buffer, kind)


def _offsets(buffer: pa.Buffer | None, rows: int) -> NDArray[np.int32]:
    offsets = _numbers(buffer, np.dtype(np.int32))[: rows + 1]
    if rows == 0 and len(offsets) == 0:
        return np.zeros(1, np.int32)
    return offsets


def _check(offsets: NDArray[np.int32], end: int, name: str) -> None:
    inside = len(offsets) > 0 and offsets[0] >= 0 and offsets[-1] <= end
    if not inside or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"offsets of {name} are out of range")


def decode(parts: Sequence[NDArray[Any]]) -> Scenario:
    """Decode the parts of one scenario. Raises: ValueError."""
    columns = _concatenate([parts])
    tracks = _tracks(columns)
    return Scenario(
        scenario_id=str(_texts(columns["scenario_id"])[0]),
        city=str(_texts(columns["city"])[0]),
        timestamps_ns=columns["timestamps_ns"].values,
        num_observed=int(columns["num_observed"].values[0]),
        focal_id=str(tracks.track_id[_focal(columns)[0]]),
        tracks=tracks,
        map=_lane_map(columns),
        continued=int(columns["continued"].values[0]),
    )


def decode_batch(rows: Sequence[Sequence[NDArray[Any]]]) -> ScenarioBatch:
    """Decode the parts of ``S`` scenarios.

    Raises:
        DataError: no scenarios, or window lengths differ.
        ValueError: damaged parts.
    """
    require(len(rows) > 0, "scenarios", "must not be empty")
    columns = _concatenate(rows)
    observed = columns["num_observed"].values
    stamps = columns["timestamps_ns"]
    windows = sorted(set(zip(observed.tolist(), stamps.lengths.tolist(), strict=True)))
    require(len(windows) == 1, "num_observed", f"window lengths differ: {windows}")
    num_observed, steps = windows[0]
    scene = np.arange(len(rows))
    return ScenarioBatch(
        scenario_id=_texts(columns["scenario_id"]),
        step_s=mean_step_s(stamps.values.reshape(-1, steps), num_observed),
        num_observed=num_observed,
        recorded=steps - columns["continued"].values.astype(np.int64),
        focal=_focal(columns),
        tracks=_tracks(columns),
        track_scene=np.repeat(scene, columns["object_type"].lengths),
        map=_lane_map(columns),
        lane_scene=np.repeat(scene, columns["lane_id"].lengths),
        crossing_scene=np.repeat(scene, columns["crossing_id"].lengths),
    )


def _concatenate(rows: Sequence[Sequence[NDArray[Any]]]) -> dict[str, Ragged]:
    """Concatenate each part over the ``S`` rows: a ragged array with one row per scenario."""
    lengths = np.array([part_lengths(row) for row in rows])
    offsets = np.zeros((len(PARTS), len(rows) + 1), np.int64)
    np.cumsum(lengths.T, axis=1, out=offsets[:, 1:])
    differing = (offsets[_CHECKED] != offsets[_REFERENCE]).any(axis=1)
    if differing.any():
        name, reference = _PAIRS[int(differing.argmax())]
        raise ValueError(f"{name} and {reference} differ in the number of entries")
    columns: dict[str, Ragged] = {}
    for number, name in enumerate(PARTS):
        values = np.concatenate([row[number] for row in rows])
        columns[name] = Ragged(values, offsets[number])
    return columns


def part_lengths(parts: Sequence[NDArray[Any]]) -> list[int]:
    """Return the number of entries of each part."""
    return [len(part) for part in parts]


def _focal(columns: dict[str, Ragged]) -> NDArray[np.int64]:
    """``[S]`` rows of the focal tracks among all tracks."""
    tracks = columns["object_type"]
    focal = columns["focal"].values
    if not ((focal >= 0) & (focal < tracks.lengths)).all():
        raise ValueError("focal is no row of the tracks")
    return tracks.offsets[:-1] + focal


def _tracks(columns: dict[str, Ragged]) -> Tracks:
    steps = int(columns["timestamps_ns"].lengths[0])
    names = _texts(_nested("track_id", columns))
    bits = columns["valid"].values.reshape(len(names), -1)
    valid = np.unpackbits(bits, axis=1, count=steps).view(np.bool_)
    stored = np.flatnonzero(valid)
    bytes_per_track = -(-steps // 8)
    if bits.shape[1] != bytes_per_track or len(stored) != len(columns["position"].values):
        raise ValueError("valid does not match the states")

    def states(compact: NDArray[np.float64]) -> NDArray[np.float64]:
        """Insert zeros at the invalid steps."""
        dense = np.zeros((valid.size, *compact.shape[1:]))
        dense[stored] = compact
        return dense.reshape(*valid.shape, *compact.shape[1:])

    velocity_unit = np.repeat(columns["velocity_unit"].values, columns["velocity"].lengths)
    return Tracks(
        track_id=names,
        object_type=columns["object_type"].values,
        category=columns["category"].values,
        valid=valid,
        position=states(_metres(columns["position"], columns)),
        heading=states(columns["heading"].values * codec.HEADING_UNIT),
        velocity=states(columns["velocity"].values * velocity_unit[:, None]),
    )


def _lane_map(columns: dict[str, Ragged]) -> LaneMap:
    elements: dict[str, Any] = {}
    for name in (*LANE_IDS, *OTHER_IDS, *LANE_CODES):
        elements[name] = columns[name].values
    elements["is_intersection"] = columns["is_intersection"].values != 0
    for name in ID_ROWS:
        elements[name] = _nested(name, columns)
    for name in POLYLINES:
        elements[name] = _polylines(name, columns)
    return LaneMap(**elements)


def _polylines(name: str, columns: dict[str, Ragged]) -> Ragged:
    points = _metres(columns[name], columns)
    height = columns[f"{name}_height"]
    has_heights = height.lengths > 0
    if (has_heights & (height.lengths != columns[name].lengths)).any():
        raise ValueError(f"{name}_height does not have one entry per point")
    if height.lengths.all():  # as in ScenarioBatch.of: heights only if all scenarios have them
        points = np.concatenate((points, height.values[:, None]), axis=1)
    return Ragged(points, _nested(name, columns).offsets)


def _nested(name: str, columns: dict[str, Ragged]) -> Ragged:
    """Divide a part into rows whose lengths are in another part."""
    values = columns[name]
    lengths = columns[f"{name}_lengths"]
    rows = Ragged.from_lengths(values.values, lengths.values)
    if (lengths.values < 0).any() or (rows.offsets[lengths.offsets] != values.offsets).any():
        raise ValueError(f"{name} does not match its lengths")
    return rows


def _metres(points: Ragged, columns: dict[str, Ragged]) -> NDArray[np.float64]:
    """Convert millimetres from each scenario's origin to metres in the city frame, ``[N, 2]``."""
    origin = np.stack((columns["origin_x"].values, columns["origin_y"].values), -1)
    metres: NDArray[np.float64] = points.values / codec.PER_METRE
    metres += np.repeat(origin, points.lengths, axis=0)
    return metres


def _texts(letters: Ragged) -> NDArray[np.str_]:
    # NumPy pads every string to the longest.
    if len(letters) * int(letters.lengths.max(initial=0)) > codec.MAX_BYTES:
        raise ValueError("a text is too long")
    ends = pa.py_buffer(letters.offsets.astype(np.int32))
    texts = pa.StringArray.from_buffers(len(letters), ends, pa.py_buffer(letters.values))
    return texts.to_numpy(zero_copy_only=False).astype(np.str_)
