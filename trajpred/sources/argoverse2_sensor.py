"""Cut forecasting scenarios out of Argoverse 2's Sensor logs: annotated boxes at 10 Hz, ego poses and a map.

A log has ``annotations.feather`` (or ``annotations_with_ego.feather``), ``city_SE3_egovehicle.feather`` and
``map/log_map_archive_*.json``. Windows of 110 frames begin every 1.5 s or at another interval; windows of a
log share tracks.
"""

from __future__ import annotations

import uuid
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import feather

from trajpred.data.geometry import norm, wrap_angle
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import first_position, given_heading
from trajpred.data.scenario import Scenario
from trajpred.data.splits import SPLITS
from trajpred.data.tracks import OBJECT_TYPES, TrackCategory, Tracks
from trajpred.errors import DataError, require
from trajpred.sources.argoverse2 import NUM_OBSERVED, NUM_STEPS, read_archive
from trajpred.sources.reading import RawScenario, folders, only_file, readable
from trajpred.sources.sensor_log import SensorLog, read_log, slopes_of, steps_of_log
from trajpred.sources.windows import ROAD_USERS, Spacing

#: Seconds between frames.
FRAME_S = 0.1
#: Frames between the starts of two windows whose focal tracks are chosen together.
STRIDE = 15
#: Names of the file with the boxes; a log has one of them.
ANNOTATIONS = ("annotations.feather", "annotations_with_ego.feather")
#: The file of the ego poses.
POSES = "city_SE3_egovehicle.feather"
#: Cities by their code in map file names.
_CITIES = {
    "ATX": "austin", "DTW": "dearborn", "MIA": "miami", "PAO": "palo-alto", "PIT": "pittsburgh",
    "WDC": "washington-dc",
}  # fmt: skip
_VEHICLE = OBJECT_TYPES.index("vehicle")
#: Types that can be scored.
_SCORED = list(map(OBJECT_TYPES.index, ROAD_USERS))
#: Least frames of an unscored track; tracks with fewer are fragments.
_UNSCORED_FRAMES = 55
#: Fewest frames of a track.
_FEWEST_FRAMES = 10
#: Shortest path of a focal track (metres).
_PATH_M = 10.0
#: Shortest future path of a focal track (metres).
_FUTURE_M = 5.0
#: Greatest distance of a focal track from the ego vehicle (metres).
_FROM_EGO_M = 90.0
#: Greatest acceleration of a focal track (m/s²).
_ACCELERATION = 4.5
#: Least final error of constant velocity for a focal track (metres).
_ERROR_M = 1.0
#: Least distance that a scored track moves (metres).
_MOVED_M = 2.0
#: Greatest distance of a scored track from the focal track or the ego vehicle (metres).
_NEAR_M = 60.0
#: Greatest change of heading of focal and scored tracks from frame to frame (radians).
_JUMP = 0.35
#: Greatest distance of a vehicle on a lane from a centreline (metres).
_ON_LANE_M = 3.0
#: Frames over which a change of speed is measured.
_SMOOTH = 5
#: Stationary tracks are omitted beyond this distance (metres) from the ego vehicle and every scored track.
_STAYING_M = 40.0


def discover(raw: Path, options: Spacing = Spacing()) -> dict[str, list[RawScenario]]:
    """Return the windows of each split's logs below ``raw``; their starts are whole frames apart."""
    splits: dict[str, list[RawScenario]] = {}
    for split in SPLITS:
        splits[split] = []
        for log in folders(raw / split):
            splits[split] += _windows(log, options.every_s)
    return splits


def _windows(log: Path, every_s: float) -> list[RawScenario]:
    """List the windows of a log; one window if its annotations cannot be read."""
    try:
        times = feather.read_table(_annotations(log), columns=["timestamp_ns"])["timestamp_ns"].to_numpy()
        frames = int(steps_of_log(np.unique(times))[-1]) + 1
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError):
        frames = 0  # reading the window reports the reason
    stride = max(1, round(every_s / FRAME_S))
    starts = _starts(frames, stride) or [0]
    maps = (log / "map",)
    return [RawScenario(f"{log.name}_{start:03d}", log, start, log.name, beside=maps) for start in starts]


def _annotations(log: Path) -> Path:
    """Return the path of a log's boxes, or where they should be."""
    for name in ANNOTATIONS:
        if (log / name).is_file():
            return log / name
    return log / ANNOTATIONS[0]


def _starts(frames: int, stride: int) -> range:
    """Return the first frames of the windows of a log."""
    return range(0, frames - NUM_STEPS + 1, stride)


def read(raw: RawScenario, options: Spacing = Spacing()) -> Scenario:
    """Read a window, or a log's first one; the result does not depend on ``options``.

    Raises: DataError naming the file and the field at fault.
    """
    log_folder = raw.path
    start = raw.part or 0
    archive = only_file(log_folder, "map/log_map_archive_*.json")
    file = _annotations(log_folder)
    if not file.is_file():
        message = f"has no annotations ({' or '.join(ANNOTATIONS)}); those of the test split are not public"
        raise DataError(message, file=log_folder)
    log = read_log(file, log_folder / POSES)
    lane_map = read_archive(archive)
    with readable(file, "log"):
        frames = f"the log has {len(log.time_ns)} frames, a window {NUM_STEPS} from frame {start} on"
        require(start in _starts(len(log.time_ns), 1), "timestamp_ns", frames)
        code = archive.stem.rpartition("____")[2].partition("_")[0]
        return _scenario(log, start, lane_map, log_folder.name, _CITIES.get(code, code.lower()))


def _scenario(log: SensorLog, start: int, lane_map: LaneMap, name: str, city: str) -> Scenario:
    """Cut the window that begins at frame ``start``."""
    slopes = slopes_of(log, len(log.time_ns))
    window = _Window(log, start, slopes)
    lost = f"the sweep of the last observed frame of the window at frame {start} was lost"
    require(bool(window.recorded[NUM_OBSERVED - 1]), "timestamp_ns", lost)
    row = _focal_track(log, start, slopes, lane_map)
    require(row >= 0, "track_uuid", f"no track qualifies as the focal one of the window at frame {start}")
    category, rows = window.categories(row)
    valid = window.valid[rows]
    key = f"av2-sensor-window:{name}:{log.time_ns[start]}"
    return Scenario(
        scenario_id=str(uuid.uuid5(uuid.NAMESPACE_OID, key)),
        city=city,
        timestamps_ns=log.time_ns[start : start + NUM_STEPS],
        num_observed=NUM_OBSERVED,
        focal_id=str(log.track_id[row]),
        tracks=Tracks(
            track_id=log.track_id[rows],
            object_type=log.object_type[rows],
            category=category[rows],
            valid=valid,
            position=np.where(valid[..., None], window.position[rows], 0.0),
            heading=np.where(valid, given_heading(window.heading[rows]), 0.0),
            velocity=window.velocity[rows],
            size=log.size[rows],
        ),
        map=lane_map,
    ).validate()


def _focal_track(log: SensorLog, start: int, slopes: NDArray[np.float64], lane_map: LaneMap) -> int:
    """Choose the focal track of the window that begins at frame ``start``; -1 if none qualifies.

    The choice depends only on the log and the frame, not on other windows: windows at multiples of
    :data:`STRIDE` have different focal tracks; any other window takes its best candidate.
    """
    starts = _starts(len(log.time_ns), STRIDE)
    if start not in starts:
        rank = _Window(log, start, slopes).rank(lane_map)
        best = int(rank.argmax())
        if rank[best] < 0:
            return -1
        return best
    ranks = [_Window(log, first, slopes).rank(lane_map) for first in starts]
    return assign_focal_tracks(np.stack(ranks), log.object_type)[starts.index(start)]


class _Window:
    """The tracks ``[A]`` of a log within one window ``[A, 110]``, and their roles.

    Args:
        slopes: velocities ``[A, N, 2]`` of the whole log.

    Attributes:
        velocity: ``[A, 110, 2]`` m/s; observed ones are estimated without later frames.
        candidate: ``[A]``, the tracks that may be focal or scored.
        now: ``[A, 2]`` metres, positions at the last observed frame.
        ego: row of the ego vehicle, the last one.
    """

    def __init__(self, log: SensorLog, start: int, slopes: NDArray[np.float64]) -> None:
        frames = slice(start, start + NUM_STEPS)
        self.log = log
        self.valid = log.valid[:, frames]
        self.recorded = log.recorded[frames]
        self.position = log.position[:, frames]
        self.heading = log.heading[:, frames]
        now = start + NUM_OBSERVED
        observed = slopes_of(log, now)[:, start:]
        self.velocity = np.concatenate((observed, slopes[:, now : start + NUM_STEPS]), axis=1)
        is_whole = self.valid[:, self.recorded].all(axis=1) & self.recorded[NUM_OBSERVED - 1]
        change = wrap_angle(np.diff(self.heading[:, self.recorded], axis=1))
        turn = np.abs(change).max(axis=1, initial=0.0)
        self.candidate = np.isin(log.object_type, _SCORED) & ~log.trailer & is_whole & (turn <= _JUMP)
        self.ego = len(self.valid) - 1
        self.candidate[self.ego] = False
        self.now = self.position[:, NUM_OBSERVED - 1]

    def rank(self, lane_map: LaneMap) -> NDArray[np.float64]:
        """Rank the focal candidates ``[A]`` by how much they turn and change speed; -1 for other tracks."""
        if not self.candidate.any():
            return np.full(len(self.valid), -1.0)
        step_s = (self.log.time_ns[-1] - self.log.time_ns[0]) / 1e9 / (len(self.log.time_ns) - 1)
        position = self.position[:, self.recorded]
        heading = self.heading[:, self.recorded]
        speed = norm(self.velocity[:, self.recorded])
        path = norm(np.diff(position, axis=1))
        # The last observed recorded frame, and the steps from it to the last recorded frame.
        last = int(self.recorded[:NUM_OBSERVED].sum()) - 1
        ahead = int(np.flatnonzero(self.recorded).max(initial=0)) + 1 - NUM_OBSERVED
        steady = self.now + self.velocity[:, NUM_OBSERVED - 1] * step_s * ahead
        gain = np.abs(speed[:, _SMOOTH:] - speed[:, :-_SMOOTH]).max(axis=1, initial=0.0)
        change = gain / (_SMOOTH * step_s)
        lanes = lane_map.centerline.values[:, :2]
        lane_distance = np.array([norm(lanes - place).min(initial=np.inf) for place in self.now])
        on_lane = lane_distance <= _ON_LANE_M
        qualifies = (
            self.candidate
            & (path.sum(axis=1) >= _PATH_M)
            & (path[:, last:].sum(axis=1) >= _FUTURE_M)
            & (norm(self.now - self.now[self.ego]) <= _FROM_EGO_M)
            & (on_lane | (self.log.object_type != _VEHICLE))
            & (change <= _ACCELERATION)
            & (norm(steady - position[:, -1]) >= _ERROR_M)
        )
        turned = np.abs(wrap_angle(heading[:, -1] - heading[:, last]))
        sped_up = np.abs(speed[:, -1] - speed[:, last])
        return np.where(qualifies, turned + sped_up / 10, -1.0)

    def categories(self, focal: int) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
        """Return each track's category, and which tracks belong to the window."""
        frames = self.valid.sum(axis=1)
        # Each track's largest distance from its first position in the window.
        first = first_position(self.position, self.valid)
        moved = np.where(self.valid, norm(self.position - first[:, None]), 0.0).max(axis=1)
        from_focal = norm(self.now - self.now[focal])
        from_ego = norm(self.now - self.now[self.ego])
        is_near = np.minimum(from_focal, from_ego) <= _NEAR_M
        scored = self.candidate & (moved >= _MOVED_M) & is_near
        category = np.where(frames >= _UNSCORED_FRAMES, TrackCategory.UNSCORED, TrackCategory.FRAGMENT)
        category = np.where(scored, TrackCategory.SCORED, category)
        category[focal] = TrackCategory.FOCAL
        category[self.ego] = TrackCategory.UNSCORED

        # Fragments and distant stationary tracks do not belong to the window.
        mean = (self.position * self.valid[..., None]).sum(axis=1) / np.maximum(frames, 1)[:, None]
        important = np.append(np.flatnonzero(category >= TrackCategory.SCORED), self.ego)
        places = self.position[important][:, self.recorded]
        is_far = norm(mean[:, None, None] - places).min(axis=(1, 2)) > _STAYING_M
        is_stationary = moved < _MOVED_M
        is_kept = (frames >= _FEWEST_FRAMES) & ~(is_far & is_stationary)
        return category.astype(np.int8), np.flatnonzero(is_kept)


#: Number of windows whose focal tracks are chosen together.
_TOGETHER = 4
_PEDESTRIAN = OBJECT_TYPES.index("pedestrian")
_BUS = OBJECT_TYPES.index("bus")


def assign_focal_tracks(rank: NDArray[np.float64], object_type: NDArray[np.int8]) -> list[int]:
    """Choose a focal track for each window of a log from the ranks ``[W, A]``; -1 where none qualifies.

    No track is focal twice. One window takes a pedestrian or bus, if one qualifies; the others take the
    tracks with the largest sum of ranks, four windows at a time.
    """
    focal = [-1] * len(rank)
    # Columns without a track, so that each window has a choice.
    rank = np.pad(rank, ((0, 0), (0, _TOGETHER)), constant_values=-1.0)
    is_rare = np.isin(object_type, [_PEDESTRIAN, _BUS])
    rare_rank = np.where(is_rare, rank[:, : len(is_rare)], -1.0)
    if rare_rank.max() >= 0:
        window, track = divmod(int(rare_rank.argmax()), len(is_rare))
        focal[window] = track
        rank[:, track] = -1.0
    others = [window for window in range(len(rank)) if focal[window] < 0]
    for first in range(0, len(others), _TOGETHER):
        windows = others[first : first + _TOGETHER]
        for window, track in zip(windows, _best_assignment(rank[windows]), strict=True):
            if rank[window, track] >= 0:
                focal[window] = track
        taken = [track for track in focal if track >= 0]
        rank[:, taken] = -1.0
    return focal


def _best_assignment(rank: NDArray[np.float64]) -> tuple[int, ...]:
    """Choose a column for each row of ``rank`` ``[N, A]``, all distinct, with the largest sum."""
    rows = np.arange(len(rank))
    options = [np.argsort(-values)[:_TOGETHER].tolist() for values in rank]
    distinct = [columns for columns in product(*options) if len(set(columns)) == len(columns)]
    return max(distinct, key=lambda columns: rank[rows, columns].sum())
