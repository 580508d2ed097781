"""Cut forecasting scenarios out of CommonRoad's: lanelets and recorded obstacles, versions 2018b and 2020a.

Windows of 11 s, of which 5 s are observed, begin every 1.5 s. A shorter recording is one window, too: the same
share of it is observed, and the steps before and after it are unknown. Steps are as long as in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.geometry import causal_heading, causal_velocity, norm, unit_vector
from trajpred.scenario import Scenario, TrackCategory
from trajpred.sources.maps.commonroad import read as read_lanelets
from trajpred.sources.maps.lanes import lane_map_of
from trajpred.sources.maps.xml_file import as_number, integer, number, parse, read_bytes, readable_xml
from trajpred.sources.tables import MAX_STATES, MAX_STEPS
from trajpred.splits import SPLITS

#: Seconds of a window, those that are observed, those between the starts of two windows, and the fewest.
WINDOW_S, OBSERVED_S, STRIDE_S, SHORTEST_S = 11.0, 5.0, 1.5, 2.0
#: A road user that moves this far (metres) in a window, from its first step to its last, is scored.
MOVED_M = 2.0
#: The object type of each type of obstacles; any other is ``unknown``.
OBJECT_TYPE = {
    **dict.fromkeys(("car", "truck", "taxi", "priorityVehicle", "parkedVehicle"), "vehicle"),
    "bus": "bus",
    "motorcycle": "motorcyclist",
    "bicycle": "cyclist",
    "pedestrian": "pedestrian",
    "constructionZone": "construction",
    **dict.fromkeys(("roadBoundary", "building", "pillar", "median_strip", "medianStrip"), "static"),
}
_SCORED = ("vehicle", "bus", "motorcyclist", "cyclist", "pedestrian")


def discover(raw: Path) -> dict[str, list[Path]]:
    """Return the windows of the files in ``raw/{train,val,test}/``, or of those in ``raw`` itself as val.

    Raises: DataError if there are no files.
    """
    found = {split: sorted((raw / split).glob("*.xml")) for split in SPLITS}
    if not any(found.values()):
        found = {"val": sorted(raw.glob("*.xml"))}
    if not any(found.values()):
        raise DataError(f"no scenarios; expected {raw}/*.xml or {raw}/{{train,val,test}}/*.xml", file=raw)
    return {split: [path for file in files for path in _windows(file)] for split, files in found.items()}


def _windows(file: Path) -> list[Path]:
    """Name the windows of a file, as files within it; one if it cannot be read."""
    try:
        with readable_xml(file):
            starts = list(_Recording.of(parse(read_bytes(file))).starts)
    except DataError:
        starts = [0]  # reading the window reports the reason
    return [file / f"{file.stem}_{start:03d}" for start in starts]


def read_scenario(path: Path) -> Scenario:
    """Read a window, or the first one of a file. Raises: DataError naming the file and the field at fault."""
    file, name = (path, f"{path.stem}_000") if path.suffix == ".xml" else (path.parent, path.name)
    with readable_xml(file), np.errstate(all="ignore"):
        root = parse(read_bytes(file))
        require(root.tag == "commonRoad", "root", "is not that of a CommonRoad scenario")
        recording = _Recording.of(root)
        start = integer(name.rpartition("_")[2], "window")
        wrong = f"no window begins at step {start}; they do at {', '.join(map(str, recording.starts))}"
        require(start in recording.starts, "window", wrong)
        city = "_".join(root.get("benchmarkID", "").split("_")[:2])
        return recording.window(root, start, name, city)


@dataclass(frozen=True)
class _Recording:
    """The ``A`` obstacles of a file over its ``N`` steps.

    Attributes:
        step_s: seconds between steps.
        name, object_type: A strings.
        state: ``[A, N, 4]``: x, y (metres), heading (radians) and speed (m/s); NaN where unknown.
    """

    step_s: float
    name: list[str]
    object_type: list[str]
    state: NDArray[np.float64]

    @classmethod
    def of(cls, root: Element) -> _Recording:
        """Read the obstacles of a scenario. Raises: DataError naming the element at fault."""
        step_s = number(root, "timeStepSize")
        require(0.01 <= step_s <= 1, "timeStepSize", f"must be 0.01 to 1 s, is {step_s}")
        found = [one for one in root if one.tag in ("obstacle", "dynamicObstacle", "staticObstacle")]
        states = [[_state(one) for one in _states(obstacle)] for obstacle in found]
        steps = [step for row in states for step, _ in row]
        first, last = min(steps, default=0), max(steps, default=-1)
        length = last - first + 1
        require(length <= MAX_STEPS, "time", f"spans {length} steps, more than {MAX_STEPS}")
        too_many = f"{len(found)} obstacles over {length} steps exceed {MAX_STATES} states"
        require(len(found) * length <= MAX_STATES, "obstacle", too_many)
        table = np.full((len(found), length, 4), np.nan)
        for row, (obstacle, known) in enumerate(zip(found, states, strict=True)):
            for step, values in known:
                table[row, step - first] = values
            if known and "static" in (obstacle.findtext("role"), obstacle.tag.removesuffix("Obstacle")):
                table[row] = known[0][1]
        kinds = [OBJECT_TYPE.get(one.findtext("type", ""), "unknown") for one in found]
        return cls(step_s, [one.get("id", "") for one in found], kinds, table)

    @property
    def frames(self) -> int:
        """Number of steps of a window."""
        return round(WINDOW_S / self.step_s)

    @property
    def starts(self) -> range:
        """The first steps of the windows. Raises: DataError if the recording is too short for one."""
        steps = self.state.shape[1]
        short = f"the obstacles are recorded for {steps * self.step_s:.1f} s, less than {SHORTEST_S:g} s"
        require(steps * self.step_s >= SHORTEST_S, "time", short)
        return range(0, max(steps - self.frames, 0) + 1, round(STRIDE_S / self.step_s))

    def window(self, root: Element, start: int, name: str, city: str) -> Scenario:
        """Return the window from step ``start`` on. Raises: DataError if nobody can be its focal track."""
        state = self.state[:, start : start + self.frames]
        observed, missing = (round(OBSERVED_S / WINDOW_S * n) for n in (self.frames, self.frames - state.shape[1]))
        padding = (missing, self.frames - state.shape[1] - missing)
        state = np.pad(state, ((0, 0), padding, (0, 0)), constant_values=np.nan)
        kept = np.flatnonzero(np.isfinite(state[..., 0]).any(1))
        state, kinds = state[kept], [self.object_type[row] for row in kept]
        position, heading, speed = state[..., :2], state[..., 2], state[..., 3]
        valid = np.isfinite(position[..., 0])
        fitted = causal_velocity(np.where(valid[..., None], position, 0.0), valid, self.step_s)
        heading = np.where(np.isnan(heading), causal_heading(fitted, valid), heading)
        along = speed[..., None] * unit_vector(heading)
        scorable = np.isin(kinds, _SCORED)
        first, last = padding[0], self.frames - 1 - padding[1]
        moved = norm(position[:, last] - position[:, first])
        whole = valid[:, first : last + 1].all(1)
        candidate = scorable & valid[:, observed - 1]
        velocity = np.where(np.isnan(along), fitted, along)
        return Scenario.from_arrays(
            position, num_observed=observed, step_s=self.step_s, heading=heading, velocity=velocity,
            object_type=kinds, track_id=[self.name[row] for row in kept],
            focal=_focal(position, velocity, candidate, observed, self.step_s),
            category=np.where(scorable & whole & (moved >= MOVED_M), TrackCategory.SCORED, TrackCategory.UNSCORED),
            map=lane_map_of(*read_lanelets(root)), scenario_id=name, city=city,
        )  # fmt: skip


def _focal(
    position: NDArray[np.float64],
    velocity: NDArray[np.float64],
    candidate: NDArray[np.bool_],
    now: int,
    step_s: float,
) -> int:
    """Choose the track ``[A]`` that is seen at the most steps, and of these the least predictable one.

    That is the one which ends farthest from where a constant velocity leads. Raises: DataError without any.
    """
    require(bool(candidate.any()), "obstacle", "no road user is seen at the last observed step")
    ahead = np.arange(position.shape[1] - now + 1) * step_s
    steady = position[:, now - 1, None] + velocity[:, now - 1, None] * ahead[:, None]
    error = np.nan_to_num(norm(steady - position[:, now - 1 :])).max(axis=1)
    seen = np.where(candidate, np.isfinite(position[..., 0]).sum(1), -1)
    return int(np.lexsort((error, seen))[-1])


def _states(obstacle: Element) -> list[Element]:
    return [*obstacle.iterfind("initialState"), *obstacle.iterfind("trajectory/state")]


def _state(state: Element) -> tuple[int, tuple[float, ...]]:
    """Return the step of a state, and its x, y, heading and speed; the middle of an interval."""
    x, y = (as_number(state.findtext(f"position//{axis}"), f"position.{axis}") for axis in "xy")
    step = integer(state.findtext("time/exact"), "time")
    return step, (x, y, _value(state, "orientation"), _value(state, "velocity"))


def _value(state: Element, name: str) -> float:
    found = [state.findtext(f"{name}/{part}") for part in ("exact", "intervalStart", "intervalEnd")]
    known = [as_number(text, name) for text in found if text is not None]
    return sum(known) / len(known) if known else np.nan
