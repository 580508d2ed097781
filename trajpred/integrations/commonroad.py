"""Cut forecasting scenarios out of CommonRoad's: lanelets and recorded obstacles, versions 2018b and 2020a.

Windows of 11 s, of which 5 s are observed, begin every 1.5 s. A shorter recording is one window, too: the
same share of it is observed, and the steps before and after it are unknown. Steps are as long as in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from trajpred.data.geometry import norm, rotate
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import STANDING_SPEED, given_heading
from trajpred.data.registry import register
from trajpred.data.scenario import Scenario
from trajpred.data.splits import SPLITS
from trajpred.data.tracks import TrackCategory
from trajpred.errors import DataError, require
from trajpred.integrations.maps.commonroad import read as read_lanelets
from trajpred.integrations.maps.segments import lane_map_of
from trajpred.sources import Source
from trajpred.sources.reading import (
    MAX_STATES,
    MAX_STEPS,
    RawScenario,
    as_number,
    integer,
    number,
    parse,
    read_bytes,
    readable,
)


def is_static_obstacle(obstacle: Element) -> bool:
    return "static" in (obstacle.findtext("role"), obstacle.tag.removesuffix("Obstacle"))


def states_of(obstacle: Element) -> list[tuple[int, list[float]]]:
    """Return the step and the values of each state of an obstacle, see :func:`_state`."""
    elements = [*obstacle.iterfind("initialState"), *obstacle.iterfind("trajectory/state")]
    return [_state(element) for element in elements]


def _state(state: Element) -> tuple[int, list[float]]:
    """Return the step of a state, and its x, y, heading, velocity and velocityY."""
    x = as_number(state.findtext("position//x"), "position.x")
    y = as_number(state.findtext("position//y"), "position.y")
    heading = _value(state, "orientation")
    speed = _value(state, "velocity")
    aside = _value(state, "velocityY")
    step = integer(state.findtext("time/exact"), "time")
    return step, [x, y, heading, speed, aside]


def _value(state: Element, name: str) -> float:
    """Return an exact value, or the middle of an interval; NaN without either."""
    numbers: list[float] = []
    for part in ("exact", "intervalStart", "intervalEnd"):
        text = state.findtext(f"{name}/{part}")
        if text is not None:
            numbers.append(as_number(text, name))
    if not numbers:
        return np.nan
    return sum(numbers) / len(numbers)


#: Seconds of a window.
WINDOW_S = 11.0
#: Seconds of a window that are observed.
OBSERVED_S = 5.0
#: Seconds of the shortest recording.
SHORTEST_S = 2.0
#: Usual seconds between the starts of two windows.
EVERY_S = 1.5
#: A road user that moves this far (metres) between the first and the last recorded step is scored.
MOVED_M = 2.0
#: The object type of each type of obstacles; any other is ``unknown``.
OBJECT_TYPE = {
    "car": "vehicle",
    "truck": "vehicle",
    "taxi": "vehicle",
    "priorityVehicle": "vehicle",
    "parkedVehicle": "vehicle",
    "bus": "bus",
    "motorcycle": "motorcyclist",
    "bicycle": "cyclist",
    "pedestrian": "pedestrian",
    "roadBoundary": "static",
    "building": "static",
    "pillar": "static",
    "median_strip": "static",
    "constructionZone": "construction",
}
_OBSTACLES = ("obstacle", "dynamicObstacle", "staticObstacle")
_ROAD_USERS = ("vehicle", "bus", "motorcyclist", "cyclist", "pedestrian")


def discover(raw: Path, every_s: float = EVERY_S) -> dict[str, list[RawScenario]]:
    """Return the windows of the files in ``raw/{train,val,test}/``, or of those in ``raw`` itself as val.

    Args:
        every_s: seconds between the starts of two windows, in whole steps, at least one.
    """
    files = {split: sorted((raw / split).glob("*.xml")) for split in SPLITS}
    if not any(files.values()):
        files = {"val": sorted(raw.glob("*.xml"))}
    splits: dict[str, list[RawScenario]] = {}
    for split, recordings in files.items():
        splits[split] = []
        for file in recordings:
            splits[split] += _windows(file, every_s)
    return splits


def _windows(file: Path, every_s: float) -> list[RawScenario]:
    """List the windows of a file; one if it cannot be read."""
    try:
        with readable(file, "recording"):
            recording = _Recording.of(parse(read_bytes(file)))
            starts = list(recording.starts(every_s))
    except DataError:
        starts = [0]  # reading the window reports the reason
    return [RawScenario(_window_name(file, start), file, start) for start in starts]


def _window_name(file: Path, start: int) -> str:
    return f"{file.stem}_{start:03d}"


def read(raw: RawScenario) -> Scenario:
    """Read a window, or the first one of a file. Raises: DataError naming the file and the field at fault."""
    start = raw.part or 0
    with readable(raw.path, "recording"), np.errstate(all="ignore"):
        root = parse(read_bytes(raw.path))
        require(root.tag == "commonRoad", "root", "is not that of a CommonRoad scenario")
        parts = read_lanelets(root)
        name = _window_name(raw.path, start)
        scenario = _Recording.of(root).window(start, name, lane_map_of(parts), _city(root))
    parts.problems.warn(raw.path)
    return scenario


def _city(root: Element) -> str:
    """Return the country and the map of a benchmark."""
    return "_".join(root.get("benchmarkID", "").split("_")[:2])


@dataclass(frozen=True)
class _Recording:
    """The ``A`` obstacles of a file over its ``N`` steps.

    Attributes:
        step_s: seconds between steps.
        name: A strings.
        object_type: A strings.
        is_static: ``[A]``, whether the file says that an obstacle does not move.
        state: ``[A, N, 5]``: x, y (metres), heading (radians), ``velocity`` and ``velocityY`` (m/s), see
            :func:`_motion`; NaN where unknown.
    """

    step_s: float
    name: list[str]
    object_type: list[str]
    is_static: NDArray[np.bool_]
    state: NDArray[np.float64]

    @classmethod
    def of(cls, root: Element) -> _Recording:
        """Read the obstacles of a scenario. Raises: DataError naming the element at fault."""
        step_s = number(root, "timeStepSize")
        require(0.01 <= step_s <= 1, "timeStepSize", f"must be 0.01 to 1 s, is {step_s}")
        names: list[str] = []
        kinds: list[str] = []
        statics: list[bool] = []
        states: list[list[tuple[int, list[float]]]] = []
        steps: list[int] = []
        for obstacle in root:
            if obstacle.tag not in _OBSTACLES:
                continue
            names.append(obstacle.get("id", ""))
            kinds.append(OBJECT_TYPE.get(obstacle.findtext("type", ""), "unknown"))
            statics.append(is_static_obstacle(obstacle))
            path = states_of(obstacle)
            states.append(path)
            steps += [step for step, _ in path]
        is_static = np.array(statics, np.bool_)
        first = min(steps, default=0)
        length = max(steps, default=-1) + 1 - first
        require(length <= MAX_STEPS, "time", f"spans {length} steps, more than {MAX_STEPS}")
        too_many = f"{len(states)} over {length} steps are too many"
        require(length * len(states) <= MAX_STATES, "obstacle", too_many)
        table = np.full((len(states), length, 5), np.nan)
        for row, path in enumerate(states):
            for step, values in path:
                if is_static[row]:
                    table[row, :] = values
                else:
                    table[row, step - first] = values
        speed = table[..., 3]
        speed[is_static[:, None] & np.isnan(speed) & np.isfinite(table[..., 0])] = 0.0
        return cls(step_s, names, kinds, is_static, table)

    def starts(self, every_s: float) -> range:
        """Return the first steps of the windows. Raises: DataError if the recording is too short for one."""
        steps = self.state.shape[1]
        window = round(WINDOW_S / self.step_s)
        short = f"the obstacles are recorded for {steps * self.step_s:.1f} s, less than {SHORTEST_S:g} s"
        require(steps * self.step_s >= SHORTEST_S, "time", short)
        last = max(steps - window, 0)
        stride = max(1, round(every_s / self.step_s))
        return range(0, last + 1, stride)

    def window(self, start: int, name: str, lane_map: LaneMap, city: str) -> Scenario:
        """Return the window from step ``start`` on. Raises: DataError if nobody can be its focal track."""
        require(start in self.starts(self.step_s), "window", f"none begins at step {start}")
        steps = round(WINDOW_S / self.step_s)
        state = self.state[:, start : start + steps]
        missing = steps - state.shape[1]
        before = round(missing * OBSERVED_S / WINDOW_S)
        observed = round(steps * OBSERVED_S / WINDOW_S)
        kept = np.flatnonzero(np.isfinite(state).any((1, 2)))
        state = state[kept]
        whole = np.isfinite(state[..., 0]).all(1)
        moved = norm(state[:, -1, :2] - state[:, 0, :2]) >= MOVED_M
        state = np.pad(state, ((0, 0), (before, missing - before), (0, 0)), constant_values=np.nan)
        kinds: list[str] = []
        names: list[str] = []
        for row in kept:
            kinds.append(self.object_type[row])
            names.append(self.name[row])
        user = np.isin(kinds, _ROAD_USERS)
        candidate = _candidates(user, self.is_static[kept], state[:, observed - 1, 0])
        focal = _focal(state[..., :2], candidate, observed, round(1 / self.step_s))
        heading, velocity = _motion(state, observed, self.step_s, focal)
        return Scenario.from_arrays(
            state[..., :2],
            num_observed=observed,
            step_s=self.step_s,
            heading=heading,
            velocity=velocity,
            object_type=kinds,
            track_id=names,
            focal=focal,
            category=np.where(user & whole & moved, TrackCategory.SCORED, TrackCategory.UNSCORED),
            map=lane_map,
            scenario_id=name,
            city=city,
        )


def _motion(
    state: NDArray[np.float64], observed: int, step_s: float, focal: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return headings ``[A, T]`` and velocities ``[A, T, 2]``, estimated in the states that lack them.

    ``velocity`` and ``velocityY`` are in the frame of the obstacle. Point masses have no orientation: theirs
    are along the axes of the map, and they head as they move. A speed alone is turned as the track moves.
    """
    estimate = Scenario.from_arrays(state[..., :2], num_observed=observed, step_s=step_s, focal=focal).tracks
    heading = state[..., 2].copy()
    speed = state[..., 3:]
    is_oriented = np.isfinite(heading)
    is_vector = np.isfinite(speed).all(-1)

    estimated_speed = norm(estimate.velocity)
    moves = estimated_speed > 0
    scale = np.divide(np.abs(speed[..., 0]), estimated_speed, where=moves, out=np.ones(moves.shape))
    velocity = np.where(np.isfinite(scale), scale, 1.0)[..., None] * estimate.velocity
    is_turned = is_oriented & np.isfinite(speed[..., 0])
    velocity[is_turned] = rotate(np.nan_to_num(speed[is_turned]), heading[is_turned])
    is_point_mass = is_vector & ~is_oriented
    velocity[is_point_mass] = speed[is_point_mass]

    is_heading = is_point_mass & (norm(velocity) >= STANDING_SPEED)
    heading[is_heading] = np.arctan2(velocity[is_heading, 1], velocity[is_heading, 0])
    return np.where(np.isfinite(heading), given_heading(heading), estimate.heading), velocity


def _candidates(
    user: NDArray[np.bool_], is_static: NDArray[np.bool_], x: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return ``[A]`` which tracks can be focal: road users at the last observed step, static ones last.

    ``x`` ``[A]`` is not finite where a track is not seen at that step. Raises: DataError if there is none.
    """
    seen = user & np.isfinite(x)
    require(bool(seen.any()), "obstacle", "no road user is seen at the last observed step")
    moving = seen & ~is_static
    return moving if moving.any() else seen


def _focal(position: NDArray[np.float64], candidate: NDArray[np.bool_], now: int, second: int) -> int:
    """Choose the focal one of the tracks ``[A, T, 2]``, of which some are candidates.

    It is the one that is seen at the most steps; of several the one that departs farthest from the velocity
    of its last observed second.
    """
    last = position[:, now - 1]
    steps = position.shape[1]
    back = max(now - 1 - second, 0)
    step = (last - position[:, back]) / max(now - 1 - back, 1)
    steady = last[:, None] + step[:, None] * np.arange(1, steps - now + 1)[:, None]
    error = np.nan_to_num(norm(steady - position[:, now:])).max(axis=1)
    seen = np.where(candidate, np.isfinite(position[..., 0]).sum(1), -1)
    return int(np.lexsort((error, seen))[-1])


register("source", "commonroad")(Source(discover, read, "*.xml, or {train,val,test}/*.xml", EVERY_S))
