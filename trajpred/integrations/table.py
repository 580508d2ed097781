"""Scenarios from tables of anyone's recordings, CSV or parquet with a row per state: the source ``table``.

Recordings are cut into windows (:class:`~trajpred.sources.windows.Windows`) whose last observed step is that
of a recorded state, and resampled with the true times of their states. docs/how-to/own-data.md has the rules.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

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
    given_heading,
)
from trajpred.data.resample import tracks_at
from trajpred.data.scenario import Scenario
from trajpred.data.splits import SPLITS, draw
from trajpred.data.time import GAP_STEPS, LONGEST_STEP_S, SHORTEST_STEP_S
from trajpred.data.tracks import MAX_HEADING, OBJECT_TYPES, TrackCategory, Tracks
from trajpred.errors import DataError, quoted, require, require_finite
from trajpred.integrations.maps import read_map
from trajpred.sources import Source
from trajpred.sources.reading import MAX_STATES, RawScenario, text_codes
from trajpred.sources.tables import (
    CLASSES,
    PRESETS,
    Column,
    Preset,
    parse_columns,
    read_rows,
    recording_of,
    recordings_in,
)
from trajpred.sources.windows import ROAD_USERS, Windows, roles

#: Rows that are read at once, of as many recordings of a file as there are.
MAX_ROWS = 2**21
#: The text that is hashed to choose the split of a recording.
SPLIT = "split of the recording {}"
#: Fraction of the recordings, or of the only one, that becomes the split ``val``.
VAL_FRACTION = 0.2
#: Faster steps (m/s) are a mistake of units or ids.
FASTEST = 80.0
#: Where nearly all are slower (m/s), too.
SLOWEST = 0.05
#: Speed (m/s) from which a heading is compared with the motion.
MOVING = 2.0
#: Greatest median difference (radians) between them.
ASKEW = np.pi / 6
#: Greatest deviation of the speeds of positions from those that are given.
SPEED_RATIO = 1.1
#: Greatest median distance (metres) of vehicles from the nearest point of a lane.
OFF_MAP_M = 20.0


@dataclass(frozen=True)
class TableOptions(Windows):
    """Options of tables.

    Attributes:
        every_s: Seconds between the starts of windows.
        observe_s: Seconds of a window that are observed.
        predict_s: Seconds of a window after those.
        step_s: Seconds between steps, to which states are resampled.
        preset: Files and columns of a published data set: ind, round, exid, unid, highd, interaction,
            eth-ucy, ngsim, nuscenes, waymo.
        columns: Columns and their units, such as track=id time=t_ms:ms x=X y=Y heading=yaw:deg type=class;
            with a preset instead of its own (docs/how-to/own-data.md).
        map: A map of the recordings: Lanelet2, OpenDRIVE, CommonRoad or Argoverse 2.
        origin: Of a Lanelet2 map, latitude and longitude of the origin of the positions.
    """

    step_s: float | None = 0.1
    preset: str | None = None
    columns: tuple[str, ...] = ()
    map: Path | None = None
    origin: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "columns", tuple(self.columns))
        if self.preset is not None:
            object.__setattr__(self, "preset", self.preset.lower())
        require(self.preset is not None or bool(self.columns), "columns", "or --preset must say the columns")
        known = f"unknown preset {self.preset!r}; known: {', '.join(PRESETS)}"
        require(self.preset is None or self.preset in PRESETS, "preset", known)
        _ = self.mapping

    @property
    def files(self) -> Preset:
        """The files of the data set."""
        return Preset("") if self.preset is None else PRESETS[self.preset]

    @property
    def mapping(self) -> dict[str, Column]:
        """The column of each role."""
        return parse_columns([*self.files.columns.split(), *self.columns])


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
        step_s: median seconds between two states of a track.
        warnings: what looks wrong, with a figure, by kind.
    """

    time: NDArray[np.float64]
    track: NDArray[np.int64]
    track_id: list[str]
    object_type: NDArray[np.str_]
    position: NDArray[np.float64]
    heading: NDArray[np.float64]
    velocity: NDArray[np.float64]
    step_s: float
    warnings: dict[str, str]

    @classmethod
    def of(cls, table: pa.Table, mapping: dict[str, Column]) -> Recording:
        """Sort the rows of a recording, and check them. Raises: DataError about a column."""
        names = {role: column.name for role, column in mapping.items()}
        require(table["track"].null_count == 0, names["track"], "is missing in at least one row")
        require_finite(table["time"].to_numpy(), names["time"])
        table = table.filter(pc.and_(pc.is_finite(table["x"]), pc.is_finite(table["y"])))
        require(table.num_rows > 1, names["x"], "the recording has less than two states")
        track, ids = text_codes(table, "track")
        time = table["time"].to_numpy() - table["time"].to_numpy().min()
        order = np.lexsort((time, track))
        repeated = np.zeros(len(order), np.bool_)
        repeated[1:] = (np.diff(track[order]) == 0) & (np.diff(time[order]) == 0)
        found: dict[str, str] = {}
        if repeated.any():
            found["rows"] = f"{repeated.sum():,} of {len(order):,} rows repeat a time of a track: left out"
        order = order[~repeated]
        track, time = track[order], time[order]
        x, y, heading, vx, vy = (table[role].to_numpy()[order] for role in ("x", "y", "heading", "vx", "vy"))
        largest = np.abs(heading[np.isfinite(heading)]).max(initial=0.0)
        degrees = f"reaches {largest:.0f}, which cannot be radians: state heading={names.get('heading')}:deg"
        require(largest <= MAX_HEADING, names.get("heading", "heading"), degrees)
        step_s = _step_s(track, time, names["time"])
        position = np.stack((x, y), -1)
        given = np.stack((vx, vy), -1)
        estimated = causal_velocity_of_rows(track, time, position, step_s)
        found |= _oddities(track, time, position, heading, given)
        first = np.searchsorted(track, np.arange(len(ids)))
        kinds, unknown = _types(table["type"].take(order[first]).to_pylist(), mapping)
        by_time = np.argsort(time, kind="stable")
        return cls(
            time=time[by_time],
            track=track[by_time],
            track_id=ids,
            object_type=kinds,
            position=position[by_time],
            heading=given_heading(wrap_angle(heading))[by_time],
            velocity=np.where(np.isfinite(given), given, estimated)[by_time],
            step_s=step_s,
            warnings=found | unknown,
        )

    def facts(self) -> dict[str, str]:
        """Return what is shown of a recording."""
        kinds, counts = np.unique(self.object_type, return_counts=True)
        classes = ", ".join(f"{count:,} {kind}" for kind, count in zip(kinds, counts, strict=True))
        low = self.position.min(axis=0)
        high = self.position.max(axis=0)
        speed = norm(self.velocity)
        moving = speed[speed > STANDING_SPEED]
        middle = f"{np.median(moving):.1f} m/s in the median of those that move, " if len(moving) else ""
        known = int(np.isfinite(self.heading).sum())
        return {
            "tracks": f"{len(self.track_id):,}: {classes}",
            "states": f"{len(self.time):,} in {self.duration_s:.1f} s, every {self.step_s:.3g} s",
            "extent": f"x {low[0]:.1f} to {high[0]:.1f}, y {low[1]:.1f} to {high[1]:.1f} m",
            "speeds": f"{middle}up to {speed.max():.1f} m/s",
            "headings": f"given in {known:,} states, elsewhere from the motion",
            "warnings": "; ".join(self.warnings.values()) or "none",
        }

    @property
    def duration_s(self) -> float:
        """Seconds from the first state to the end of the step of the last one."""
        return float(self.time[-1]) + self.step_s

    def windows(self, options: TableOptions) -> dict[int, float]:
        """Return for each window its first step, and the time of the last state in its observed seconds.

        Windows without a road user at the end of the observed seconds are omitted.

        Raises: DataError if the recording is too short.
        """
        step_s = options.step_s or self.step_s
        recorded = int(self.duration_s / step_s + 0.01)
        starts = np.array(options.starts(recorded, step_s))
        end = (starts - options.unknown_before(recorded, step_s)) * step_s + options.observe_s
        seen = self.time[np.isin(self.object_type, ROAD_USERS)[self.track]]
        last = np.searchsorted(seen, end - 0.01 * self.step_s) - 1
        now = seen[last.clip(0)] if len(seen) else end
        kept = (last >= 0) & (end - now <= GAP_STEPS * max(self.step_s, step_s))
        return dict(zip(starts[kept].tolist(), now[kept].tolist(), strict=True))

    def scenario(self, now: float, options: TableOptions, name: str, lanes: LaneMap) -> Scenario:
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
        gap_s = GAP_STEPS * self.step_s
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
        )
        return tracks_at(recorded, time, grid, gap_s=gap_s, step_s=step_s)


def _step_s(track: NDArray[np.int64], time: NDArray[np.float64], name: str) -> float:
    """Return the median seconds between two states of a track. Raises: DataError if that is not a step."""
    steps = np.diff(time)[np.diff(track) == 0]
    require(len(steps) > 0, name, "no track has two states: is the column of tracks right?")
    short, step_s, long = np.quantile(steps, (0.1, 0.5, 0.75)).tolist()
    usual = f"{SHORTEST_STEP_S:g} to {LONGEST_STEP_S:g} s"
    unit = f"states of a track are {step_s:.3g} s apart in the median instead of {usual}: check the unit"
    require(SHORTEST_STEP_S <= step_s <= LONGEST_STEP_S, name, unit)
    mixed = f"mixes steps of {short:.3g} and {long:.3g} s: put each rate into a file of its own"
    require(long <= GAP_STEPS * step_s and step_s <= GAP_STEPS * short, name, mixed)
    return float(step_s)


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
    found: dict[str, str] = {}
    fast = int((speed > FASTEST).sum())
    if fast:
        found["speed"] = (
            f"{fast:,} of {len(speed):,} steps are faster than {FASTEST:g} m/s, up to {speed.max():.4g} m/s: "
            "check the units of x, y and time, and whether ids are used twice"
        )
    most = float(np.quantile(speed, 0.99))
    if most < SLOWEST:
        found["speed"] = f"99 % of the steps are slower than {most:.2g} m/s: check the units of x, y and time"
    given = norm(velocity[first])
    comparable = np.isfinite(given) & (given > MOVING)
    if comparable.any():
        ratio = float(np.median(speed[comparable] / given[comparable]))
        if not 1 / SPEED_RATIO <= ratio <= SPEED_RATIO:
            found["rate"] = (
                f"positions move {ratio:.3g} times as fast as vx and vy: check units and rate of frames"
            )
    moving = np.isfinite(heading[first]) & (speed > MOVING)
    if moving.any():
        askew = np.abs(wrap_angle(heading[first] - direction(step)))[moving]
        if np.median(askew) > ASKEW:
            degrees = np.degrees(np.median(askew))
            found["heading"] = (
                f"headings are {degrees:.0f} degrees off the motion in the median: check their unit, whether "
                "y points down (y=COLUMN:down), and whether x and y are exchanged"
            )
    return found


def _types(classes: list[str | None], mapping: dict[str, Column]) -> tuple[NDArray[np.str_], dict[str, str]]:
    """Return the object types of the classes ``[A]`` of tracks, and what is not known."""
    known = CLASSES | {name: name for name in OBJECT_TYPES}
    if "type" in mapping:
        known |= mapping["type"].classes
    kinds = np.array([known.get(str(name).lower(), "unknown") for name in classes])
    strange = sorted({str(name) for name in classes if str(name).lower() not in known})
    if not strange:
        return kinds, {}
    listed = ", ".join(quoted(name) for name in strange[:5])
    advice = f"say what they are: type={mapping['type'].name}:{strange[0]}=vehicle"
    return kinds, {"type": f"{(kinds == 'unknown').sum()} tracks are of unknown classes, {listed}; {advice}"}


# -------------------------------------------------------------------------------- files and recordings


class Place(NamedTuple):
    """The files of one or more recordings, with the sizes and times by which a change is noticed."""

    paths: tuple[Path, ...]
    stamps: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Place:
        stats = [path.stat() for path in paths]
        return cls(tuple(paths), tuple((stat.st_size, stat.st_mtime_ns) for stat in stats))


@lru_cache(maxsize=16)
def _groups(place: Place, options: TableOptions) -> tuple[tuple[str, ...], ...]:
    """Return the names of the recordings that are read at once, at most :data:`MAX_ROWS` rows or one."""
    counts: dict[str, int] = {}
    for path in place.paths:
        for name, rows in recordings_in(path, options.mapping, options.files).items():
            counts[name] = counts.get(name, 0) + rows
    if not counts:
        return (("",),)
    names = sorted(counts, key=str)
    group = np.cumsum([counts[name] for name in names]) // MAX_ROWS
    return tuple(tuple(names[i] for i in np.flatnonzero(group == number)) for number in np.unique(group))


@lru_cache(maxsize=1)
def _load(place: Place, options: TableOptions, names: tuple[str, ...]) -> dict[str, Recording | DataError]:
    """Read recordings, or why one cannot be read."""
    mapping = options.mapping
    only = () if names == ("",) else names
    table = pa.concat_tables([read_rows(path, mapping, options.files, only) for path in place.paths])
    file = place.paths[0]
    loaded: dict[str, Recording | DataError] = {}
    for name in names:
        rows = table if not only else table.filter(pc.equal(table["recording"], name))
        try:
            loaded[name] = Recording.of(rows, mapping)
        except DataError as error:
            loaded[name] = error.located(file)
    return loaded


def recordings(place: Place, options: TableOptions) -> Iterator[tuple[str, Recording | DataError]]:
    """Yield the recordings of files by their names; a file that cannot be read as "", with the reason."""
    try:
        for names in _groups(place, options):
            yield from _load(place, options, names).items()
    except DataError as error:
        yield "", error.located(place.paths[0])


def _recording(place: Place, options: TableOptions, name: str | None) -> Recording:
    """Return a recording, by default the first one. Raises: DataError if it cannot be read."""
    groups = _groups(place, options)
    names = groups[0] if name is None else next((group for group in groups if name in group), groups[0])
    recording = _load(place, options, names).get(names[0] if name is None else name)
    if not isinstance(recording, Recording):
        raise recording or DataError(f"has no recording {quoted(name)}", file=place.paths[0])
    return recording


def places(raw: Path, options: TableOptions) -> dict[str, Place]:
    """Return the files of each recording by name, of a folder or a single file. Raises: DataError if none."""
    if raw.is_file():
        return {recording_of(raw, options.files): _place_of(raw, options)}
    found: dict[str, list[Path]] = {}
    for path in sorted(raw.rglob("*")):
        if path.is_file() and options.files.matches(path.name):
            name = "-".join((*path.relative_to(raw).parts[:-1], recording_of(path, options.files)))
            found.setdefault(name, []).append(path)
    return {name: Place.of(paths) for name, paths in found.items()}


def _place_of(path: Path, options: TableOptions) -> Place:
    """Return the files of the recording to which a file belongs."""
    preset = options.files
    if not preset.matches(path.name):
        return Place.of([path])
    name = recording_of(path, preset)
    beside = sorted(other for other in path.parent.iterdir() if preset.matches(other.name))
    return Place.of([other for other in beside if recording_of(other, preset) == name])


# ------------------------------------------------------------------------------------------ the source


class Found(NamedTuple):
    """The windows of a recording, with their last observed times, its seconds, and those between states."""

    raw: list[RawScenario]
    now: list[float]
    duration_s: float
    gap_s: float


def discover(raw: Path, options: TableOptions) -> dict[str, list[RawScenario]]:
    """Return the windows of all recordings; of those in ``raw/{train,val,test}/`` in these splits.

    Elsewhere a fifth of the recordings, chosen by their names, becomes ``val``; of a single one the last
    fifth of its time, at least one window, and windows of both parts are left out.

    Warns about what looks wrong, once for each kind.
    """
    split_of_folder = {split: raw / split for split in SPLITS if raw.is_dir() and (raw / split).is_dir()}
    problems: dict[str, list[str]] = {}
    splits: dict[str, list[RawScenario]] = {}
    for split, folder in split_of_folder.items():
        splits[split] = [
            window for found in _found(folder, options, problems).values() for window in found.raw
        ]
    if not any(splits.values()):
        splits = _divided(_found(raw, options, problems), options)
    for sentences in problems.values():
        more = f" ({len(sentences) - 1} more like it)" if len(sentences) > 1 else ""
        warnings.warn(sentences[0] + more, stacklevel=2)
    return splits


def _found(raw: Path, options: TableOptions, problems: dict[str, list[str]]) -> dict[str, Found]:
    """Return the windows of each recording, and add what looks wrong to ``problems``."""
    found: dict[str, Found] = {}
    lanes = _lanes(options)
    for place_name, place in places(raw, options).items():
        for part, recording in recordings(place, options):
            name = "-".join(filter(None, (place_name, part)))
            path = place.paths[0]
            windows: dict[int, float] = {0: 0.0}  # of one that cannot be read: reading it reports the reason
            duration_s = gap_s = 0.0
            if isinstance(recording, Recording):
                duration_s, gap_s = recording.duration_s, GAP_STEPS * recording.step_s
                for kind, sentence in (recording.warnings | _off_map(recording, lanes)).items():
                    problems.setdefault(kind, []).append(f"{name}: {sentence}")
                with suppress(DataError):
                    windows = recording.windows(options)
            rows = [RawScenario(f"{name}_{start:05d}", path, (part, start)) for start in windows]
            found[name] = Found(rows, list(windows.values()), duration_s, gap_s)
    return found


def _divided(found: dict[str, Found], options: TableOptions) -> dict[str, list[RawScenario]]:
    """Divide recordings into train and val."""
    splits: dict[str, list[RawScenario]] = {"train": [], "val": []}
    names = sorted(found, key=lambda name: draw(name, SPLIT))
    if len(names) == 1:
        return _divided_in_time(found[names[0]], options)
    is_val = [draw(name, SPLIT) < VAL_FRACTION for name in names]
    for rank, name in enumerate(names):
        # By its hash alone, but neither split is empty.
        val = (is_val[rank] or rank == 0) and rank < len(names) - 1
        splits["val" if val else "train"] += found[name].raw
    return {split: sorted(windows, key=lambda window: window.name) for split, windows in splits.items()}


def _divided_in_time(found: Found, options: TableOptions) -> dict[str, list[RawScenario]]:
    """Divide the windows of the only recording: no state of a validation window is in a training window."""
    last = found.now[-1] - options.observe_s if found.now else 0.0
    border = min((1 - VAL_FRACTION) * found.duration_s, last)
    splits: dict[str, list[RawScenario]] = {"train": [], "val": []}
    for window, now in zip(found.raw, found.now, strict=True):
        if now + options.predict_s + found.gap_s <= border:
            splits["train"].append(window)
        elif now - options.observe_s >= border:
            splits["val"].append(window)
    if not splits["train"] or not splits["val"]:
        return {"val": found.raw}
    return splits


def read(raw: RawScenario, options: TableOptions) -> Scenario:
    """Read a window, or the first one of a file. Raises: DataError naming the file and the column."""
    name, start = raw.part or (None, None)
    recording = _recording(_place_of(raw.path, options), options, name)
    windows = recording.windows(options)
    if start is None and windows:
        start = min(windows)
    if start not in windows:
        raise DataError("no road user is seen at the last observed step", file=raw.path, field="time")
    try:
        return recording.scenario(windows[start], options, raw.name, _lanes(options))
    except DataError as error:
        raise error.located(raw.path) from None


def describe(raw: Path, options: TableOptions) -> dict[str, str]:
    """Describe the first recording of a folder or file that can be read. Raises: DataError if none can be."""
    problem = DataError(f"no file is named like those of the data set: {options.files.files}", file=raw)
    for name, place in places(raw, options).items():
        for part, recording in recordings(place, options):
            if isinstance(recording, Recording):
                return {"recording": "-".join(filter(None, (name, part))), **recording.facts()}
            problem = recording
    raise problem


@lru_cache(maxsize=1)
def _map(path: Path, origin: tuple[float, float] | None) -> LaneMap:
    return read_map(path, origin=origin)


def _lanes(options: TableOptions) -> LaneMap:
    if options.map is None:
        return LaneMap()
    origin = options.origin
    if origin is None and options.map.suffix == ".osm":
        origin = options.files.origin
    return _map(options.map, origin)


def _off_map(recording: Recording, lanes: LaneMap) -> dict[str, str]:
    """Describe a map that is not where the vehicles are."""
    vehicle = np.flatnonzero((recording.object_type == "vehicle")[recording.track])
    if not len(lanes) or not len(vehicle):
        return {}
    sampled = recording.position[vehicle[:: max(1, len(vehicle) // 100)]]
    points = lanes.centerline.values[:, :2]
    distance = float(np.median([norm(points - place).min() for place in sampled]))
    if distance <= OFF_MAP_M:
        return {}
    return {
        "map": f"vehicles are {distance:.0f} m from the nearest lane in the median: check --map and --origin"
    }


SOURCE = Source(discover, read, "*.csv or *.parquet, named like those of the preset", TableOptions)
