"""A drive as an MCAP file of ROS 2 messages: the scene of every moment, and Autoware's predicted objects.

ROS 2's own tools and Foxglove read it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from trajpred.files import naming_disk_errors
from trajpred.forecast import Forecast
from trajpred.geometry import Pose
from trajpred.lane_map import LaneMap
from trajpred.onboard.stream import OnboardForecast
from trajpred.scenario import Scenario
from trajpred.sources.recorded_drive import TrackedObjects, ros_types
from trajpred.tracks import EGO_ID, Tracks
from trajpred.viz.scene import future_rows
from trajpred.viz.viewer.messages import SceneMessages, predicted_objects

#: Topic of the predicted objects, Autoware's.
OBJECTS = "/perception/object_recognition/objects"
#: Topic of the road.
ROAD = "/trajpred/road"
#: Topic of the road users and their futures.
SCENE = "/trajpred/scene"
#: Topic of the viewpoint; not /tf, where its transforms would contradict those of a vehicle.
VIEW = "/trajpred/view"
#: Share of the way to the mean of all objects that the viewpoint moves with each update.
FOLLOW = 0.05


class DriveFile:
    """Write the updates of a drive, each complete in itself; they stay readable if the process stops.

    Args:
        path: of the file, which is replaced with the first message.
        lane_map: drawn once.
        step_s: seconds between the steps of forecasts.
        min_probability: of the modes that are written, see :func:`predicted_objects`.
        frame: id of the map's frame.

    Raises: DataError if a package is missing, OSError.

    Example:
        >>> with DriveFile("predicted.mcap", lane_map, step_s=0.1) as file:
        ...     file.add(tracked, stream.history.tracks(), forecast)
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
        """Write the forecast of tracked objects; ``tracks``: their histories until then. Raises: OSError."""
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
        view = self._middle() if self._view is None else self._view
        if self._messages is None:
            self._messages = SceneMessages(view, self.frame)
            self.write(ROAD, self._messages.road(time_ns, self.map), time_ns)
        self.write(VIEW, self._messages.viewpoint(time_ns, view, heading), time_ns)
        look |= {"step_s": self.step_s, "min_probability": self.min_probability}
        self.write(SCENE, self._messages.update(time_ns, tracks, forecast, **look), time_ns)

    def _middle(self) -> NDArray[np.float64]:
        """Return the middle of the map, (0, 0) without lanes."""
        if not len(self.map):
            return np.zeros(2)
        low, high = self.map.extent()
        return (low + high) / 2


def save_mcap(scenario: Scenario, forecast: Forecast | None, path: str | Path) -> None:
    """Write a scenario as a recording at its own times: every step, from the last observed one on with the
    modes of ``forecast``; the true futures of the focal and the scored tracks where they are known.

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
