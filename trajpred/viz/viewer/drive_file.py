"""A drive as a file for viewers: the scene of every moment, and Autoware's predicted objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trajpred.forecast import Forecast
from trajpred.geometry import Pose
from trajpred.lane_map import LaneMap
from trajpred.onboard.stream import OnboardForecast
from trajpred.scenario import EGO_ID, Scenario, Tracks
from trajpred.sources.recorded_drive import TrackedObjects
from trajpred.viz.scene import future_rows
from trajpred.viz.viewer.mcap_file import McapFile
from trajpred.viz.viewer.predicted_objects import predicted_objects
from trajpred.viz.viewer.scene_update import SceneMessages

#: Topics of the files; transforms are not on /tf, where they would contradict those of a vehicle.
OBJECTS = "/perception/object_recognition/objects"
ROAD, SCENE, VIEW = "/trajpred/road", "/trajpred/scene", "/trajpred/view"
#: Share of the way to the mean of all objects that the viewpoint moves with each update.
FOLLOW = 0.05


class DriveFile(McapFile):
    """Write the updates of a drive, each complete in itself.

    Args:
        path: of the MCAP file.
        lane_map: drawn once.
        step_s: seconds between the steps of forecasts.
        min_probability: of the modes that are written, see :func:`predicted_objects`.
        frame: id of the map's frame.

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
        super().__init__(path)
        self.map, self.step_s, self.min_probability, self.frame = lane_map, step_s, min_probability, frame
        self._messages: SceneMessages | None = None
        self._view = np.zeros(2)

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
        centre = pose.position.mean(axis=0) if visible.any() else self._view
        if self._messages is None:
            self._messages, self._view = SceneMessages(centre, self.frame), centre
            self.write(ROAD, self._messages.road(time_ns, self.map), time_ns)
        followed = len(ego.heading) > 0
        self._view = ego.position[0] if followed else self._view + FOLLOW * (centre - self._view)
        heading = float(ego.heading[0]) if followed else 0.0
        self.write(VIEW, self._messages.viewpoint(time_ns, self._view, heading), time_ns)
        look |= {"step_s": self.step_s, "min_probability": self.min_probability}
        self.write(SCENE, self._messages.update(time_ns, tracks, forecast, **look), time_ns)


def save_mcap(scenario: Scenario, forecast: Forecast | None, path: str | Path) -> None:
    """Write a scenario as a recording at its own times: every step, from the last observed one on with the
    modes of ``forecast``; the true futures of the focal and the scored tracks where they are known.

    Raises: DataError if a package is missing, OSError.
    """
    now, tracks = scenario.num_observed - 1, scenario.tracks
    future = {
        row: tracks.position[row, now:][tracks.valid[row, now:]] for row in future_rows(scenario).tolist()
    }
    truth = {str(tracks.track_id[row]): line for row, line in future.items()}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with DriveFile(path, scenario.map, step_s=scenario.step_s) as file:
        for step, time_ns in enumerate(scenario.timestamps_ns.tolist()):
            known = forecast if step >= now else None
            file.add_scene(time_ns, tracks.window(0, step + 1), known, truth=truth)
