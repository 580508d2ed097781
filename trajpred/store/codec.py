"""Encode scenarios as rows of an Arrow record batch; :mod:`trajpred.store.decoder` is the inverse.

docs/concepts/store.md lists the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.lane_map import Ragged
from trajpred.scenario import Scenario
from trajpred.store.windows import recorded_frames

#: Version of the columns and their meaning; units of a position per metre; smallest ``velocity_unit``, m/s.
COLUMNS_VERSION, PER_METRE, FINEST_VELOCITY = 3, 1000.0, 2.0**-14
#: Unit of a heading in radians: int16 spans one turn, so π wraps to -π.
HEADING_UNIT = np.pi / 2**15
#: Maximum size of a row, a thousand times the usual one; readers reject larger claims.
MAX_BYTES = 2**26

LANE_LINES = ("centerline", "left_boundary", "right_boundary")
CROSSING_LINES = ("crossing_edge1", "crossing_edge2")
POLYLINES = (*LANE_LINES, *CROSSING_LINES, "drivable_area")
ID_ROWS = ("predecessors", "successors")
TRACK_CODES = ("object_type", "category")
LANE_CODES = ("lane_type", "left_mark", "right_mark", "turn_direction", "has_traffic_control")
LANE_IDS = ("lane_id", "left_neighbor", "right_neighbor")
OTHER_IDS = ("crossing_id", "drivable_area_id")


def _list(kind: pa.DataType, width: int = 1) -> pa.DataType:
    item = pa.field("item", kind, nullable=False)
    return pa.list_(item if width == 1 else pa.field("item", pa.list_(item, width), nullable=False))


def _fields() -> list[tuple[str, pa.DataType]]:
    columns = [("scenario_id", pa.string()), ("tracks", pa.int32()), ("lanes", pa.int32())]
    columns += [("city", pa.string()), ("num_observed", pa.int32()), ("focal", pa.int32())]
    columns += [("continued", pa.int32())]
    columns += [(name, pa.float64()) for name in ("origin_x", "origin_y", "velocity_unit")]
    columns += [("timestamps_ns", _list(pa.int64())), ("track_id", _list(pa.string()))]
    columns += [(name, _list(pa.int8())) for name in TRACK_CODES]
    columns += [("valid", _list(pa.uint8())), ("position", _list(pa.int32(), 2))]
    columns += [("heading", _list(pa.int16())), ("velocity", _list(pa.int16(), 2))]
    columns += [(name, _list(pa.int64())) for name in (*LANE_IDS, *OTHER_IDS)]
    columns += [(name, _list(pa.int8())) for name in (*LANE_CODES, "is_intersection")]
    for name in POLYLINES:
        columns += [(name, _list(pa.int32(), 2)), (f"{name}_lengths", _list(pa.int32()))]
        columns += [(f"{name}_height", _list(pa.float32()))]
    for name in ID_ROWS:
        columns += [(name, _list(pa.int64())), (f"{name}_lengths", _list(pa.int32()))]
    return columns


SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _fields()])


def encode_batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Combine rows of :func:`encode_row` into one batch. Raises: DataError if there are too many."""
    arrays = [_array([row[column.name] for row in rows], column) for column in SCHEMA]
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
        return pa.ListArray.from_arrays(ends, pa.FixedSizeListArray.from_arrays(flat, type=item), type=kind)
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
    tracks, lane_map, observed = scenario.tracks, scenario.map, scenario.num_observed
    # A whole number of metres, so that rounding to millimetres is exact in city coordinates too.
    at = np.flatnonzero(tracks.valid[scenario.focal, :observed])[-1]
    origin = np.floor(tracks.position[scenario.focal, at])
    row: dict[str, Any] = {"scenario_id": scenario.scenario_id, "city": scenario.city}
    row |= {"tracks": int(tracks.valid[:, :observed].any(1).sum())}
    row |= {"lanes": len(lane_map) + len(lane_map.crossing_id)}
    row |= {"num_observed": observed, "focal": scenario.focal, "timestamps_ns": scenario.timestamps_ns}
    row["continued"] = scenario.continued
    row |= {"origin_x": origin[0], "origin_y": origin[1]} | _states(scenario, origin)
    row |= {name: getattr(lane_map, name) for name in (*LANE_IDS, *OTHER_IDS, *LANE_CODES)}
    row["frames"] = recorded_frames(scenario)
    row["is_intersection"] = lane_map.is_intersection.astype(np.int8)
    for name in POLYLINES:
        lines: Ragged = getattr(lane_map, name)
        keep = heights and lines.values.shape[1] == 3
        row |= {name: _to_mm(lines.values[:, :2], origin, name), f"{name}_lengths": lines.lengths}
        row[f"{name}_height"] = _to_float32(lines.values[:, 2] if keep else np.zeros(0), name)
    for name in ID_ROWS:
        ids: Ragged = getattr(lane_map, name)
        row |= {name: ids.values, f"{name}_lengths": ids.lengths}
    size = sum(value.nbytes for value in row.values() if isinstance(value, np.ndarray))
    require(size <= MAX_BYTES, "scenario", f"takes {size} bytes, more than {MAX_BYTES}")
    return row


def _states(scenario: Scenario, origin: NDArray[np.float64]) -> dict[str, Any]:
    """Encode the tracks; only valid states are stored."""
    tracks, kept = scenario.tracks, scenario.tracks.valid
    velocity = tracks.velocity[kept]
    # The smallest power of two, m/s, in units of which all velocities fit into int16.
    largest = np.abs(velocity).max(initial=0.0) / np.iinfo(np.int16).max
    unit = float(2.0 ** np.ceil(np.log2(max(largest, FINEST_VELOCITY))))
    heading = np.round(np.remainder(tracks.heading[kept], 2 * np.pi) / HEADING_UNIT)
    return {
        "track_id": tracks.track_id,
        **{name: getattr(tracks, name) for name in TRACK_CODES},
        "valid": np.packbits(kept, axis=1).ravel(),
        "position": _to_mm(tracks.position[kept], origin, "position"),
        "heading": heading.astype(np.int32).astype(np.int16),  # the second cast wraps around
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
