"""Read Argoverse 2's Sensor logs: annotated boxes at 10 Hz and ego poses, as tracks in the city frame.

A lost sweep, evident from its neighbours' times, counts as a frame without any track.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import feather

from trajpred.data.checks import as_names
from trajpred.data.geometry import direction
from trajpred.data.time import MAX_LOST, frame_steps, require_nanoseconds, stamps_of_steps
from trajpred.data.tracks import EGO_ID, OBJECT_TYPES
from trajpred.errors import DataError, require
from trajpred.sources.reading import (
    finite,
    readable,
    require_columns,
    require_values,
    sizes_of,
    text_codes,
    valid_states,
)

_ROTATION = ("qw", "qx", "qy", "qz")
_TRANSLATION = ("tx_m", "ty_m", "tz_m")
_SIZE = ("length_m", "width_m")
#: Frames on each side in the fit of a velocity.
_AROUND = 2
#: Frames in the fit of a velocity at either end of a track.
_END = 5
#: Object type by box category; others are ``unknown``.
_OBJECT_TYPE = {
    **dict.fromkeys(("REGULAR_VEHICLE", "LARGE_VEHICLE", "BOX_TRUCK", "TRUCK", "TRUCK_CAB"), "vehicle"),
    **dict.fromkeys(("VEHICULAR_TRAILER", "RAILED_VEHICLE"), "vehicle"),
    **dict.fromkeys(("BUS", "SCHOOL_BUS", "ARTICULATED_BUS"), "bus"),
    **dict.fromkeys(("PEDESTRIAN", "STROLLER", "WHEELCHAIR", "OFFICIAL_SIGNALER"), "pedestrian"),
    **dict.fromkeys(("BICYCLIST", "WHEELED_RIDER"), "cyclist"),
    "MOTORCYCLIST": "motorcyclist",
    **dict.fromkeys(("BICYCLE", "MOTORCYCLE", "WHEELED_DEVICE"), "riderless_bicycle"),
    **dict.fromkeys(("CONSTRUCTION_CONE", "CONSTRUCTION_BARREL"), "construction"),
    **dict.fromkeys(("BOLLARD", "SIGN", "STOP_SIGN", "MOBILE_PEDESTRIAN_CROSSING_SIGN"), "static"),
    **dict.fromkeys(("MESSAGE_BOARD_TRAILER", "TRAFFIC_LIGHT_TRAILER"), "static"),
}


@dataclass(frozen=True)
class SensorLog:
    """``A`` tracks over the ``N`` steps of a log, the ego vehicle last; city frame.

    Attributes:
        time_ns: ``[N]``, regular steps.
        recorded: ``[N]``, False for lost frames, at which no track is valid.
        trailer: ``[A]``, the tracks that are never scored.
        size: ``[A, 2]`` metres, length and width; NaN for the ego vehicle.
    """

    time_ns: NDArray[np.int64]
    recorded: NDArray[np.bool_]
    track_id: NDArray[np.str_]
    object_type: NDArray[np.int8]
    trailer: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    position: NDArray[np.float64]
    heading: NDArray[np.float64]
    size: NDArray[np.float64]


def read_log(annotations: Path, poses: Path) -> SensorLog:
    """Read the two feather files of a log. Raises: DataError naming the file and the field at fault."""
    with readable(poses, "feather file"):
        ego = _read(poses, ("timestamp_ns", *_ROTATION, *_TRANSLATION))
        ego_ns = _times(ego)
        rotation, translation = _poses(ego)
    with readable(annotations, "feather file"):
        columns = ("timestamp_ns", "track_uuid", "category", *_SIZE, *_ROTATION, *_TRANSLATION)
        table = _read(annotations, columns)
        table = table.filter(pc.not_equal(table["category"], "EGO_VEHICLE"))
        frame_ns, frame = np.unique(_times(table), return_inverse=True)
        steps = steps_of_log(frame_ns)
        time = stamps_of_steps(frame_ns, steps)
        step = steps[frame]
        recorded = np.isin(np.arange(len(time)), steps)
        row, names = text_codes(table, "track_uuid")
        kind, kinds = text_codes(table, "category")
        box_rotation, centre = _poses(table)
        size = sizes_of(np.stack([finite(table, name) for name in _SIZE], -1), row, len(names) + 1)
        valid = valid_states(row, step, len(names) + 1, len(time), "timestamp_ns")
        valid[-1] = recorded
    # The ego pose of each step.
    by_time = np.argsort(ego_ns, kind="stable")
    following = np.searchsorted(ego_ns[by_time], time).clip(max=len(by_time) - 1)
    pose = by_time[following]
    if not np.array_equal(ego_ns[pose[steps]], frame_ns):
        problem = "has no pose at the time of an annotated frame, in the nanoseconds of the annotations"
        raise DataError(problem, file=poses, field="timestamp_ns")
    position = np.zeros((*valid.shape, 2))
    heading = np.zeros(valid.shape)
    # Boxes are in the frame of the ego vehicle.
    of_box = pose[step]
    rotated_centre = (rotation[of_box] @ centre[..., None])[:, :2, 0]
    rotated_ahead = (rotation[of_box] @ box_rotation[..., :1])[:, :2, 0]
    position[row, step] = rotated_centre + translation[of_box, :2]
    heading[row, step] = direction(rotated_ahead)
    position[-1, recorded] = translation[pose[steps], :2]
    heading[-1, recorded] = direction(rotation[pose[steps], :2, 0])
    # A track has the category of its first box; the ego vehicle, the last track, has none.
    categories = [*kinds, "REGULAR_VEHICLE"]
    category = np.full(len(valid), len(kinds))
    category[row[::-1]] = kind[::-1]
    types = [OBJECT_TYPES.index(_OBJECT_TYPE.get(name, "unknown")) for name in categories]
    is_trailer = ["TRAILER" in name for name in categories]
    return SensorLog(
        time_ns=time,
        recorded=recorded,
        track_id=as_names([*names, EGO_ID], "track_uuid"),
        object_type=np.array(types, np.int8)[category],
        trailer=np.array(is_trailer)[category],
        valid=valid,
        position=position,
        heading=heading,
        size=size,
    )


def steps_of_log(frame_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the steps ``[N]`` of the frames at the distinct times ``frame_ns``; lost sweeps leave gaps.

    Raises: DataError if the times are not nanoseconds or have too long a gap for a log.
    """
    require_nanoseconds(int(frame_ns[0]), int(frame_ns[-1]), len(frame_ns), "timestamp_ns")
    steps = frame_steps(frame_ns, len(frame_ns))
    lost = int(steps[-1]) + 1 - len(steps)
    pause = f"{lost} frames are missing between others: divide the log at its pauses"
    require(lost <= MAX_LOST, "timestamp_ns", pause)
    return steps


def _read(path: Path, columns: tuple[str, ...]) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        schema = pa.ipc.open_file(file).schema
    require_columns(schema.names, columns)
    table = feather.read_table(path, columns=list(columns))
    require_values(table, columns)
    return table


def _times(table: pa.Table) -> NDArray[np.int64]:
    """Return the ``timestamp_ns`` of the rows ``[N]``. Raises: DataError unless they are int64 or float64."""
    dtype = table.schema.field("timestamp_ns").type
    precise = pa.types.is_integer(dtype) or pa.types.is_float64(dtype)
    require(precise, "timestamp_ns", f"must be nanoseconds as int64, has type {dtype}")
    return np.round(finite(table, "timestamp_ns")).astype(np.int64)


def _poses(table: pa.Table) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rotations ``[N, 3, 3]`` and translations ``[N, 3]`` of poses; the x axes are column 0."""
    quaternion = np.stack([finite(table, name) for name in _ROTATION])
    translation = np.stack([finite(table, name) for name in _TRANSLATION], -1)
    length = np.sqrt(sum(values * values for values in quaternion))
    require(bool((np.abs(length - 1) < 0.01).all()), "qw", "and qx, qy, qz must be unit quaternions")
    w, x, y, z = quaternion / length
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0), translation


def slopes_of(log: SensorLog, end: int) -> NDArray[np.float64]:
    """Estimate the velocity at each of the first ``end`` frames ``[A, end, 2]`` from these frames alone.

    The velocity is the slope of a line through up to two frames on each side; at either end of a track, of a
    quadratic through five frames.
    """
    valid = log.valid[:, :end]
    position = log.position[:, :end]
    steps = np.arange(end)
    first = valid.argmax(axis=1)[:, None]
    last = end - 1 - valid[:, ::-1].argmax(axis=1)[:, None]
    # Number of frames on each side of a frame in the track, [A, end, 1]: none at its ends.
    side = np.minimum(np.minimum(steps - first, last - steps), _AROUND)[..., None]

    # The frames of each fit, [A, end, 9], of which some are used.
    offset = np.arange(1 - _END, _END)
    neighbor = steps[:, None] + offset
    frame = neighbor.clip(0, end - 1)
    is_last = (steps == last)[..., None]
    one_sided = np.where(is_last, offset <= 0, offset >= 0)
    is_used = np.where(side > 0, np.abs(offset) <= side, one_sided)
    is_used &= valid[:, frame] & (neighbor == frame)

    # Least squares with the terms 1, t and, for quadratics, t²; unused frames are rows of 0.
    time = (log.time_ns[frame] - log.time_ns[:end, None]) / 1e9
    is_quadratic = (side == 0) & (is_used.sum(axis=2, keepdims=True) > 2)
    square = time**2 * is_quadratic
    terms = np.stack(np.broadcast_arrays(1.0, time, square), -1) * is_used[..., None]
    displacement = position[:, frame] - position[:, :, None]
    displacement = np.where(is_used[..., None], displacement, 0.0)
    factors = np.linalg.pinv(terms) @ displacement
    return np.where(valid[..., None], factors[..., 1, :], 0.0)
