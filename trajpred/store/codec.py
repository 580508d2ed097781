"""Encode scenarios as rows of an Arrow record batch; :mod:`trajpred.store.decoder` is the inverse.

docs/concepts/store.md lists the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError, require
from trajpred.store.windows import recorded_frames

#: Version of the columns and their meaning.
COLUMNS_VERSION = 3
#: Units of a position per metre.
PER_METRE = 1000.0
#: Smallest ``velocity_unit`` in m/s.
FINEST_VELOCITY = 2.0**-14
#: Unit of a heading in radians: int16 spans one turn, so π wraps to -π.
HEADING_UNIT = np.pi / 2**15
#: Units of a full turn.
HEADINGS = 2**16
#: Maximum size of a row, a thousand times the usual one; readers reject larger claims.
MAX_BYTES = 2**26

LANE_LINES = ("centerline", "left_boundary", "right_boundary")
CROSSING_LINES = ("crossing_edge1", "crossing_edge2")
POLYLINES = (*LANE_LINES, *CROSSING_LINES, "drivable_area")
ID_ROWS = ("predecessors", "successors")
TRACK_CODES = ("object_type", "category")
LANE_CODES = ("lane_type", "left_mark", "right_mark")
LANE_IDS = ("lane_id", "left_neighbor", "right_neighbor")
OTHER_IDS = ("crossing_id", "drivable_area_id")


def _list(kind: pa.DataType, width: int = 1) -> pa.DataType:
    """Return the type of a list of numbers, or of tuples of ``width`` numbers; nothing may be null."""
    item = pa.field("item", kind, nullable=False)
    if width > 1:
        item = pa.field("item", pa.list_(item, width), nullable=False)
    return pa.list_(item)


def _fields() -> list[tuple[str, pa.DataType]]:
    """List the name and the type of each column, in their order in the file."""
    columns = [
        ("scenario_id", pa.string()),
        ("tracks", pa.int32()),
        ("lanes", pa.int32()),
        ("city", pa.string()),
        ("num_observed", pa.int32()),
        ("focal", pa.int32()),
        ("continued", pa.int32()),
        ("origin_x", pa.float64()),
        ("origin_y", pa.float64()),
        ("velocity_unit", pa.float64()),
        ("timestamps_ns", _list(pa.int64())),
        ("track_id", _list(pa.string())),
    ]
    columns += [(name, _list(pa.int8())) for name in TRACK_CODES]
    columns.append(("valid", _list(pa.uint8())))
    columns.append(("position", _list(pa.int32(), width=2)))
    columns.append(("heading", _list(pa.int16())))
    columns.append(("velocity", _list(pa.int16(), width=2)))
    columns += [(name, _list(pa.int64())) for name in (*LANE_IDS, *OTHER_IDS)]
    columns += [(name, _list(pa.int8())) for name in (*LANE_CODES, "is_intersection")]
    for name in POLYLINES:
        columns.append((name, _list(pa.int32(), width=2)))
        columns.append((f"{name}_lengths", _list(pa.int32())))
        columns.append((f"{name}_height", _list(pa.float32())))
    for name in ID_ROWS:
        columns.append((name, _list(pa.int64())))
        columns.append((f"{name}_lengths", _list(pa.int32())))
    return columns


SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _fields()])


def encode_batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Combine rows of :func:`encode_row` into one batch. Raises: DataError if there are too many."""
    arrays: list[pa.Array] = []
    for column in SCHEMA:
        values = [row[column.name] for row in rows]
        arrays.append(_array(values, column))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _array(values: list[Any], column: pa.Field) -> pa.Array:
    kind = column.type
    if not pa.types.is_list(kind):
        return pa.array(values, kind)
    ends = ends_within([len(value) for value in values], column.name)
    joined: NDArray[Any] = np.concatenate(values) if values else np.zeros(0, object)
    item = kind.value_type
    if pa.types.is_fixed_size_list(item):
        flat = pa.array(joined.ravel(), item.value_type)
        tuples = pa.FixedSizeListArray.from_arrays(flat, type=item)
        return pa.ListArray.from_arrays(ends, tuples, type=kind)
    return pa.ListArray.from_arrays(ends, pa.array(joined, item), type=kind)


def ends_within(lengths: Sequence[int], name: str) -> pa.Array:
    """Compute offsets ``[M + 1]`` of ``lengths`` ``[M]``. Raises: DataError if int32 overflows."""
    ends = np.cumsum([0, *lengths], dtype=np.int64)
    if ends[-1] > np.iinfo(np.int32).max:
        raise DataError("is too long for one shard; choose a smaller shard_size", field=name)
    return pa.array(ends, pa.int32())


def encode_row(scenario: Scenario, heights: bool) -> dict[str, Any]:
    """Encode one scenario; heights of the map are omitted unless ``heights``. Raises: DataError.

    Besides the columns, the row has ``frames``, see :func:`~trajpred.store.windows.recorded_frames`.
    """
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
        "frames": recorded_frames(scenario),
        "origin_x": origin[0],
        "origin_y": origin[1],
    }
    row |= _states(scenario, origin)
    row |= _lane_map(lane_map, origin, heights)
    size = sum(value.nbytes for value in row.values() if isinstance(value, np.ndarray))
    require(size <= MAX_BYTES, "scenario", f"takes {size} bytes, more than {MAX_BYTES}")
    return row


def _lane_map(lane_map: LaneMap, origin: NDArray[np.float64], heights: bool) -> dict[str, Any]:
    """Encode the map relative to ``origin``."""
    columns: dict[str, Any] = {}
    for name in (*LANE_IDS, *OTHER_IDS, *LANE_CODES):
        columns[name] = getattr(lane_map, name)
    columns["is_intersection"] = lane_map.is_intersection.astype(np.int8)
    for name in POLYLINES:
        lines: Ragged = getattr(lane_map, name)
        height = np.zeros(0)
        if heights and lines.values.shape[1] == 3:
            height = lines.values[:, 2]
        columns[name] = _to_mm(lines.values[:, :2], origin, name)
        columns[f"{name}_lengths"] = lines.lengths
        columns[f"{name}_height"] = _to_float32(height, name)
    for name in ID_ROWS:
        ids: Ragged = getattr(lane_map, name)
        columns[name] = ids.values
        columns[f"{name}_lengths"] = ids.lengths
    return columns


def _states(scenario: Scenario, origin: NDArray[np.float64]) -> dict[str, Any]:
    """Encode the tracks; only valid states are stored."""
    tracks = scenario.tracks
    valid = tracks.valid
    velocity = tracks.velocity[valid]
    # The smallest power of two, m/s, in units of which all velocities fit into int16.
    largest = np.abs(velocity).max(initial=0.0) / np.iinfo(np.int16).max
    unit = float(2.0 ** np.ceil(np.log2(max(largest, FINEST_VELOCITY))))
    turn = np.remainder(tracks.heading[valid], 2 * np.pi)
    heading = np.round(turn / HEADING_UNIT).astype(np.int32) % HEADINGS
    # Exactly 0 means unknown: a known heading within half a unit of it is one unit.
    heading[(heading == 0) & (turn != 0)] = 1
    return {
        "track_id": tracks.track_id,
        "object_type": tracks.object_type,
        "category": tracks.category,
        "valid": np.packbits(valid, axis=1).ravel(),
        "position": _to_mm(tracks.position[valid], origin, "position"),
        "heading": heading.astype(np.int16),  # wraps around
        "velocity_unit": unit,
        "velocity": np.round(velocity / unit).astype(np.int16),
    }


def _to_mm(xy: NDArray[np.float64], origin: NDArray[np.float64], name: str) -> NDArray[np.int32]:
    mm = np.round((xy - origin) * PER_METRE)
    if len(mm) and np.abs(mm).max() > np.iinfo(np.int32).max:
        raise DataError("lies more than 2,147 km from the focal track", field=name)
    return mm.astype(np.int32)


def _to_float32(values: NDArray[np.float64], name: str) -> NDArray[np.float32]:
    if len(values) and np.abs(values).max() > np.finfo(np.float32).max:
        raise DataError("is too large for float32", field=name)
    return values.astype(np.float32)
