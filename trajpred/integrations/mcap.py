"""Write MCAP files of ROS 2 messages: predicted objects for Autoware, scenes for Foxglove."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
from matplotlib.colors import to_rgba
from numpy.typing import NDArray

from trajpred.data.files import naming_disk_errors
from trajpred.data.forecast import Forecast
from trajpred.data.geometry import Pose, to_global
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import EGO_ID, OBJECT_TYPES, Tracks
from trajpred.integrations.recorded_drive import TrackedObjects, ros_messages, ros_types
from trajpred.onboard.lane_cache import MAX_COORDINATE
from trajpred.onboard.stream import OnboardForecast
from trajpred.viz.agent_layer import RECTANGLE, ago
from trajpred.viz.scene import future_rows
from trajpred.viz.style import DARK, Role

#: Topic of the predicted objects, Autoware's.
OBJECTS = "/perception/object_recognition/objects"
#: Topic of the road.
ROAD = "/trajpred/road"
#: Topic of the road users and their futures.
SCENE = "/trajpred/scene"
#: Topic of the viewpoint; not /tf, where its transforms would contradict those of a vehicle.
VIEW = "/trajpred/view"
#: Fraction of the way to the mean of all objects that the viewpoint moves at each update.
FOLLOW = 0.05


class DriveFile:
    """Write the updates of a drive, each self-contained; they stay readable if the process stops.

    Args:
        path: path of the file, which is replaced with the first message.
        lane_map: the map, drawn once.
        step_s: seconds between forecast steps.
        min_probability: least probability of written modes, see :func:`predicted_objects`.
        frame: id of the map's frame.

    Raises: DataError if a package is missing, OSError.

    Example:
        >>> with DriveFile("predicted.mcap", lane_map, step_s=0.1) as file:
        ...     file.add(tracked, stream.tracks, forecast)
    """

    def __init__(
        self,
        path: str | Path,
        lane_map: LaneMap,
        step_s: float,
        min_probability: float = 0.0,
        frame: str = "map",
    ) -> None:
        self._types = ros_types()
        self.path = Path(path)
        self._stream: BinaryIO | None = None
        self._writer: Any = None
        self._channels: dict[str, int] = {}
        self.map = lane_map
        self.step_s = step_s
        self.min_probability = min_probability
        self.frame = frame
        self._messages: SceneMessages | None = None
        #: Position of the viewpoint, None before the first road user.
        self._view: NDArray[np.float64] | None = None

    def __enter__(self) -> DriveFile:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._stream is None:
            return
        with naming_disk_errors(self.path), self._stream:
            self._writer.finish()

    def write(self, topic: str, message: Any, time_ns: int) -> None:
        """Append a ROS 2 message, logged and published at ``time_ns``. Raises: OSError."""
        kind = message.__msgtype__
        if self._stream is None:
            self._open()
        if topic not in self._channels:
            definition, _ = self._types.generate_msgdef(kind, ros_version=2)
            schema = self._writer.register_schema(kind, "ros2msg", definition.encode())
            self._channels[topic] = self._writer.register_channel(topic, "cdr", schema)
        data = bytes(self._types.serialize_cdr(message, kind))
        with naming_disk_errors(self.path):
            self._writer.add_message(self._channels[topic], log_time=time_ns, publish_time=time_ns, data=data)

    def _open(self) -> None:
        from mcap.writer import Writer

        with naming_disk_errors(self.path):
            self._stream = self.path.open("wb")
        self._writer = Writer(self._stream)
        self._writer.start(profile="ros2", library="trajpred")

    def add(self, tracked: TrackedObjects, tracks: Tracks, forecast: OnboardForecast) -> None:
        """Write the forecast of tracked objects; ``tracks`` are their histories so far. Raises: OSError."""
        message = predicted_objects(tracked, forecast, self.step_s, self.min_probability)
        self.write(OBJECTS, message, tracked.time_ns)
        sizes = dict(zip(tracked.track_id, tracked.size, strict=True))
        self.add_scene(tracked.time_ns, tracks, forecast, size=sizes, fallback=forecast.fallback)

    def add_scene(self, time_ns: int, tracks: Tracks, forecast: Forecast | None, **look: Any) -> None:
        """Write one moment, the last step of ``tracks``; ``look`` as for :meth:`SceneMessages.update`."""
        visible = tracks.valid[:, -1]
        pose = Pose(tracks.position[visible, -1], tracks.heading[visible, -1])
        ego = pose[tracks.track_id[visible] == EGO_ID]
        heading = 0.0
        if len(ego.heading):
            self._view = ego.position[0]
            heading = float(ego.heading[0])
        elif visible.any():
            centre = pose.position.mean(axis=0)
            before = centre if self._view is None else self._view
            self._view = before + FOLLOW * (centre - before)
        view = self._view
        if view is None:  # no road user yet: the middle of the map
            view = np.zeros(2)
            if len(self.map):
                low, high = self.map.extent()
                view = (low + high) / 2
        if self._messages is None:
            self._messages = SceneMessages(view, self.frame)
            self.write(ROAD, self._messages.road(time_ns, self.map), time_ns)
        self.write(VIEW, self._messages.viewpoint(time_ns, view, heading), time_ns)
        look |= {"step_s": self.step_s, "min_probability": self.min_probability}
        self.write(SCENE, self._messages.update(time_ns, tracks, forecast, **look), time_ns)


def save_mcap(scenario: Scenario, forecast: Forecast | None, path: str | Path) -> None:
    """Write a scenario as a recording at its own times.

    Every step has the known true futures of the focal and scored tracks; from the last observed one on, also
    the modes of ``forecast``.

    Raises: DataError if a package is missing, OSError.
    """
    now = scenario.num_observed - 1
    tracks = scenario.tracks
    truth: dict[str, np.ndarray] = {}
    for row in future_rows(scenario).tolist():
        name = str(tracks.track_id[row])
        truth[name] = tracks.position[row, now:][tracks.valid[row, now:]]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with DriveFile(path, scenario.map, step_s=scenario.step_s) as file:
        for step, time_ns in enumerate(scenario.timestamps_ns.tolist()):
            drawn = forecast if step >= now else None
            file.add_scene(time_ns, tracks.window(0, step + 1), drawn, truth=truth)


#: Autoware's limit of poses in a path.
MAX_POSES = 100
#: Width of the lines of the road (metres).
ROAD_WIDTH = 0.12
#: Width of histories (metres).
HISTORY_WIDTH = 0.2
#: Width of modes (metres).
MODE_WIDTH = 0.3
#: Width of true futures (metres).
TRUTH_WIDTH = 0.15
#: Height of boxes (metres).
BOX_HEIGHT = 1.5
#: Height of text (metres).
TEXT_HEIGHT = 1.0
#: The closed outline of a box of length and width 1.
CORNERS = np.concatenate((RECTANGLE, RECTANGLE[:1]))
#: Seconds of history drawn behind each road user.
HISTORY_S = 2.0
#: Seconds between the points of a mode.
POINT_S = 0.3
#: Foxglove's ``LinePrimitive`` of connected points.
STRIP = 0
#: Foxglove's ``LinePrimitive`` of separate segments.
LINES = 2
#: Foxglove's deletion of all earlier entities.
DELETE_ALL = 1
#: An empty mapping, without values for any id.
EMPTY: Mapping[str, NDArray[np.float64]] = MappingProxyType({})


class SceneMessages:
    """Build messages in the frame ``frame``; lines are relative to a nearby place, since viewers use float32.

    Args:
        origin: ``[2]`` metres, that place.
    """

    def __init__(self, origin: NDArray[np.float64], frame: str) -> None:
        self.origin = np.round(origin)
        self.frame = frame
        self._new = ros_messages()

    def road(self, time_ns: int, lanes: LaneMap) -> Any:
        """Build the road, once: boundaries in the colours of their paint, centrelines, crossings, areas."""
        groups: dict[str, list[NDArray[np.float64]]] = {}
        sides = [*lanes.left_boundary, *lanes.right_boundary]
        marks = [*lanes.left_mark.tolist(), *lanes.right_mark.tolist()]
        for line, mark in zip(sides, marks, strict=True):
            groups.setdefault(DARK.mark_color(mark), []).append(line)
        groups[DARK.centerline_bare] = list(lanes.centerline)
        groups[DARK.crossing_bar] = [*lanes.crossing_edge1, *lanes.crossing_edge2]
        groups[DARK.ground_edge] = [np.concatenate((area, area[:1])) for area in lanes.drivable_area]
        lines: list[Any] = []
        for color, group in groups.items():
            lines.append(self._line(_segments(group), ROAD_WIDTH, color, LINES))
        road = self._entity(time_ns, "road", lines, {})
        return self._update(time_ns, [road])

    def update(
        self,
        time_ns: int,
        tracks: Tracks,
        forecast: Forecast | None,
        *,
        step_s: float,
        min_probability: float,
        size: Mapping[str, NDArray[np.float64]] = EMPTY,
        truth: Mapping[str, NDArray[np.float64]] = EMPTY,
        fallback: Collection[str] = (),
    ) -> Any:
        """Build an entity for each road user at one moment, the last step of ``tracks``.

        Its first line is the history, followed by the modes, most probable first, and the truth. Predicted
        road users not visible now have, instead of a box, an outline where they were last seen and the time
        since then.

        Args:
            step_s: seconds between steps.
            min_probability: least probability of drawn modes; the most probable mode is always drawn.
            size: length, width and height (metres) by id; otherwise those of ``tracks``.
            truth: future positions ``[F, 2]`` by id, if known.
            fallback: ids of road users whose futures in ``forecast`` come from a fallback.
        """
        recent = round(HISTORY_S / step_s) + 1
        predicted = np.full(len(tracks), -1)
        if forecast is not None:
            predicted = forecast.rows(tracks.track_id)
        entities: list[Any] = []
        boxes = tracks.box()
        now = tracks.valid.shape[1] - 1
        last_seen = tracks.last_seen(now + 1)
        shown = (last_seen == now) | ((predicted >= 0) & (last_seen >= 0))
        for row in np.flatnonzero(shown).tolist():
            name = str(tracks.track_id[row])
            seen = int(last_seen[row])
            color = DARK.role[Role.EGO if name == EGO_ID else Role.OTHER]
            past = tracks.position[row, -recent:][tracks.valid[row, -recent:]]
            lines = [self._line(past, HISTORY_WIDTH, color)]
            facts = {"type": OBJECT_TYPES[tracks.object_type[row]]}
            agent = int(predicted[row])
            if forecast is not None and agent >= 0:
                modes = likely_modes(forecast.probability[agent], min_probability)
                lines += self._modes(forecast, agent, modes, step_s)
                facts["predicted by"] = "fallback" if name in fallback else "model"
                facts["probability"] = ", ".join(f"{p:.2f}" for p in forecast.probability[agent, modes])
            if name in truth:
                lines.append(self._line(truth[name], TRUTH_WIDTH, DARK.ink))
            usual_size = np.array([*boxes[row], BOX_HEIGHT])
            measured = size.get(name, usual_size)
            extent = np.where(measured > 0, measured, usual_size)
            pose = Pose(tracks.position[row, seen], tracks.heading[row, seen])
            if seen == now:
                box = self._box(pose, extent, color)
                entities.append(self._entity(time_ns, name, lines, facts, cubes=[box]))
                continue
            facts["last seen"] = ago((now - seen) * step_s)
            outline = to_global(CORNERS * extent[:2], pose.position, pose.heading)
            lines.append(self._line(outline, HISTORY_WIDTH, color))
            text = self._text(pose.position, facts["last seen"], color)
            entities.append(self._entity(time_ns, name, lines, facts, texts=[text]))
        return self._update(time_ns, entities)

    def _modes(self, forecast: Forecast, agent: int, modes: list[int], step_s: float) -> list[Any]:
        """Return a line for each of the ``modes`` of an agent, a row of ``forecast``."""
        stride = max(1, round(POINT_S / step_s))
        paths = forecast.trajectory[agent, modes][:, stride - 1 :: stride]
        colors = DARK.mode_colors(forecast.probability[agent, modes])
        return [self._line(path, MODE_WIDTH, color) for path, color in zip(paths, colors, strict=True)]

    def _box(self, pose: Pose[np.ndarray], size: NDArray[np.float64], color: str) -> Any:
        """Return a box of ``size`` ``[3]`` metres."""
        place = self._pose(pose.position, float(pose.heading))
        return self._new.CubePrimitive(
            place, self._new.Vector3(*size.tolist()), self._new.Color(*to_rgba(color))
        )

    def viewpoint(self, time_ns: int, position: NDArray[np.float64], heading: float) -> Any:
        """Build the transform to ``base_link``, the frame that viewers follow by default."""
        new = self._new
        pose = self._pose(position, heading)
        transform = new.Transform(new.Vector3(*position.tolist(), 0.0), pose.orientation)
        header = new.Header(self._time(time_ns), self.frame)
        return new.TFMessage([new.TransformStamped(header, "base_link", transform)])

    def _time(self, time_ns: int) -> Any:
        seconds, nanoseconds = divmod(time_ns, 10**9)
        return self._new.Time(seconds, nanoseconds)

    def _update(self, time_ns: int, entities: list[Any]) -> Any:
        """Replace all earlier entities of the topic."""
        deletion = self._new.SceneEntityDeletion(self._time(time_ns), DELETE_ALL, "")
        return self._new.SceneUpdate([deletion], entities)

    def _entity(
        self,
        time_ns: int,
        name: str,
        lines: list[Any],
        facts: Mapping[str, str],
        cubes: Sequence[Any] = (),
        texts: Sequence[Any] = (),
    ) -> Any:
        """Return an entity of a scene, drawn until the next update."""
        new = self._new
        return new.SceneEntity(
            timestamp=self._time(time_ns),
            frame_id=self.frame,
            id=name,
            lifetime=new.Duration(0, 0),
            frame_locked=False,
            metadata=[new.KeyValuePair(key, value) for key, value in facts.items()],
            arrows=[],
            cubes=list(cubes),
            spheres=[],
            cylinders=[],
            lines=lines,
            triangles=[],
            texts=list(texts),
            models=[],
        )

    def _text(self, position: NDArray[np.float64], text: str, color: str) -> Any:
        """Return a text that faces the viewer."""
        return self._new.TextPrimitive(
            pose=self._pose(position),
            billboard=True,
            font_size=TEXT_HEIGHT,
            scale_invariant=False,
            color=self._new.Color(*to_rgba(color)),
            text=text,
        )

    def _line(self, line: NDArray[np.float64], width: float, color: Any, kind: int = STRIP) -> Any:
        """Return a line ``[P, 2]`` (metres) in a colour, by default of connected points."""
        local = to_grid(line[:, :2] - self.origin).tolist()
        return self._new.LinePrimitive(
            type=kind,
            pose=self._pose(self.origin),
            thickness=width,
            scale_invariant=False,
            points=[self._new.Point(x, y, 0.0) for x, y in local],
            color=self._new.Color(*to_rgba(color)),
            colors=[],
            indices=np.zeros(0, np.uint32),
        )

    def _pose(self, position: NDArray[np.float64], heading: float = 0.0) -> Any:
        turn = self._new.Quaternion(0.0, 0.0, np.sin(heading / 2), np.cos(heading / 2))
        return self._new.Pose(self._new.Point(*position.tolist(), 0.0), turn)


def _segments(lines: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the line segments of polylines, ``[2 S, 2]``, start and end alternately."""
    no_segments = np.zeros((0, 2, 2))
    segments = [np.stack((line[:-1, :2], line[1:, :2]), axis=1) for line in lines if len(line)]
    return np.concatenate([no_segments, *segments]).reshape(-1, 2)


def predicted_objects(
    tracked: TrackedObjects, forecast: Forecast, step_s: float, min_probability: float
) -> Any:
    """Build a message that predicts the tracked objects of another, with at least one path each.

    Objects without futures or with a non-finite pose are omitted; of several objects with one id, only the
    predicted one is kept, the first with a usable position. Header, id, classification, shape, existence and
    initial kinematics are copied from the tracked object. Paths start at its pose, most probable first; their
    confidences are the forecast's probabilities. Modes below ``min_probability`` are omitted, except an
    object's most probable one; the others keep their probabilities.

    Args:
        step_s: seconds between the forecast's steps; only every n-th step is written if :data:`MAX_POSES`
            requires it.
    """
    new = ros_messages()
    predicted: list[Any] = []
    rows = forecast.rows(np.array(tracked.track_id, np.str_)).tolist()
    usable = np.all(np.abs(tracked.position) <= MAX_COORDINATE, axis=1).tolist()
    seen: set[int] = set()
    for tracked_object, row, is_usable in zip(tracked.message.objects, rows, usable, strict=True):
        if not is_usable or row in seen:
            continue
        seen.add(row)
        kinematics = tracked_object.kinematics
        pose = kinematics.pose_with_covariance
        if row < 0 or not _is_finite(pose.pose):
            continue
        motion = new.PredictedObjectKinematics(
            initial_pose_with_covariance=pose,
            initial_twist_with_covariance=kinematics.twist_with_covariance,
            initial_acceleration_with_covariance=kinematics.acceleration_with_covariance,
            predicted_paths=_paths(pose.pose, forecast, row, step_s, min_probability),
        )
        predicted.append(
            new.PredictedObject(
                object_id=tracked_object.object_id,
                existence_probability=tracked_object.existence_probability,
                classification=tracked_object.classification,
                kinematics=motion,
                shape=tracked_object.shape,
            )
        )
    return new.PredictedObjects(tracked.message.header, predicted)


def _is_finite(pose: Any) -> bool:
    position = pose.position
    turn = pose.orientation
    numbers = [position.x, position.y, position.z, turn.x, turn.y, turn.z, turn.w]
    return bool(np.isfinite(numbers).all())


def _paths(start: Any, forecast: Forecast, row: int, step_s: float, min_probability: float) -> list[Any]:
    """Return the paths of the forecast's ``row``, from the pose ``start``."""
    new = ros_messages()
    stride = math.ceil(forecast.trajectory.shape[2] / (MAX_POSES - 1))
    seconds, nanoseconds = divmod(round(stride * step_s * 1e9), 10**9)
    time_step = new.Duration(seconds, nanoseconds)
    position = to_grid(forecast.trajectory[row, :, stride - 1 :: stride])
    half_angle = forecast.heading[row, :, stride - 1 :: stride, None] / 2
    sine = to_grid(np.sin(half_angle), 16)
    cosine = to_grid(np.cos(half_angle), 16)
    states = np.concatenate((position, sine, cosine), axis=-1)
    z = start.position.z
    paths: list[Any] = []
    for mode in likely_modes(forecast.probability[row], min_probability):
        poses = [start]
        for x, y, sin, cos in states[mode].tolist():
            poses.append(new.Pose(new.Point(x, y, z), new.Quaternion(0.0, 0.0, sin, cos)))
        confidence = float(forecast.probability[row, mode])
        paths.append(new.PredictedPath(poses, time_step, confidence))
    return paths


def to_grid(values: np.ndarray, bits: int = 10) -> np.ndarray:
    """Round to 2^-``bits``, by default 1 mm: files are compressed, and short numbers to a quarter."""
    return np.asarray(np.round(values * 2**bits) / 2**bits)


def likely_modes(probability: np.ndarray, min_probability: float) -> list[int]:
    """Return the modes ``[K]`` of at least ``min_probability``, or the most probable one, in that order."""
    order = np.argsort(-probability, kind="stable")
    count = max(1, int((probability >= min_probability).sum()))
    return order[:count].tolist()
