"""Forecasts as messages: Autoware's ``PredictedObjects``, and Foxglove's ``SceneUpdate`` with the road.

Scenes are seen from above: all heights are 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba
from numpy.typing import NDArray

from trajpred.forecast import Forecast
from trajpred.lane_map import LaneMap
from trajpred.sources.recorded_drive import TrackedObjects, ros_messages
from trajpred.tracks import EGO_ID, OBJECT_TYPES, TYPICAL_SIZES, Tracks
from trajpred.viz.style import DARK, Role

#: Autoware's limit of poses in a path.
MAX_POSES = 100
#: Widths of lines in metres, and heights of boxes.
ROAD_WIDTH, HISTORY_WIDTH, MODE_WIDTH, TRUTH_WIDTH, BOX_HEIGHT = 0.12, 0.2, 0.3, 0.15, 1.5
#: Seconds of history that follow each road user.
HISTORY_S = 2.0
#: Seconds between the points of a mode.
POINT_S = 0.3
#: Foxglove's ``LinePrimitive`` types, and its deletion of all earlier entities.
STRIP, LINES, DELETE_ALL = 0, 2, 1
#: Nothing known by id.
EMPTY: Mapping[str, NDArray[np.float64]] = MappingProxyType({})


class SceneMessages:
    """Build messages in the frame ``frame``; lines are relative to a place nearby, since viewers use float32.

    Args:
        origin: ``[2]`` metres, that place.
    """

    def __init__(self, origin: NDArray[np.float64], frame: str = "map") -> None:
        self.origin, self.frame, self._new = np.round(origin), frame, ros_messages()

    def road(self, time_ns: int, lanes: LaneMap) -> Any:
        """Build the road, once: boundaries in the colours of their paint, centrelines, crossings, areas."""
        areas = [np.concatenate((area, area[:1])) for area in lanes.drivable_area]
        sides = [*lanes.left_boundary, *lanes.right_boundary]
        colors = [DARK.mark_color(mark) for mark in (*lanes.left_mark.tolist(), *lanes.right_mark.tolist())]
        groups: dict[str, list[NDArray[np.float64]]] = {color: [] for color in colors}
        for line, color in zip(sides, colors, strict=True):
            groups[color].append(line)
        groups[DARK.centerline_bare] = list(lanes.centerline)
        groups[DARK.crossing_bar] = [*lanes.crossing_edge1, *lanes.crossing_edge2]
        groups[DARK.ground_edge] = areas
        lines = [self._line(_segments(group), ROAD_WIDTH, color, LINES) for color, group in groups.items()]
        return self._update(time_ns, [self._entity(time_ns, "road", lines, [], {})])

    def update(
        self, time_ns: int, tracks: Tracks, forecast: Forecast | None, *,
        step_s: float, min_probability: float,
        size: Mapping[str, NDArray[np.float64]] = EMPTY, truth: Mapping[str, NDArray[np.float64]] = EMPTY,
        fallback: Collection[str] = (),
    ) -> Any:  # fmt: skip
        """Build all road users of one moment, the last step of ``tracks``: an entity for each.

        Its first line is the history, then come its modes, the most probable first, then the truth.

        Args:
            step_s: seconds between steps.
            min_probability: of drawn modes; the most probable one is always drawn.
            size: metres, length, width and height by id; typical ones otherwise.
            truth: future positions ``[F, 2]`` by id, where known.
            fallback: ids of those that ``forecast`` has from a fallback.
        """
        predicted = {} if forecast is None else {name: i for i, name in enumerate(forecast.track_id.tolist())}
        entities, recent, every = [], round(HISTORY_S / step_s) + 1, max(1, round(POINT_S / step_s))
        for row in np.flatnonzero(tracks.valid[:, -1]).tolist():
            name, kind = str(tracks.track_id[row]), int(tracks.object_type[row])
            role = DARK.role[Role.EGO if name == EGO_ID else Role.OTHER]
            past = tracks.position[row, -recent:][tracks.valid[row, -recent:]]
            lines, facts = [self._line(past, HISTORY_WIDTH, role)], {"type": OBJECT_TYPES[kind]}
            if forecast is not None and name in predicted:
                i = predicted[name]
                modes = likely_modes(forecast.probability[i], min_probability)
                path, probability = forecast.trajectory[i, modes], forecast.probability[i, modes]
                facts["predicted by"] = "fallback" if name in fallback else "model"
                facts["probability"] = ", ".join(f"{p:.2f}" for p in probability)
                look = zip(path[:, every - 1 :: every], DARK.mode_colors(probability), strict=True)
                lines += [self._line(mode, MODE_WIDTH, color) for mode, color in look]
            if name in truth:
                lines.append(self._line(truth[name], TRUTH_WIDTH, DARK.ink))
            typical = np.array([*TYPICAL_SIZES[kind], BOX_HEIGHT])
            given = size.get(name, typical)
            length = self._new.Vector3(*np.where(given > 0, given, typical).tolist())
            pose = self._pose(tracks.position[row, -1], float(tracks.heading[row, -1]))
            box = self._new.CubePrimitive(pose, length, self._new.Color(*to_rgba(role)))
            entities.append(self._entity(time_ns, name, lines, [box], facts))
        return self._update(time_ns, entities)

    def viewpoint(self, time_ns: int, position: NDArray[np.float64], heading: float = 0.0) -> Any:
        """Build the transform to ``base_link``, the frame that viewers follow by default."""
        new, pose = self._new, self._pose(position, heading)
        transform = new.Transform(new.Vector3(*position.tolist(), 0.0), pose.orientation)
        header = new.Header(new.Time(*divmod(time_ns, 10**9)), self.frame)
        return new.TFMessage([new.TransformStamped(header, "base_link", transform)])

    def _update(self, time_ns: int, entities: list[Any]) -> Any:
        """Replace all earlier entities of the topic."""
        deletion = self._new.SceneEntityDeletion(self._new.Time(*divmod(time_ns, 10**9)), DELETE_ALL, "")
        return self._new.SceneUpdate([deletion], entities)

    def _entity(
        self, time_ns: int, name: str, lines: list[Any], cubes: list[Any], facts: Mapping[str, str]
    ) -> Any:
        metadata = [self._new.KeyValuePair(key, value) for key, value in facts.items()]
        start = self._new.Time(*divmod(time_ns, 10**9)), self.frame, name, self._new.Duration(0, 0), False
        arrows = spheres = cylinders = triangles = texts = models = list[Any]()
        shapes = arrows, cubes, spheres, cylinders, lines, triangles, texts, models
        return self._new.SceneEntity(*start, metadata, *shapes)

    def _line(self, line: NDArray[np.float64], width: float, color: Any, kind: int = STRIP) -> Any:
        points = [self._new.Point(x, y, 0.0) for x, y in to_grid(line[:, :2] - self.origin).tolist()]
        one, several, indices = self._new.Color(*to_rgba(color)), list[Any](), np.zeros(0, np.uint32)
        pose = self._pose(self.origin)
        return self._new.LinePrimitive(kind, pose, width, False, points, one, several, indices)

    def _pose(self, position: NDArray[np.float64], heading: float = 0.0) -> Any:
        turn = self._new.Quaternion(0.0, 0.0, np.sin(heading / 2), np.cos(heading / 2))
        return self._new.Pose(self._new.Point(*position.tolist(), 0.0), turn)


def _segments(lines: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the line segments of polylines, ``[2 S, 2]`` start and end by turns."""
    pairs = [np.stack((line[:-1, :2], line[1:, :2]), axis=1) for line in lines if len(line)]
    return np.concatenate([np.zeros((0, 2, 2)), *pairs]).reshape(-1, 2)


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
