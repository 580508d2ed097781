"""Cut forecasting scenarios out of CommonRoad scenarios: lanelets and obstacles, versions 2018b and 2020a.

By default, windows of 11 s with 5 s observed begin every 1.5 s (:class:`~trajpred.sources.windows.Windows`).
The time step is the file's.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from trajpred.data.geometry import norm, rotate
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import STANDING_SPEED, given_heading
from trajpred.data.registry import register
from trajpred.data.resample import resample
from trajpred.data.scenario import Scenario
from trajpred.data.splits import SPLITS
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
from trajpred.sources.windows import Windows, roles


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


def _size(obstacle: Element) -> list[float]:
    """Return the length and width of an obstacle, a rectangle or a circle; NaN for other shapes."""
    circle = obstacle.findtext("shape/circle/radius")
    if circle is not None:
        return [2 * as_number(circle, "shape.radius")] * 2
    size: list[float] = []
    for name in ("length", "width"):
        text = obstacle.findtext(f"shape/rectangle/{name}")
        size.append(np.nan if text is None else as_number(text, f"shape.{name}"))
    return size


#: Object type by obstacle type; others are ``unknown``.
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


def discover(raw: Path, options: Windows = Windows()) -> dict[str, list[RawScenario]]:
    """Return the windows of the files in ``raw/{train,val,test}/``, or of those in ``raw`` itself as val."""
    splits = {split: _windows(raw / split, options) for split in SPLITS}
    if any(splits.values()):
        return splits
    return {"val": _windows(raw, options)}


def _windows(folder: Path, options: Windows) -> list[RawScenario]:
    """List the windows of a folder's files; one window of a file that cannot be read."""
    windows: list[RawScenario] = []
    for file in sorted(folder.glob("*.xml")):
        starts = range(1)
        with suppress(DataError), readable(file, "recording"):  # reading the window reports the reason
            recording = _Recording.of(parse(read_bytes(file)))
            starts = options.starts(recording.steps, recording.step_s)
        windows += [RawScenario(_window_name(file, start), file, start, file.stem) for start in starts]
    return windows


def _window_name(file: Path, start: int) -> str:
    return f"{file.stem}_{start:03d}"


def read(raw: RawScenario, options: Windows = Windows()) -> Scenario:
    """Read a window, or the first one of a file. Raises: DataError naming the file and the field at fault."""
    start = raw.part or 0
    with readable(raw.path, "recording"), np.errstate(all="ignore"):
        root = parse(read_bytes(raw.path))
        require(root.tag == "commonRoad", "root", "is not that of a CommonRoad scenario")
        parts = read_lanelets(root)
        name = _window_name(raw.path, start)
        city = "_".join(root.get("benchmarkID", "").split("_")[:2])  # the country and the map
        scenario = _Recording.of(root).window(start, options, name, lane_map_of(parts), city)
        if options.step_s is not None:
            observed, steps = options.steps(options.step_s)
            scenario = resample(scenario, options.step_s).window(observed, steps - observed)
    parts.problems.warn(raw.path)
    return scenario


class _Obstacle(NamedTuple):
    """An obstacle of a file.

    Attributes:
        name: its id.
        object_type: its object type.
        size: length and width in metres; NaN where unknown.
        is_static: whether the file declares it static.
        states: its steps, each with x, y, heading, ``velocity`` and ``velocityY``.
    """

    name: str
    object_type: str
    size: list[float]
    is_static: bool
    states: list[tuple[int, list[float]]]

    @classmethod
    def of(cls, element: Element) -> _Obstacle:
        """Read an obstacle. Raises: DataError naming the element at fault."""
        states = [*element.iterfind("initialState"), *element.iterfind("trajectory/state")]
        return cls(
            name=element.get("id", ""),
            object_type=OBJECT_TYPE.get(element.findtext("type", ""), "unknown"),
            size=_size(element),
            is_static=element.tag == "staticObstacle" or element.findtext("role") == "static",
            states=[_state(state) for state in states],
        )


@dataclass(frozen=True)
class _Recording:
    """The ``A`` obstacles of a file over its ``N`` steps.

    Attributes:
        step_s: seconds between steps.
        obstacles: A obstacles.
        state: ``[A, N, 5]``: x, y (metres), heading (radians), ``velocity`` and ``velocityY`` (m/s), see
            :func:`_motion`; NaN where unknown.
    """

    step_s: float
    obstacles: list[_Obstacle]
    state: NDArray[np.float64]

    @classmethod
    def of(cls, root: Element) -> _Recording:
        """Read the obstacles of a scenario. Raises: DataError naming the element at fault."""
        step_s = number(root, "timeStepSize")
        require(0.01 <= step_s <= 1, "timeStepSize", f"must be 0.01 to 1 s, is {step_s}")
        obstacles = [_Obstacle.of(element) for element in root if element.tag in _OBSTACLES]
        steps: list[int] = []
        for obstacle in obstacles:
            steps += [step for step, _ in obstacle.states]
        first = min(steps, default=0)
        length = max(steps, default=-1) + 1 - first
        require(length <= MAX_STEPS, "time", f"spans {length} steps, more than {MAX_STEPS}")
        too_many = f"{len(obstacles)} over {length} steps are too many"
        require(length * len(obstacles) <= MAX_STATES, "obstacle", too_many)
        table = np.full((len(obstacles), length, 5), np.nan)
        for states, obstacle in zip(table, obstacles, strict=True):
            for step, values in obstacle.states:
                steps_of_state = slice(None) if obstacle.is_static else step - first
                states[steps_of_state] = values
            speed = states[:, 3]
            if obstacle.is_static:
                speed[np.isnan(speed) & np.isfinite(states[:, 0])] = 0.0
        return cls(step_s, obstacles, table)

    @property
    def steps(self) -> int:
        """Number of recorded steps."""
        return self.state.shape[1]

    def window(self, start: int, options: Windows, name: str, lane_map: LaneMap, city: str) -> Scenario:
        """Return the window from step ``start`` on. Raises: DataError if no track can be focal."""
        every_step = replace(options, every_s=self.step_s)
        require(start in every_step.starts(self.steps, self.step_s), "window", f"none begins at step {start}")
        observed, steps = options.steps(self.step_s)
        state = self.state[:, start : start + steps]
        rows = np.flatnonzero(np.isfinite(state).any((1, 2)))
        before = options.unknown_before(self.steps, self.step_s)
        after = steps - state.shape[1] - before
        state = np.pad(state[rows], ((0, 0), (before, after), (0, 0)), constant_values=np.nan)
        obstacles = [self.obstacles[row] for row in rows]
        kinds = [obstacle.object_type for obstacle in obstacles]
        focal, category = roles(
            state[..., :2],
            np.isfinite(state[..., 0]),
            kinds,
            observed=observed,
            step_s=self.step_s,
            is_static=np.array([obstacle.is_static for obstacle in obstacles], np.bool_),
        )
        heading, velocity = _motion(state, observed, self.step_s, focal)
        return Scenario.from_arrays(
            state[..., :2],
            num_observed=observed,
            step_s=self.step_s,
            heading=heading,
            velocity=velocity,
            size=np.array([obstacle.size for obstacle in obstacles]).reshape(-1, 2),
            object_type=kinds,
            track_id=[obstacle.name for obstacle in obstacles],
            focal=focal,
            category=category,
            map=lane_map,
            scenario_id=name,
            city=city,
        )


def _motion(
    state: NDArray[np.float64], observed: int, step_s: float, focal: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return headings ``[A, T]`` and velocities ``[A, T, 2]``, estimated in the states that lack them.

    ``velocity`` and ``velocityY`` are in the obstacle's frame. Point masses have no orientation: their
    velocities are along the map's axes, and their headings follow the motion. A speed alone gets the
    direction of motion.
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


register("source", "commonroad")(Source(discover, read, "*.xml, or {train,val,test}/*.xml", Windows))
