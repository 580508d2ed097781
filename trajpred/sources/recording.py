"""A recording as rows, one per state: checked, with velocities and headings, and cut into scenarios."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trajpred.data.checks import as_names
from trajpred.data.geometry import direction, norm, wrap_angle
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import (
    STANDING_SPEED,
    UNKNOWN_HEADING,
    causal_heading,
    causal_velocity_of_rows,
    disagreement,
    given_heading,
)
from trajpred.data.ragged import rank_in_scene
from trajpred.data.resample import tracks_at
from trajpred.data.scenario import Scenario
from trajpred.data.time import GAP_STEPS, LONGEST_STEP_S, longest_gap_s
from trajpred.data.tracks import MAX_HEADING, OBJECT_TYPES, UNKNOWN_TYPE, TrackCategory, Tracks, usual_types
from trajpred.errors import DataError, quoted, require
from trajpred.sources.columns import CLASSES, Column
from trajpred.sources.reading import MAX_STATES, sizes_of, text_codes
from trajpred.sources.windows import ROAD_USERS, SHORTEST_S, Windows, roles

#: Steps faster than this (m/s) show wrong units or ids.
FASTEST = 80.0
#: If nearly all steps are slower than this (m/s), units or ids are wrong, too.
SLOWEST = 0.05
#: Speed (m/s) from which a heading is compared with the motion.
MOVING = 2.0
#: Largest median difference (radians) between heading and motion.
ASKEW = np.pi / 6
#: Median vehicle lengths (metres) outside these limits show wrong units.
SHORTEST_M = 2.0
LONGEST_M = 12.0
#: Least seconds between states; 1 kHz is the highest rate.
SHORTEST_STEP_S = 0.001
#: Steps of a track of which at least a quarter must be as short as elsewhere: a rate may not change.
RUN = 16
#: Times farther than this (seconds) from all others are mistakes if they are too few for a window.
PAUSE_S = 86_400.0
#: Share of distinct times among rows below which float32 may have rounded times.
ROUNDED = 0.1
#: Largest ratio between given speeds and speeds from positions.
SPEED_RATIO = 1.1


@dataclass(frozen=True)
class Recording:
    """``N`` states of ``A`` road users, by time.

    Attributes:
        time: ``[N]`` seconds since the first state.
        track: ``[N]`` the track of each state.
        track_id, object_type: ``[A]`` names.
        position: ``[N, 2]`` metres.
        heading: ``[N]`` radians, NaN where unknown.
        velocity: ``[N, 2]`` m/s.
        size: ``[A, 2]`` metres, length and width; NaN where unknown.
        step_s: usual seconds between two states of a track.
        warnings: what looks wrong, with the figure, by kind.
    """

    time: NDArray[np.float64]
    track: NDArray[np.int64]
    track_id: list[str]
    object_type: NDArray[np.str_]
    position: NDArray[np.float64]
    heading: NDArray[np.float64]
    velocity: NDArray[np.float64]
    size: NDArray[np.float64]
    step_s: float
    warnings: dict[str, str]

    @classmethod
    def of(cls, table: pa.Table, mapping: dict[str, Column]) -> Recording:
        """Sort the rows of a recording, and check them. Raises: DataError about a column."""
        names = {role: column.name for role, column in mapping.items()}
        table = _states(table, names)
        stamps = table["time"].to_numpy()
        time = stamps - stamps.min()
        track, ids = text_codes(table, "track")
        order, repeated = _by_track_and_time(track, time)
        oddities: dict[str, str] = {}
        if repeated > len(order):
            _require_resolved(stamps / mapping["time"].factor, names["time"])
        if repeated:
            oddities["rows"] = f"{repeated:,} of {len(stamps):,} rows repeat a time of a track: left out"
        track = track[order]
        time = time[order]
        heading = table["heading"].to_numpy()[order]
        _require_radians(heading, names.get("heading", "heading"))
        step_s = _step_s(track, time, names)
        position = np.stack((table["x"], table["y"]), -1)[order]
        measured = np.stack((table["vx"], table["vy"]), -1)[order]
        estimated = causal_velocity_of_rows(track, time, position, step_s)
        oddities |= _oddities(track, time, position, heading, measured)
        if "rate" not in oddities:
            problem = disagreement(measured, estimated)
            if problem:
                oddities["velocity"] = problem
        kinds, odd_types = _types(table["type"].take(order), track, mapping)
        size = sizes_of(np.stack((table["length"], table["width"]), -1)[order], track, len(ids))
        oddities |= _odd_sizes(size[kinds == "vehicle", 0])
        is_measured = np.isfinite(measured).all(axis=1)
        velocity = np.where(is_measured[:, None], measured, estimated)
        by_time = np.argsort(time, kind="stable")
        return cls(
            time=time[by_time],
            track=track[by_time],
            track_id=ids,
            object_type=kinds,
            position=position[by_time],
            heading=given_heading(wrap_angle(heading))[by_time],
            velocity=velocity[by_time],
            size=size,
            step_s=step_s,
            warnings=oddities | odd_types,
        )

    def between(self, first_s: float, last_s: float) -> Recording:
        """Return the states between two times, with times since the first state of the whole recording.

        Raises: DataError if there is no state.
        """
        rows = slice(*np.searchsorted(self.time, (first_s, last_s)))
        require(rows.start < rows.stop, "time", f"has no state from {first_s:g} to {last_s:g} s")
        return replace(
            self,
            time=self.time[rows],
            track=self.track[rows],
            position=self.position[rows],
            heading=self.heading[rows],
            velocity=self.velocity[rows],
        )

    def facts(self) -> dict[str, str]:
        """Return the facts about a recording."""
        kinds, counts = np.unique(self.object_type, return_counts=True)
        classes = ", ".join(f"{count:,} {kind}" for kind, count in zip(kinds, counts, strict=True))
        low = self.position.min(axis=0)
        high = self.position.max(axis=0)
        speed = norm(self.velocity)
        moving = speed[speed > STANDING_SPEED]
        middle = f"{np.median(moving):.1f} m/s in the median of those that move, " if len(moving) else ""
        headings = int(np.isfinite(self.heading).sum())
        return {
            "tracks": f"{len(self.track_id):,}: {classes}",
            "states": f"{len(self.time):,} in {self.duration_s:.1f} s, every {self.step_s:.3g} s",
            "extent": f"x {low[0]:.1f} to {high[0]:.1f}, y {low[1]:.1f} to {high[1]:.1f} m",
            "speeds": f"{middle}up to {speed.max():.1f} m/s",
            "sizes": f"given of {int(np.isfinite(self.size).all(axis=1).sum()):,} tracks, elsewhere typical",
            "headings": f"given in {headings:,} states, elsewhere from the motion",
            "warnings": "; ".join(self.warnings.values()) or "none",
        }

    @property
    def duration_s(self) -> float:
        """Seconds from the first state to the end of the step of the last one."""
        return float(self.time[-1] - self.time[0]) + self.step_s

    def windows(self, options: Windows) -> dict[int, float]:
        """Return each window's first step, and the time of the last state in its observed seconds.

        Windows without a road user at the last observed step are omitted.

        Raises: DataError if the recording is too short.
        """
        step_s = options.step_s or self.step_s
        recorded = int(self.duration_s / step_s + 0.01)
        starts = options.starts(recorded, step_s)
        unknown_s = options.unknown_before(recorded, step_s) * step_s
        first_end = options.observe_s - unknown_s + self.time[0]  # of the observed seconds
        is_road_user = np.isin(self.object_type, ROAD_USERS)
        seen = self.time[is_road_user[self.track]]
        gap_s = longest_gap_s(self.step_s, step_s)
        # Only windows whose observed seconds end soon after a state: a recording may pause for days.
        every_s = starts.step * step_s
        before = np.unique(np.floor((seen - first_end) / every_s).astype(np.int64))
        window = np.unique(before[:, None] + np.arange(math.ceil(gap_s / every_s) + 2))
        window = window[(window >= 0) & (window < len(starts))]
        end = first_end + window * every_s
        last = np.searchsorted(seen, end - 0.01 * self.step_s) - 1
        now = seen[last.clip(0)] if len(seen) else end
        is_near = (last >= 0) & (end - now <= gap_s)
        first_step = window * starts.step
        return dict(zip(first_step[is_near].tolist(), now[is_near].tolist(), strict=True))

    def scenario(self, now: float, options: Windows, name: str, lanes: LaneMap) -> Scenario:
        """Return the window whose last observed step is at ``now``."""
        step_s = options.step_s or self.step_s
        observed, steps = options.steps(step_s)
        grid: NDArray[np.float64] = np.arange(1 - observed, steps - observed + 1) * np.float64(step_s)
        tracks = self._tracks_at(now, grid, step_s)
        unknown = tracks.valid & (tracks.heading == UNKNOWN_HEADING)
        estimate = causal_heading(tracks.velocity, tracks.position, tracks.valid)
        kinds = [OBJECT_TYPES[code] for code in tracks.object_type]
        focal, category = roles(tracks.position, tracks.valid, kinds, observed=observed, step_s=step_s)
        heading = np.where(unknown, estimate, tracks.heading)
        return Scenario(
            scenario_id=name,
            city="local",
            timestamps_ns=np.round((now + grid) * 1e9).astype(np.int64),
            num_observed=observed,
            focal_id=str(tracks.track_id[focal]),
            tracks=replace(tracks, heading=heading, category=category.astype(np.int8)),
            map=lanes,
        ).validate()

    def _tracks_at(self, now: float, grid: NDArray[np.float64], step_s: float) -> Tracks:
        """Return the tracks at the times ``grid`` from ``now`` on."""
        gap_s = longest_gap_s(self.step_s, step_s)
        reach = (now + grid[0] - gap_s, now + grid[-1] + gap_s)
        rows = slice(*np.searchsorted(self.time, reach))
        time, step = np.unique(self.time[rows] - now, return_inverse=True)
        tracks, row = np.unique(self.track[rows], return_inverse=True)
        shape = (len(tracks), len(time))
        too_large = f"{shape[0]} tracks at {shape[1]} times are too many: choose shorter windows"
        require(shape[0] * shape[1] <= MAX_STATES, "time", too_large)
        valid = np.zeros(shape, np.bool_)
        position, velocity = np.zeros((2, *shape, 2))
        heading = np.zeros(shape)
        valid[row, step] = True
        position[row, step] = self.position[rows]
        velocity[row, step] = self.velocity[rows]
        heading[row, step] = self.heading[rows]
        recorded = Tracks(
            track_id=as_names([self.track_id[index] for index in tracks], "track"),
            object_type=np.array([OBJECT_TYPES.index(kind) for kind in self.object_type[tracks]], np.int8),
            category=np.full(len(tracks), TrackCategory.UNSCORED, np.int8),
            valid=valid,
            position=position,
            heading=heading,
            velocity=velocity,
            size=self.size[tracks],
        )
        return tracks_at(recorded, time, grid, recorded_s=self.step_s, step_s=step_s)


def _states(table: pa.Table, names: dict[str, str]) -> pa.Table:
    """Return the rows with a position. Raises: DataError if one has no track or no time."""
    is_state = np.isfinite(table["x"].to_numpy()) & np.isfinite(table["y"].to_numpy())
    is_unnamed = pc.is_in(pc.utf8_lower(table["track"]), pa.array(["", "nan", None])).to_numpy()
    _require_rows(table, ~(is_state & is_unnamed), names["track"], "is missing")
    is_timed = np.isfinite(table["time"].to_numpy())
    _require_rows(table, ~is_state | is_timed, names["time"], "is missing or no number")
    _require_one_clock(table, is_state, names["time"])
    states = table.filter(pa.array(is_state))
    require(states.num_rows > 1, names["x"], "the recording has less than two states")
    return states


def _by_track_and_time(track: NDArray[np.int64], time: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """Return the rows by track and time without repeated times, and the number of rows dropped."""
    order = np.lexsort((time, track))
    repeats = np.zeros(len(order), np.bool_)
    repeats[1:] = (np.diff(track[order]) == 0) & (np.diff(time[order]) == 0)
    return order[~repeats], int(repeats.sum())


def _require_radians(heading: NDArray[np.float64], column: str) -> None:
    """Raise DataError about a column with headings that must be in degrees."""
    largest = np.abs(heading[np.isfinite(heading)]).max(initial=0.0)
    degrees = f"reaches {largest:.0f}, which cannot be radians: state heading={column}:deg"
    require(largest <= MAX_HEADING, column, degrees)


def _require_rows(table: pa.Table, correct: NDArray[np.bool_], column: str, problem: str) -> None:
    """Raise a DataError about a column that names the first incorrect row ``[N]``."""
    wrong = np.flatnonzero(~correct)
    if not len(wrong):
        return
    row = int(wrong[0])
    time = table["time"][row].as_py()
    place = f"row {row + 1} (track {quoted(table['track'][row].as_py())}, time {time:.10g} s)"
    others = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
    raise DataError(f"{problem}: {place}{others}", field=column)


def _require_one_clock(table: pa.Table, is_state: NDArray[np.bool_], column: str) -> None:
    """Raise DataError naming a state whose time is far from all others, such as 0 among UNIX seconds."""
    time = table["time"].to_numpy()
    states = np.flatnonzero(is_state)
    by_time = states[np.argsort(time[states], kind="stable")]
    after_pause = np.flatnonzero(np.diff(time[by_time]) > PAUSE_S) + 1
    if not len(after_pause):
        return
    # The rows of the first and last state between two pauses.
    first = by_time[np.concatenate(([0], after_pause))]
    last = by_time[np.concatenate((after_pause, [len(by_time)])) - 1]
    is_short = time[last] - time[first] < SHORTEST_S
    correct = np.ones(len(time), np.bool_)
    correct[first[is_short]] = False
    _require_rows(table, correct, column, "is a day or more away from the others, correct it")


def _require_resolved(time: NDArray[np.float64], column: str) -> None:
    """Raise DataError about times ``[N]`` of which few are distinct, since float32 has rounded them."""
    resolution = float(np.spacing(np.float32(np.abs(time).max())))
    distinct = np.unique(time)
    least = np.diff(distinct).min(initial=np.inf)
    is_rounded = 0.4 * resolution <= least and len(distinct) < ROUNDED * len(time) and resolution > 1e-3
    rounded = f"float32 has rounded the times to multiples of {resolution:g}: write float64 or int64"
    require(not is_rounded, column, rounded)


def _step_s(track: NDArray[np.int64], time: NDArray[np.float64], names: dict[str, str]) -> float:
    """Return the usual seconds between a track's states, although up to half of the states are lost.

    Raises: DataError if they are implausible, or differ between tracks or times.
    """
    is_same = np.diff(track) == 0
    track_of_step = track[1:][is_same]
    steps = np.diff(time)[is_same]
    require(len(steps) > 0, names["track"], "no track has two states: is the column of tracks right?")
    # The lower quartile of the steps in each run of a track, counted once for each of these steps.
    run_in_track = rank_in_scene(track_of_step) // RUN
    run = track_of_step * (run_in_track.max() + 1) + run_in_track
    _, first, count = np.unique(run, return_index=True, return_counts=True)
    ascending = steps[np.lexsort((steps, run))]
    quartile = np.repeat(ascending[first + (count - 1) // 4], count)
    short, middle, long = np.quantile(quartile, (0.1, 0.5, 0.75)).tolist()
    step_s = float(np.median(steps[steps <= GAP_STEPS * middle]))
    usual = f"{SHORTEST_STEP_S:g} to {LONGEST_STEP_S:g} s"
    unit = f"states of a track are {step_s:.3g} s apart in the median instead of {usual}: check the unit"
    require(0.99 * SHORTEST_STEP_S <= step_s <= LONGEST_STEP_S, names["time"], unit)
    mixed = f"mixes steps of {short:.3g} and {long:.3g} s: put each rate into a file of its own"
    require(long <= GAP_STEPS * step_s and step_s <= GAP_STEPS * short, names["time"], mixed)
    return step_s


def _oddities(
    track: NDArray[np.int64],
    time: NDArray[np.float64],
    position: NDArray[np.float64],
    heading: NDArray[np.float64],
    velocity: NDArray[np.float64],
) -> dict[str, str]:
    """Describe what looks wrong in the states ``[N]``, sorted by track and time."""
    first = np.flatnonzero(np.diff(track) == 0)
    step = position[first + 1] - position[first]
    speed = norm(step) / (time[first + 1] - time[first])
    oddities: dict[str, str] = {}
    fast = int((speed > FASTEST).sum())
    if fast:
        oddities["speed"] = (
            f"{fast:,} of {len(speed):,} steps are faster than {FASTEST:g} m/s, up to {speed.max():.4g} m/s: "
            "check the units of x, y and time, and whether ids are used twice"
        )
    most = float(np.quantile(speed, 0.99))
    if most < SLOWEST:
        oddities["speed"] = (
            f"99 % of the steps are slower than {most:.2g} m/s: check the units of x, y and time"
        )
    measured = norm(velocity[first])
    comparable = np.isfinite(measured) & (measured > MOVING)
    if comparable.any():
        ratio = float(np.median(speed[comparable] / measured[comparable]))
        if not 1 / SPEED_RATIO <= ratio <= SPEED_RATIO:
            oddities["rate"] = (
                f"positions move {ratio:.3g} times as fast as vx and vy: check units and rate of frames"
            )
    moving = np.isfinite(heading[first]) & (speed > MOVING)
    if moving.any():
        askew = np.abs(wrap_angle(heading[first] - direction(step)))[moving]
        if np.median(askew) > ASKEW:
            degrees = np.degrees(np.median(askew))
            oddities["heading"] = (
                f"headings are {degrees:.0f} degrees off the motion in the median: check their unit, whether "
                "y points down (y=COLUMN:down), and whether x and y are exchanged"
            )
    return oddities


def _odd_sizes(length: NDArray[np.float64]) -> dict[str, str]:
    """Describe vehicle lengths ``[V]`` that look wrong."""
    lengths = length[np.isfinite(length)]
    usual = float(np.median(lengths)) if len(lengths) else SHORTEST_M
    if SHORTEST_M <= usual <= LONGEST_M:
        return {}
    return {"size": f"vehicles are {usual:.3g} m long in the median: check the units of length and width"}


def _types(
    classes: pa.ChunkedArray, track: NDArray[np.int64], mapping: dict[str, Column]
) -> tuple[NDArray[np.str_], dict[str, str]]:
    """Return each track's most frequent known object type ``[A]``, and what is odd about the types.

    Args:
        classes: ``[N]`` the class of each state.
        track: ``[N]`` its track.

    Raises: DataError if the classes of all tracks are unknown.
    """
    type_of_word = CLASSES | {name: name for name in OBJECT_TYPES}
    if "type" in mapping:
        type_of_word |= mapping["type"].classes
    encoded = classes.combine_chunks().dictionary_encode("encode")
    words = [str(word) for word in encoded.dictionary.to_pylist()]
    kinds = [type_of_word.get(word.lower(), "unknown") for word in words]
    code = np.array([OBJECT_TYPES.index(kind) for kind in kinds])[encoded.indices.to_numpy()]
    count = np.zeros((int(track.max()) + 1, len(OBJECT_TYPES)), np.int64)
    np.add.at(count, (track, code), 1)
    object_type = usual_types(count)
    count[:, UNKNOWN_TYPE] = 0
    is_known = count.any(axis=1)
    odd: dict[str, str] = {}
    changing = int(((count > 0).sum(axis=1) > 1).sum())
    if changing:
        share = f"{changing:,} of {len(count):,} tracks"
        odd["change"] = f"{share} change their class: the most frequent known one counts"
    strange = sorted({word for word in words if word.lower() not in type_of_word})
    if strange and not is_known.all():
        listed = ", ".join(quoted(word) for word in strange[:5])
        name = mapping["type"].name
        types = f"TYPE of {', '.join(ROAD_USERS)}"
        advice = f"state their types: type={name}:{strange[0]}=TYPE with a {types}"
        require(bool(is_known.any()), name, f"has only unknown classes, {listed}; {advice}")
        odd["type"] = f"{(~is_known).sum()} tracks are of unknown classes, {listed}; {advice}"
    return np.array(OBJECT_TYPES)[object_type], odd
