"""Scenario <-> one row of an Arrow record batch.

Positions are whole millimetres (int32) from the row's float64 ``origin``; headings and velocities are
float32; states are kept for valid steps only. README.md in this folder lists the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajpred.errors import DataError
from trajpred.lane_map import LaneMap, Ragged
from trajpred.scenario import Scenario, Tracks

#: Raised whenever the columns or their meaning change.
VERSION = 1
_MM = 1000.0

_POLYLINES = (
    "centerline",
    "left_boundary",
    "right_boundary",
    "crossing_edge1",
    "crossing_edge2",
    "drivable_area",
)
_ID_ROWS = ("predecessors", "successors")
_TRACK_CODES = ("object_type", "category")
_LANE_CODES = ("lane_type", "left_mark", "right_mark")
_LANE_IDS = ("lane_id", "left_neighbor", "right_neighbor", "crossing_id", "drivable_area_id")


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False))


def _fields() -> list[tuple[str, pa.DataType]]:
    columns = [("scenario_id", pa.string()), ("city", pa.string()), ("focal_id", pa.string())]
    columns += [
        ("num_observed", pa.int32()),
        ("timestamps_ns", _list(pa.int64())),
        ("origin", _list(pa.float64())),
    ]
    columns += [("track_id", _list(pa.string()))] + [(name, _list(pa.int8())) for name in _TRACK_CODES]
    columns += [("valid", _list(pa.bool_())), ("position", _list(pa.int32()))]
    columns += [("heading", _list(pa.float32())), ("velocity", _list(pa.float32()))]
    columns += [(name, _list(pa.int64())) for name in _LANE_IDS]
    columns += [(name, _list(pa.int8())) for name in _LANE_CODES] + [("is_intersection", _list(pa.bool_()))]
    for name in _POLYLINES:
        columns += [(name, _list(pa.int32())), (f"{name}_lengths", _list(pa.int32()))]
        columns += [(f"{name}_height", _list(pa.float32()))]
    for name in _ID_ROWS:
        columns += [(name, _list(pa.int64())), (f"{name}_lengths", _list(pa.int32()))]
    return columns


SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _fields()])


def encode_batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """The rows made by :func:`encode_row` as one batch. Raises: DataError if they are too many."""
    arrays = [_array([row[column.name] for row in rows], column) for column in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _array(values: list[Any], column: pa.Field) -> pa.Array:
    kind = column.type
    if not pa.types.is_list(kind):
        return pa.array(values, kind)
    ends = np.cumsum([0, *(len(value) for value in values)], dtype=np.int64)
    if ends[-1] > np.iinfo(np.int32).max:
        raise DataError("is too long for one shard; choose a smaller shard_size", field=column.name)
    joined: NDArray[Any] = np.concatenate(values) if values else np.zeros(0, object)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(joined, kind.value_type), type=kind)


def encode_row(scenario: Scenario, heights: bool) -> dict[str, Any]:
    """The columns of one scenario. Heights of the map are dropped unless ``heights``. Raises: DataError."""
    tracks, lane_map = scenario.tracks, scenario.map
    # Whole metres near the focal agent: the rounding to a millimetre is then exact in city coordinates too.
    at = np.flatnonzero(tracks.valid[scenario.focal, : scenario.num_observed])[-1]
    origin = np.floor(tracks.position[scenario.focal, at])
    row: dict[str, Any] = {name: getattr(scenario, name) for name in ("scenario_id", "city", "focal_id")}
    row |= {"num_observed": scenario.num_observed, "timestamps_ns": scenario.timestamps_ns, "origin": origin}
    row |= {"track_id": tracks.track_id} | {name: getattr(tracks, name) for name in _TRACK_CODES}
    row |= {
        "valid": tracks.valid.ravel(),
        "position": _to_mm(tracks.position[tracks.valid], origin, "position"),
    }
    row |= {name: _to_float32(getattr(tracks, name)[tracks.valid], name) for name in ("heading", "velocity")}
    row |= {name: getattr(lane_map, name) for name in (*_LANE_IDS, *_LANE_CODES, "is_intersection")}
    for name in _POLYLINES:
        lines: Ragged = getattr(lane_map, name)
        keep = heights and lines.values.shape[1] == 3
        row |= {name: _to_mm(lines.values[:, :2], origin, name), f"{name}_lengths": lines.lengths}
        row[f"{name}_height"] = _to_float32(lines.values[:, 2] if keep else np.zeros(0), name)
    for name in _ID_ROWS:
        ids: Ragged = getattr(lane_map, name)
        row |= {name: ids.values, f"{name}_lengths": ids.lengths}
    return row


def _to_mm(xy: NDArray[np.float64], origin: NDArray[np.float64], name: str) -> NDArray[np.int32]:
    mm = np.round((xy - origin) * _MM)
    if len(mm) and np.abs(mm).max() > np.iinfo(np.int32).max:
        raise DataError("lies more than 2,147 km from the focal track", field=name)
    return mm.astype(np.int32).ravel()


def _to_float32(values: NDArray[np.float64], name: str) -> NDArray[np.float32]:
    if len(values) and np.abs(values).max() > np.finfo(np.float32).max:
        raise DataError("is too large for float32", field=name)
    return values.astype(np.float32).ravel()


def decode_row(batch: pa.RecordBatch, index: int) -> Scenario:
    """The scenario in row ``index``."""
    values = {name: _value(batch.column(i), index) for i, name in enumerate(batch.schema.names)}
    origin = values["origin"]

    def polylines(name: str) -> Ragged:
        points = _from_mm(values[name], origin)
        height = values[f"{name}_height"]
        columns = [points, height[:, None].astype(np.float64)] if len(height) else [points]
        return Ragged.from_lengths(np.concatenate(columns, axis=1), values[f"{name}_lengths"])

    A, T = len(values["track_id"]), len(values["timestamps_ns"])
    valid = values["valid"].reshape(A, T)

    def states(kept: NDArray[Any]) -> NDArray[np.float64]:
        dense = np.zeros((A, T, *kept.shape[1:]))
        dense[valid] = kept
        return dense

    tracks = Tracks(
        track_id=values["track_id"],
        valid=valid,
        position=states(_from_mm(values["position"], origin)),
        heading=states(values["heading"]),
        velocity=states(values["velocity"].reshape(-1, 2)),
        **{name: values[name] for name in _TRACK_CODES},
    )
    elements: dict[str, Any] = {name: values[name] for name in (*_LANE_IDS, *_LANE_CODES, "is_intersection")}
    elements |= {name: polylines(name) for name in _POLYLINES}
    elements |= {name: Ragged.from_lengths(values[name], values[f"{name}_lengths"]) for name in _ID_ROWS}
    own = {
        name: values[name] for name in ("scenario_id", "city", "focal_id", "num_observed", "timestamps_ns")
    }
    return Scenario(**own, tracks=tracks, map=LaneMap(**elements))


def _value(column: pa.Array, index: int) -> Any:
    if not pa.types.is_list(column.type):
        return column[index].as_py()
    start, stop = column.offsets[index].as_py(), column.offsets[index + 1].as_py()
    values = column.values.slice(start, stop - start)
    if pa.types.is_string(values.type):
        return np.array(values.to_pylist(), dtype=np.str_)
    return values.to_numpy(zero_copy_only=False)


def _from_mm(mm: NDArray[np.int32], origin: NDArray[np.float64]) -> NDArray[np.float64]:
    return origin + mm.reshape(-1, 2) / _MM
