"""Road, road users and their futures as Foxglove's ``SceneUpdate``, seen from above: all heights are 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import to_rgba
from numpy.typing import NDArray

from trajpred.forecast import Forecast
from trajpred.geometry import unit_vector
from trajpred.lane_map import LaneMap
from trajpred.scenario import EGO_ID, OBJECT_TYPES, TYPICAL_SIZES, Tracks
from trajpred.viz.style import DARK, Role
from trajpred.viz.viewer.predicted_objects import likely_modes, to_grid

if TYPE_CHECKING:
    from rosbags.typesys.store import Typestore

#: Widths of lines in metres, and heights of boxes.
ROAD_WIDTH, HISTORY_WIDTH, MODE_WIDTH, TRUTH_WIDTH, BOX_HEIGHT = 0.12, 0.2, 0.3, 0.15, 1.5
#: Seconds of history that follow each road user.
HISTORY_S = 2.0
#: Seconds between the points of a mode.
POINT_S = 0.3
#: Foxglove's ``LinePrimitive`` types, and its deletion of all earlier entities.
STRIP, LINES, DELETE_ALL = 0, 2, 1


class SceneMessages:
    """Build messages in the frame ``frame``; lines are relative to a place nearby, since viewers use float32.

    Args:
        types: with the messages of :func:`~trajpred.sources.ros_types.ros_types`.
        origin: ``[2]`` metres, that place.
    """

    def __init__(self, types: Typestore, origin: NDArray[np.float64], frame: str = "map") -> None:
        self.origin, self.frame = np.round(origin), frame
        self._types = types.types
        self._white = self._color("#FFFFFF")

    def road(self, time_ns: int, lanes: LaneMap) -> Any:
        """Build the road, once: boundaries in the colours of their paint, centrelines, crossings, areas."""
        groups: dict[str, list[NDArray[np.float64]]] = {}
        for side, marks in ((lanes.left_boundary, lanes.left_mark), (lanes.right_boundary, lanes.right_mark)):
            for line, mark in zip(side, marks.tolist(), strict=True):
                groups.setdefault(DARK.mark_color(mark), []).append(line)
        groups.setdefault(DARK.centerline_bare, []).extend(lanes.centerline)
        groups.setdefault(DARK.crossing_bar, []).extend([*lanes.crossing_edge1, *lanes.crossing_edge2])
        areas = [np.concatenate((area, area[:1])) for area in lanes.drivable_area]
        groups.setdefault(DARK.ground_edge, []).extend(areas)
        lines = [
            self._line(_segments(group), ROAD_WIDTH, self._color(color), LINES)
            for color, group in groups.items()
        ]
        return self._update(time_ns, [self._entity(time_ns, "road", lines)])

    def update(
        self,
        time_ns: int,
        tracks: Tracks,
        forecast: Forecast | None = None,
        *,
        step_s: float,
        size: Mapping[str, NDArray[np.float64]] | None = None,
        fallback: Iterable[str] = (),
        truth: Mapping[str, NDArray[np.float64]] | None = None,
        min_probability: float = 0.0,
    ) -> Any:
        """Build all road users of one moment, the last step of ``tracks``: an entity for each.

        Its first line is the history, then come its modes, the most probable first, then the truth.

        Args:
            step_s: seconds between steps.
            size: metres, length, width and height by id; typical ones otherwise.
            fallback: ids of those that ``forecast`` has from a fallback.
            truth: future positions ``[F, 2]`` by id, where known.
            min_probability: of drawn modes; the most probable one is always drawn.
        """
        size, truth, by_rule = size or {}, truth or {}, set(fallback)
        predicted = {} if forecast is None else {name: i for i, name in enumerate(forecast.track_id.tolist())}
        entities, recent, every = [], round(HISTORY_S / step_s) + 1, max(1, round(POINT_S / step_s))
        for row in np.flatnonzero(tracks.valid[:, -1]).tolist():
            name, kind = str(tracks.track_id[row]), int(tracks.object_type[row])
            role = DARK.role[Role.EGO if name == EGO_ID else Role.OTHER]
            past = tracks.position[row, -recent:][tracks.valid[row, -recent:]]
            lines = [self._line(past, HISTORY_WIDTH, self._color(role))]
            facts = {"type": OBJECT_TYPES[kind]}
            if forecast is not None and name in predicted:
                i = predicted[name]
                facts["predicted by"] = "fallback" if name in by_rule else "model"
                modes = likely_modes(forecast.probability[i], min_probability)
                facts["probability"] = ", ".join(f"{p:.2f}" for p in forecast.probability[i, modes])
                colors = DARK.mode_colors(forecast.probability[i, modes])
                ends = forecast.trajectory[i, :, every - 1 :: every]
                for mode, color in zip(modes, colors, strict=True):
                    lines.append(self._line(ends[mode], MODE_WIDTH, self._color(color)))
            if name in truth:
                lines.append(self._line(truth[name], TRUTH_WIDTH, self._white))
            place, heading = tracks.position[row, -1], float(tracks.heading[row, -1])
            box = self._box(place, heading, size.get(name, np.zeros(3)), kind, role)
            entities.append(self._entity(time_ns, name, lines, [box], facts))
        return self._update(time_ns, entities)

    def viewpoint(self, time_ns: int, position: NDArray[np.float64], heading: float = 0.0) -> Any:
        """Build the transform to ``base_link``, the frame that viewers follow by default."""
        new, pose = self._types, self._pose(position, heading)
        place = new["geometry_msgs/msg/Vector3"](pose.position.x, pose.position.y, 0.0)
        header = new["std_msgs/msg/Header"](self._time(time_ns), self.frame)
        transform = new["geometry_msgs/msg/Transform"](place, pose.orientation)
        stamped = new["geometry_msgs/msg/TransformStamped"](header, "base_link", transform)
        return new["tf2_msgs/msg/TFMessage"]([stamped])

    def _update(self, time_ns: int, entities: list[Any]) -> Any:
        deletion = self._types["foxglove_msgs/msg/SceneEntityDeletion"](self._time(time_ns), DELETE_ALL, "")
        return self._types["foxglove_msgs/msg/SceneUpdate"]([deletion], entities)

    def _entity(
        self,
        time_ns: int,
        name: str,
        lines: list[Any],
        cubes: list[Any] | None = None,
        facts: Mapping[str, str] | None = None,
    ) -> Any:
        pair = self._types["foxglove_msgs/msg/KeyValuePair"]
        metadata = [pair(key, value) for key, value in (facts or {}).items()]
        forever = self._types["builtin_interfaces/msg/Duration"](0, 0)
        start = (self._time(time_ns), self.frame, name, forever, False, metadata)
        return self._types["foxglove_msgs/msg/SceneEntity"](
            *start, cubes=cubes or [], lines=lines,
            arrows=[], spheres=[], cylinders=[], triangles=[], texts=[], models=[],
        )  # fmt: skip

    def _line(self, line: NDArray[np.float64], width: float, color: Any, kind: int = STRIP) -> Any:
        point = self._types["geometry_msgs/msg/Point"]
        points = [point(x, y, 0.0) for x, y in to_grid(line[:, :2] - self.origin).tolist()]
        none = np.zeros(0, np.uint32)
        return self._types["foxglove_msgs/msg/LinePrimitive"](
            kind, self._pose(self.origin), width, False, points, color, [], none
        )

    def _box(
        self, position: NDArray[np.float64], heading: float, size: NDArray[np.float64], kind: int, color: str
    ) -> Any:
        typical = np.array([*TYPICAL_SIZES[kind], BOX_HEIGHT])
        length = self._types["geometry_msgs/msg/Vector3"](*np.where(size > 0, size, typical).tolist())
        pose = self._pose(position, heading)
        return self._types["foxglove_msgs/msg/CubePrimitive"](pose, length, self._color(color))

    def _pose(self, position: NDArray[np.float64], heading: float = 0.0) -> Any:
        cos, sin = unit_vector(np.array(heading / 2)).tolist()
        place = self._types["geometry_msgs/msg/Point"](float(position[0]), float(position[1]), 0.0)
        turn = self._types["geometry_msgs/msg/Quaternion"](0.0, 0.0, sin, cos)
        return self._types["geometry_msgs/msg/Pose"](place, turn)

    def _color(self, color: Any) -> Any:
        return self._types["foxglove_msgs/msg/Color"](*to_rgba(color))

    def _time(self, time_ns: int) -> Any:
        return self._types["builtin_interfaces/msg/Time"](*divmod(time_ns, 10**9))


def _segments(lines: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the line segments of polylines, ``[2 S, 2]`` start and end by turns."""
    pairs = [np.stack((line[:-1, :2], line[1:, :2]), axis=1) for line in lines if len(line)]
    return np.concatenate([np.zeros((0, 2, 2)), *pairs]).reshape(-1, 2)
