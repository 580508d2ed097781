"""Scenarios as rows of Arrow columns (docs/concepts/store.md): encode one, decode many at once.

The *parts* of a row are its columns as arrays; strings are UTF-8 bytes, and a list of strings makes two
parts, all bytes and the lengths. :class:`Rows` finds the parts of a row without reading others;
:func:`decode` and :func:`decode_batch` concatenate the parts of ``S`` rows and decode them together. They
expect parts made by :func:`encode_row`; checksums detect others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import mean_step_s
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import Tracks
from trajpred.errors import DataError, require

#: Version of the columns and their meaning.
COLUMNS_VERSION = 4
#: Units of a position per metre.
PER_METRE = 1000.0
#: Smallest ``velocity_unit`` in m/s.
FINEST_VELOCITY = 2.0**-14
#: Unit of a heading in radians: int16 spans one turn, so π wraps to -π.
HEADING_UNIT = np.pi / 2**15
#: Units of a full turn.
HEADINGS = 2**16
#: Maximum size of a row, a thousand times the usual size.
MAX_BYTES = 2**26

LANE_CODES = ("lane_type", "left_mark", "right_mark")
IDS = ("lane_id", "left_neighbor", "right_neighbor", "crossing_id", "drivable_area_id")
#: Columns with a row of lane ids for each lane.
ID_ROWS = ("predecessors", "successors")
POLYLINES = (
    "centerline",
    "left_boundary",
    "right_boundary",
    "crossing_edge1",
    "crossing_edge2",
    "drivable_area",
)


def _list(kind: pa.DataType, width: int = 1) -> pa.DataType:
    """Return the type of a list of numbers, or of tuples of ``width`` numbers; nothing may be null."""
    item = pa.field("item", kind, nullable=False)
    if width > 1:
        item = pa.field("item", pa.list_(item, width), nullable=False)
    return pa.list_(item)


def _schema() -> pa.Schema:
    """Describe the columns in their order in the file."""
    columns = {
        "scenario_id": pa.string(),
        "tracks": pa.int32(),
        "lanes": pa.int32(),
        "city": pa.string(),
        "num_observed": pa.int32(),
        "focal": pa.int32(),
        "continued": pa.int32(),
        "origin_x": pa.float64(),
        "origin_y": pa.float64(),
        "velocity_unit": pa.float64(),
        "timestamps_ns": _list(pa.int64()),
        "track_id": _list(pa.string()),
        "object_type": _list(pa.int8()),
        "category": _list(pa.int8()),
        "valid": _list(pa.uint8()),
        "position": _list(pa.int32(), width=2),
        "heading": _list(pa.int16()),
        "velocity": _list(pa.int16(), width=2),
        "size": _list(pa.float32(), width=2),
    }
    for name in IDS:
        columns[name] = _list(pa.int64())
    for name in (*LANE_CODES, "is_intersection"):
        columns[name] = _list(pa.int8())
    for name in POLYLINES:
        columns[name] = _list(pa.int32(), width=2)
        columns[f"{name}_lengths"] = _list(pa.int32())
        columns[f"{name}_height"] = _list(pa.float32())
    for name in ID_ROWS:
        columns[name] = _list(pa.int64())
        columns[f"{name}_lengths"] = _list(pa.int32())
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


SCHEMA = _schema()
#: Names of the ``P`` parts.
PARTS = list(SCHEMA.names)
PARTS.insert(PARTS.index("track_id") + 1, "track_id_lengths")

# ---------------------------------------------------------------------------------------------- encode


def encode_batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Combine rows of :func:`encode_row` into one batch. Raises: DataError if there are too many."""
    arrays: list[pa.Array] = []
    for column in SCHEMA:
        values = [row[column.name] for row in rows]
        arrays.append(_array(values, column))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _array(values: list[Any], column: pa.Field) -> pa.Array:
    """Return a column of all rows. Raises: DataError if it is too long for one shard."""
    kind = column.type
    if not pa.types.is_list(kind):
        return pa.array(values, kind)
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    if ends[-1] > np.iinfo(np.int32).max:
        raise DataError("is too long for one shard; choose a smaller shard_size", field=column.name)
    joined: NDArray[Any] = np.concatenate(values) if values else np.zeros(0, object)
    item = kind.value_type
    if pa.types.is_fixed_size_list(item):
        numbers = pa.array(joined.ravel(), item.value_type)
        entries = pa.FixedSizeListArray.from_arrays(numbers, type=item)
    else:
        entries = pa.array(joined, item)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), entries, type=kind)


def encode_row(scenario: Scenario, heights: bool) -> dict[str, Any]:
    """Encode one scenario; heights of the map are omitted unless ``heights``. Raises: DataError."""
    scenario.validate()  # users' own sources may not
    tracks = scenario.tracks
    lane_map = scenario.map
    observed_valid = tracks.valid[:, : scenario.num_observed]
    last_seen = np.flatnonzero(observed_valid[scenario.focal])[-1]
    # A whole number of metres, so that rounding to millimetres is exact in city coordinates too.
    origin = np.floor(tracks.position[scenario.focal, last_seen])
    row: dict[str, Any] = {
        "scenario_id": scenario.scenario_id,
        "city": scenario.city,
        "tracks": int(observed_valid.any(1).sum()),
        "lanes": len(lane_map) + len(lane_map.crossing_id),
        "num_observed": scenario.num_observed,
        "focal": scenario.focal,
        "timestamps_ns": scenario.timestamps_ns,
        "continued": scenario.continued,
        "origin_x": origin[0],
        "origin_y": origin[1],
    }
    row |= _encode_tracks(tracks, origin)
    row |= _encode_map(lane_map, origin, heights)
    size = sum(value.nbytes for value in row.values() if isinstance(value, np.ndarray))
    require(size <= MAX_BYTES, "scenario", f"takes {size} bytes, more than {MAX_BYTES}")
    return row


def _encode_tracks(tracks: Tracks, origin: NDArray[np.float64]) -> dict[str, Any]:
    """Encode the tracks; only valid states are stored."""
    valid = tracks.valid
    velocity = tracks.velocity[valid]
    # The smallest power of two (m/s) as a unit for which all velocities fit into int16.
    largest = np.abs(velocity).max(initial=0.0) / np.iinfo(np.int16).max
    unit = float(2.0 ** np.ceil(np.log2(max(largest, FINEST_VELOCITY))))
    turn = np.remainder(tracks.heading[valid], 2 * np.pi)
    heading = np.round(turn / HEADING_UNIT).astype(np.int32) % HEADINGS
    # Exactly 0 means unknown: a known heading within half a unit of it is one unit.
    heading[(heading == 0) & (turn != 0)] = 1
    has_sizes = not np.isnan(tracks.size).all()
    return {
        "track_id": tracks.track_id,
        "object_type": tracks.object_type,
        "category": tracks.category,
        "valid": np.packbits(valid, axis=1).ravel(),
        "position": _to_mm(tracks.position[valid], origin, "position"),
        "heading": heading.astype(np.int16),  # wraps around
        "velocity_unit": unit,
        "velocity": np.round(velocity / unit).astype(np.int16),
        "size": tracks.size[: len(tracks) * has_sizes].astype(np.float32),
    }


def _encode_map(lane_map: LaneMap, origin: NDArray[np.float64], heights: bool) -> dict[str, Any]:
    columns: dict[str, Any] = {name: getattr(lane_map, name) for name in (*IDS, *LANE_CODES)}
    columns["is_intersection"] = lane_map.is_intersection.astype(np.int8)
    for name in POLYLINES:
        lines: Ragged = getattr(lane_map, name)
        height = np.zeros(0)
        if heights and lines.values.shape[1] == 3:
            height = lines.values[:, 2]
        if np.abs(height).max(initial=0.0) > np.finfo(np.float32).max:
            raise DataError("is too large for float32", field=name)
        columns[name] = _to_mm(lines.values[:, :2], origin, name)
        columns[f"{name}_lengths"] = lines.lengths
        columns[f"{name}_height"] = height.astype(np.float32)
    for name in ID_ROWS:
        ids: Ragged = getattr(lane_map, name)
        columns[name] = ids.values
        columns[f"{name}_lengths"] = ids.lengths
    return columns


def _to_mm(xy: NDArray[np.float64], origin: NDArray[np.float64], name: str) -> NDArray[np.int32]:
    mm = np.round((xy - origin) * PER_METRE)
    if np.abs(mm).max(initial=0.0) > np.iinfo(np.int32).max:
        raise DataError("lies more than 2,147 km from the focal track", field=name)
    return mm.astype(np.int32)


# ----------------------------------------------------------------------------------------------- parts


class Rows:
    """The rows of a ``SCHEMA`` batch; only offsets are copied.

    Args:
        batch: a batch without nulls.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._values: list[NDArray[Any]] = []
        offsets: list[NDArray[np.int32]] = []
        for column in batch.columns:
            for part_values, part_offsets in _parts(column):
                self._values.append(part_values)
                offsets.append(part_offsets)
        self._offsets = np.stack(offsets)  # [P, rows + 1]

    def __getitem__(self, row: int) -> list[NDArray[Any]]:
        """Return the parts of a row."""
        bounds = self._offsets[:, row : row + 2].tolist()
        return [values[start:stop] for values, (start, stop) in zip(self._values, bounds, strict=True)]


def _parts(column: pa.Array) -> Iterator[tuple[NDArray[Any], NDArray[np.int32]]]:
    """Yield, for each part of a column, the entries of all rows and their offsets ``[rows + 1]``.

    A list of strings has two parts, the letters and the length of each string; any other column has one.
    """
    if pa.types.is_string(column.type):
        yield _letters(column)
    elif not pa.types.is_list(column.type):
        yield column.to_numpy(), np.arange(len(column) + 1, dtype=np.int32)
    elif pa.types.is_string(column.type.value_type):
        offsets = column.offsets.to_numpy()
        letters, ends = _letters(column.values)
        yield letters, ends[offsets]
        yield np.diff(ends), offsets
    elif pa.types.is_fixed_size_list(column.type.value_type):
        numbers = column.values.values.to_numpy()
        yield numbers.reshape(-1, column.type.value_type.list_size), column.offsets.to_numpy()
    else:
        yield column.values.to_numpy(), column.offsets.to_numpy()


def _letters(texts: pa.StringArray) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return all bytes of ``texts`` ``[N]``, and their offsets ``[N + 1]``."""
    _, ends, letters = texts.buffers()
    offsets = np.frombuffer(ends or bytes(4), np.int32)[: len(texts) + 1]  # Arrow: no buffer without texts
    values = np.frombuffer(letters or b"", np.uint8)
    return values, offsets


# ---------------------------------------------------------------------------------------------- decode


def decode(parts: Sequence[NDArray[Any]]) -> Scenario:
    """Decode the parts of one scenario."""
    columns = _concatenate([parts])
    tracks = _decode_tracks(columns)
    return Scenario(
        scenario_id=str(_texts(columns["scenario_id"])[0]),
        city=str(_texts(columns["city"])[0]),
        timestamps_ns=columns["timestamps_ns"].values,
        num_observed=int(columns["num_observed"].values[0]),
        focal_id=str(tracks.track_id[columns["focal"].values[0]]),
        tracks=tracks,
        map=_decode_map(columns),
        continued=int(columns["continued"].values[0]),
    )


def decode_batch(rows: Sequence[Sequence[NDArray[Any]]]) -> ScenarioBatch:
    """Decode the parts of scenarios of equal window length; equals ``ScenarioBatch.of`` of the scenarios.

    Raises: DataError if there are no scenarios, or window lengths differ.
    """
    if not len(rows):
        raise DataError("must not be empty", field="scenarios")
    columns = _concatenate(rows)
    observed = columns["num_observed"].values
    stamps = columns["timestamps_ns"]
    windows = sorted(set(zip(observed.tolist(), stamps.lengths.tolist(), strict=True)))
    if len(windows) > 1:
        raise DataError(f"window lengths differ: {windows}", field="num_observed")
    num_observed, steps = windows[0]
    scene = np.arange(len(rows))
    return ScenarioBatch(
        scenario_id=_texts(columns["scenario_id"]),
        step_s=mean_step_s(stamps.values.reshape(-1, steps), num_observed),
        num_observed=num_observed,
        recorded=steps - columns["continued"].values.astype(np.int64),
        focal=columns["object_type"].offsets[:-1] + columns["focal"].values,  # rows among all tracks
        tracks=_decode_tracks(columns),
        track_scene=np.repeat(scene, columns["object_type"].lengths),
        map=_decode_map(columns),
        lane_scene=np.repeat(scene, columns["lane_id"].lengths),
        crossing_scene=np.repeat(scene, columns["crossing_id"].lengths),
    )


def _concatenate(rows: Sequence[Sequence[NDArray[Any]]]) -> dict[str, Ragged]:
    """Concatenate each part over the ``S`` rows: a ragged array with one row per scenario."""
    lengths = np.array([list(map(len, row)) for row in rows])
    offsets = np.zeros((len(PARTS), len(rows) + 1), np.int64)
    np.cumsum(lengths.T, axis=1, out=offsets[:, 1:])
    columns: dict[str, Ragged] = {}
    for number, name in enumerate(PARTS):
        values = np.concatenate([row[number] for row in rows])
        columns[name] = Ragged(values, offsets[number])
    return columns


def _decode_tracks(columns: dict[str, Ragged]) -> Tracks:
    steps = int(columns["timestamps_ns"].lengths[0])
    names = _texts(_nested("track_id", columns))
    bits = columns["valid"].values.reshape(len(names), -1)
    valid = np.unpackbits(bits, axis=1, count=steps).view(np.bool_)
    stored = np.flatnonzero(valid)

    def states(compact: NDArray[np.float64]) -> NDArray[np.float64]:
        """Insert zeros at the invalid steps."""
        dense = np.zeros((valid.size, *compact.shape[1:]))
        dense[stored] = compact
        return dense.reshape(*valid.shape, *compact.shape[1:])

    velocity_unit = np.repeat(columns["velocity_unit"].values, columns["velocity"].lengths)
    size = np.full((len(names), 2), np.nan)
    has_sizes = np.repeat(columns["size"].lengths > 0, columns["object_type"].lengths)
    size[has_sizes] = columns["size"].values
    return Tracks(
        track_id=names,
        object_type=columns["object_type"].values,
        category=columns["category"].values,
        valid=valid,
        position=states(_metres("position", columns)),
        heading=states(columns["heading"].values * HEADING_UNIT),
        velocity=states(columns["velocity"].values * velocity_unit[:, None]),
        size=size,
    )


def _decode_map(columns: dict[str, Ragged]) -> LaneMap:
    elements: dict[str, Any] = {name: columns[name].values for name in (*IDS, *LANE_CODES)}
    elements["is_intersection"] = columns["is_intersection"].values != 0
    for name in ID_ROWS:
        elements[name] = _nested(name, columns)
    for name in POLYLINES:
        points = _metres(name, columns)
        height = columns[f"{name}_height"]
        if height.lengths.all():  # as in ScenarioBatch.of: heights only if all scenarios have them
            points = np.concatenate((points, height.values[:, None]), axis=1)
        elements[name] = Ragged.from_lengths(points, columns[f"{name}_lengths"].values)
    return LaneMap(**elements)


def _nested(name: str, columns: dict[str, Ragged]) -> Ragged:
    """Divide a part into rows, with the lengths from another part."""
    return Ragged.from_lengths(columns[name].values, columns[f"{name}_lengths"].values)


def _metres(name: str, columns: dict[str, Ragged]) -> NDArray[np.float64]:
    """Convert millimetres from each scenario's origin to metres in the city frame, ``[N, 2]``."""
    origin = np.stack((columns["origin_x"].values, columns["origin_y"].values), -1)
    metres: NDArray[np.float64] = columns[name].values / PER_METRE
    metres += np.repeat(origin, columns[name].lengths, axis=0)
    return metres


def _texts(letters: Ragged) -> NDArray[np.str_]:
    """Decode UTF-8 bytes, a row for each text."""
    ends = pa.py_buffer(letters.offsets.astype(np.int32))
    texts = pa.StringArray.from_buffers(len(letters), ends, pa.py_buffer(letters.values))
    return texts.to_numpy(zero_copy_only=False).astype(np.str_)
