"""Forecasts as Autoware's ``PredictedObjects``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trajpred.forecast import Forecast
from trajpred.sources.recorded_drive import TrackedObjects, ros_messages

#: Autoware's limit of poses in a path.
MAX_POSES = 100


def predicted_objects(
    tracked: TrackedObjects, forecast: Forecast, step_s: float, min_probability: float
) -> Any:
    """Build the message that predicts the tracked objects of another; one path or more for each.

    Those without futures, or whose pose is not finite, are omitted. Header, id, classification, shape,
    existence and initial kinematics are those of the tracked object. Paths start at its pose, the most
    probable first; their confidences are probabilities of the forecast. Modes below ``min_probability`` are
    omitted, except an object's most probable one; the others keep theirs.

    Args:
        step_s: seconds between the forecast's steps; every second one is written if :data:`MAX_POSES` demand
            it, and so on.
    """
    new, predicted = ros_messages(), []
    rows = forecast.rows(np.array(tracked.track_id, np.str_))
    for one, row in zip(tracked.message.objects, rows.tolist(), strict=True):
        pose, twist, acceleration = (
            getattr(one.kinematics, f"{name}_with_covariance") for name in ("pose", "twist", "acceleration")
        )
        place, turn = pose.pose.position, pose.pose.orientation
        if row < 0 or not np.isfinite([place.x, place.y, place.z, turn.x, turn.y, turn.z, turn.w]).all():
            continue
        paths = _paths(pose.pose, forecast, row, step_s, min_probability)
        motion = new.PredictedObjectKinematics(pose, twist, acceleration, paths)
        same = one.object_id, one.existence_probability, one.classification
        predicted.append(new.PredictedObject(*same, motion, one.shape))
    return new.PredictedObjects(tracked.message.header, predicted)


def _paths(start: Any, forecast: Forecast, row: int, step_s: float, min_probability: float) -> list[Any]:
    """Return the paths of the forecast's ``row``, from the pose ``start``."""
    new, every = ros_messages(), math.ceil(forecast.trajectory.shape[2] / (MAX_POSES - 1))
    time_step = new.Duration(*divmod(round(every * step_s * 1e9), 10**9))
    half = forecast.heading[row, :, every - 1 :: every, None] / 2
    path = to_grid(forecast.trajectory[row, :, every - 1 :: every])
    states = np.concatenate((path, to_grid(np.sin(half), 16), to_grid(np.cos(half), 16)), axis=-1)
    z, paths = start.position.z, []
    for mode in likely_modes(forecast.probability[row], min_probability):
        poses = [
            new.Pose(new.Point(x, y, z), new.Quaternion(0.0, 0.0, sin, cos))
            for x, y, sin, cos in states[mode].tolist()
        ]
        confidence = float(forecast.probability[row, mode])
        paths.append(new.PredictedPath([start, *poses], time_step, confidence))
    return paths


def to_grid(values: np.ndarray, bits: int = 10) -> np.ndarray:
    """Round to 2^-``bits``, by default 1 mm: files are compressed, and short numbers to a quarter."""
    return np.asarray(np.round(values * 2**bits) / 2**bits)


def likely_modes(probability: np.ndarray, min_probability: float) -> list[int]:
    """Return the modes ``[K]`` of at least ``min_probability``, or the most probable one, in that order."""
    order = np.argsort(-probability, kind="stable")
    count = max(1, int((probability >= min_probability).sum()))
    modes: list[int] = order[:count].tolist()
    return modes
