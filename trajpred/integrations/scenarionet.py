"""Scenarios from ScenarioNet databases, which have nuScenes, Waymo, nuPlan and others in one format.

A scene is a pickle of plain data (:mod:`trajpred.sources.pickles`). A scene that names the tracks to predict
and the current step is one scenario; others are cut into windows like tables
(:class:`~trajpred.sources.windows.Windows`). docs/how-to/data-sets.md states the rules.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajpred.data.checks import as_array, as_name, as_whole_number, is_name
from trajpred.data.geometry import norm
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import BACKWARDS_SPEED
from trajpred.data.registry import register
from trajpred.data.scenario import Scenario
from trajpred.data.time import (
    GAP_STEPS,
    LONGEST_STEP_S,
    SHORTEST_STEP_S,
    frame_steps,
    longest_gap_s,
    regular_step_s,
)
from trajpred.data.tracks import EGO_ID, TrackCategory
from trajpred.errors import DataError, quoted, require, require_finite
from trajpred.integrations.maps.scenarionet import read as read_features
from trajpred.integrations.maps.segments import lane_map_of
from trajpred.sources import Source
from trajpred.sources.columns import CLASSES, Column
from trajpred.sources.pickles import read_pickle
from trajpred.sources.reading import RawScenario, readable
from trajpred.sources.recording import Recording
from trajpred.sources.windows import ROAD_USERS, Found, Windows, split_recordings

#: Index files of a database: facts about each scene by file name, and the scenes' folders.
SUMMARY = "dataset_summary.pkl"
MAPPING = "dataset_mapping.pkl"
#: Object type by track type; others are ``unknown``.
OBJECT_TYPE = {
    "VEHICLE": "vehicle",
    "PEDESTRIAN": "pedestrian",
    "CYCLIST": "cyclist",
    "TRAFFIC_CONE": "construction",
    "TRAFFIC_BARRIER": "construction",
    "TRAFFIC_OBJECT": "static",
    "TRAFFIC_LIGHT": "static",
    "BUILDING": "static",
}
#: Share of a step by which stamps may deviate from regular times.
JITTER = 0.1


# --------------------------------------------------------------------------------------------- a scene


@dataclass(frozen=True)
class Scene:
    """The road users of a scene and its map.

    Attributes:
        recording: the states of the tracks.
        lanes: the map around the road users.
        place: the name of the map or of the data set.
        predicted: names of the tracks to predict, the focal one first.
        now: time (s) of the last observed step, if the scene states it.
        before: seconds of the scene up to that step.
        after: seconds of the scene after that step.
    """

    recording: Recording
    lanes: LaneMap
    place: str
    predicted: list[str]
    now: float | None
    before: float
    after: float

    @classmethod
    def of(cls, content: Any, path: Path) -> Scene:
        """Read the content of a file. Raises: DataError naming the field at fault."""
        metadata = _part(content, "metadata")
        time = _times(content, metadata)
        names = _names(content, metadata)
        states = [_states(names[key], track, time) for key, track in _part(content, "tracks").items()]
        require(bool(states), "tracks", "has no track")
        values: dict[str, NDArray[Any]] = {}
        for role in FIELDS:
            values[role] = np.concatenate([state[role] for state in states])
        columns = {role: Column(field) for role, field in FIELDS.items()}
        recording = Recording.of(pa.table(values), columns)
        predicted = [names[key] for key in _predicted(metadata) if key in names]
        parts = read_features(content.get("map_features", {}), recording.position)
        lanes = lane_map_of(parts) if parts.lanes else LaneMap()
        parts.problems.warn(path)
        now = None
        before = after = 0.0
        if _is_one_scenario(metadata) and predicted:
            step = as_whole_number(metadata["current_time_index"], "current_time_index")
            within = f"must be 0 to {len(time) - 1}, is {step}"
            require(0 <= step < len(time), "current_time_index", within)
            now = float(time[step] - values["time"].min())
            before = step * recording.step_s
            after = (len(time) - 1 - step) * recording.step_s
        return cls(recording, lanes, _place(metadata), predicted, now, before, after)

    def windows(self, options: Windows) -> dict[int, float]:
        """Return each window's first step, and the time of its last observed state."""
        if self.now is not None:
            return {0: self.now}
        return self.recording.windows(options)

    def scenario(self, now: float, options: Windows, name: str) -> Scenario:
        """Return the window whose last observed step is at ``now``.

        The tracks to predict that are seen at that step are scored, and the first one is focal; without any,
        the rule of :func:`~trajpred.sources.windows.roles` decides.
        """
        if self.now is not None:
            observe_s = self.before + (options.step_s or self.recording.step_s)
            options = replace(options, observe_s=observe_s, predict_s=self.after or options.predict_s)
        scenario = replace(self.recording.scenario(now, options, name, self.lanes), city=self.place)
        tracks = scenario.tracks
        seen = tracks.track_id[tracks.valid[:, scenario.num_observed - 1]]
        predicted = [track for track in self.predicted if track in seen]
        if not predicted:
            return scenario
        is_predicted = np.isin(tracks.track_id, predicted)
        category = np.where(is_predicted, TrackCategory.SCORED, TrackCategory.UNSCORED)
        category[tracks.track_id == predicted[0]] = TrackCategory.FOCAL
        tracks = replace(tracks, category=category.astype(np.int8))
        return replace(scenario, focal_id=predicted[0], tracks=tracks).validate()


#: Fields of a file with the values of each role.
FIELDS = {
    "track": "tracks",
    "type": "type",
    "time": "ts",
    "x": "position",
    "y": "position",
    "heading": "heading",
    "vx": "velocity",
    "vy": "velocity",
    "length": "length",
    "width": "width",
}


def _part(content: Any, name: str) -> dict[Any, Any]:
    """Return a dict of a file. Raises: DataError if it is missing."""
    part = content.get(name) if type(content) is dict else None
    require(type(part) is dict, name, "is missing: this is not a ScenarioNet scene")
    return part  # type: ignore[return-value]


def _times(content: dict[Any, Any], metadata: dict[Any, Any]) -> NDArray[np.float64]:
    """Return seconds ``[T]`` since the first step, without a regular clock's jitter. Raises: DataError."""
    require("ts" in metadata, "ts", "is missing: it has the seconds of the steps")
    stamps: NDArray[np.float64] = as_array(metadata["ts"], np.float64, "ts").ravel()
    if "length" in content:
        stamps = stamps[: as_whole_number(content["length"], "length")]
    require(len(stamps) > 1, "ts", "must have two steps or more")
    require_finite(stamps, "ts")
    time = stamps - stamps[0]
    steps = np.diff(time)
    require(bool((steps > 0).all()), "ts", "must increase: float32 resolves no seconds since 1970")
    if steps.max() > LONGEST_STEP_S * GAP_STEPS * len(steps) or steps.min() < SHORTEST_STEP_S:
        return time  # another unit, which the recording reports
    stamps_ns = np.round(time * 1e9).astype(np.int64)
    step_s = regular_step_s(stamps_ns)
    regular = frame_steps(stamps_ns, len(stamps_ns)) * step_s
    if np.abs(time - regular).max() <= JITTER * step_s:
        time = regular
    return time


def _names(content: dict[Any, Any], metadata: dict[Any, Any]) -> dict[str, str]:
    """Return the tracks' names by the file's names; the ego vehicle's is as in all data sets."""
    names: dict[str, str] = {}
    for key in _part(content, "tracks"):
        name = as_name(key, "tracks")
        require(name not in names, "tracks", f"has {quoted(name)} twice")
        names[name] = name
    ego = str(metadata.get("sdc_id"))
    if ego in names and EGO_ID not in names:
        names[ego] = EGO_ID
    return names


def _states(name: str, track: Any, time: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return the values of each role in the valid states of a track. Raises: DataError naming the field."""
    state = _part(track, "state")
    length = len(time)
    position = _vectors(state, "position", length)
    valid = _numbers(state, "valid", length, default=1.0) > 0.5
    valid &= np.isfinite(position).all(axis=1)
    velocity = np.full((length, 2), np.nan)
    if "velocity" in state:
        velocity = _velocity(_vectors(state, "velocity", length), position, valid, time)
    values = {
        "track": np.full(length, name),
        "type": np.full(length, _object_type(track)),
        "time": time,
        "x": position[:, 0],
        "y": position[:, 1],
        "heading": _numbers(state, "heading", length),
        "vx": velocity[:, 0],
        "vy": velocity[:, 1],
        "length": _numbers(state, "length", length),
        "width": _numbers(state, "width", length),
    }
    return {role: column[valid] for role, column in values.items()}


def _numbers(state: dict[Any, Any], field: str, length: int, default: float = np.nan) -> NDArray[np.float64]:
    """Return a track's numbers ``[T]``, one per step. Raises: DataError for other values."""
    if field not in state:
        return np.full(length, default)
    values = as_array(state[field], np.float64, field)
    fits = values.shape in ((length,), (length, 1))
    require(fits, field, f"must have a number of each of {length} steps, has shape {values.shape}")
    return values.reshape(length)


def _vectors(state: dict[Any, Any], field: str, length: int) -> NDArray[np.float64]:
    """Return a track's x and y per step ``[T, 2]``. Raises: DataError for other values."""
    require(field in state, field, "is missing")
    values = as_array(state[field], np.float64, field)
    fits = values.shape in ((length, 2), (length, 3))
    require(fits, field, f"must be [{length}, 2 or 3], has shape {values.shape}")
    return values[:, :2]


def _velocity(
    velocity: NDArray[np.float64],
    position: NDArray[np.float64],
    valid: NDArray[np.bool_],
    time: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return velocities ``[T, 2]``, NaN for zeros that mean unknown, since the track has moved."""
    steps = np.flatnonzero(valid)
    speed = norm(np.diff(position[steps], axis=0)) / np.diff(time[steps])
    moved = np.zeros(len(valid), np.bool_)
    moved[steps[1:]] = speed > BACKWARDS_SPEED
    is_absent = moved & (velocity == 0).all(axis=1)
    return np.where(is_absent[:, None], np.nan, velocity)


def _object_type(track: dict[Any, Any]) -> str:
    """Return a track's object type; the original data set's class distinguishes buses and motorcycles."""
    kind = OBJECT_TYPE.get(str(track.get("type")), "unknown")
    metadata = track.get("metadata")
    if kind not in ROAD_USERS or type(metadata) is not dict:
        return kind
    return CLASSES.get(str(metadata.get("type")).lower(), kind)


def _is_one_scenario(metadata: dict[Any, Any]) -> bool:
    """Return whether a scene names the tracks to predict and the current step."""
    return metadata.get("current_time_index") is not None and bool(_predicted(metadata))


def _predicted(metadata: dict[Any, Any]) -> list[str]:
    """Return the names of the tracks to predict; without any, those of interest. Raises: DataError."""
    for field in ("tracks_to_predict", "objects_of_interest"):
        items = metadata.get(field) or ()
        require(isinstance(items, (dict, list, tuple)), field, "must be a dict or a list of tracks")
        names: list[str] = []
        for item in items:
            name = item.get("track_id") if type(item) is dict else item
            names.append(as_name(name, field))
        if names:
            return names
    return []


def _place(metadata: dict[Any, Any]) -> str:
    """Return the name of the map, or of the data set."""
    for field in ("map", "dataset"):
        name = metadata.get(field)
        if isinstance(name, str) and is_name(name):
            return name
    return "local"


# ------------------------------------------------------------------------------------------ data bases


def _files(raw: Path) -> Iterator[tuple[str, Path, dict[Any, Any]]]:
    """Yield the scenes of a folder, or of one file: names, files, and the database's facts about each.

    If the folder is a database, its scenes; otherwise all scenes in it and in its folders and databases.
    """
    if raw.is_file():
        yield raw.stem, raw, {}
        return
    summary = _index(raw / SUMMARY)
    mapping = _index(raw / MAPPING)
    for file in summary or mapping:
        folder = str(mapping.get(file, ""))
        facts = summary.get(file)
        parts = [part for part in Path(folder).parts if part not in ("..", "/")]
        yield "-".join([*parts, Path(str(file)).stem]), raw / folder / str(file), _as_dict(facts)
    if summary or mapping:
        return
    for path in sorted(raw.iterdir()):
        if path.is_dir():
            for name, file, facts in _files(path):
                yield f"{path.name}-{name}", file, facts
        elif path.suffix == ".pkl" and path.name not in (SUMMARY, MAPPING):
            yield path.stem, path, {}


def _index(path: Path) -> dict[Any, Any]:
    """Read an index file of a database; empty, with a warning, if it cannot be read."""
    if not path.is_file():
        return {}
    try:
        index = read_pickle(path)
        require(type(index) is dict, "index", "must be a dict")
    except DataError as error:
        warnings.warn(f"{error.located(path)}; all scenes of the folder are read", stacklevel=2)
        return {}
    return _as_dict(index)


def _as_dict(value: Any) -> dict[Any, Any]:
    return value if type(value) is dict else {}


def _scene(path: Path) -> Scene:
    """Read a scene, caching the last one. Raises: DataError naming the file and the field."""
    with readable(path, "scene"):
        stat = path.stat()
        return _load(path, (stat.st_size, stat.st_mtime_ns))


@lru_cache(maxsize=1)
def _load(path: Path, stamps: object) -> Scene:
    """Read a scene; the file's ``stamps`` reveal changes."""
    content = read_pickle(path)
    try:
        with np.errstate(all="ignore"):
            return Scene.of(content, path)
    except (TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise DataError(f"is not a ScenarioNet scene ({type(error).__name__}: {error})") from None


class Part(NamedTuple):
    """The window of a scene, by the time of its last observed state; None for the first one."""

    now: float | None


def discover(raw: Path, options: Windows = Windows()) -> dict[str, list[RawScenario]]:
    """Return the windows of all scenes, see :func:`~trajpred.sources.windows.split_recordings`."""
    return split_recordings(raw, partial(_found, options=options), options)


def _found(raw: Path, problems: dict[str, list[str]], options: Windows) -> list[Found]:
    """Return the windows of each scene, and add what looks wrong to ``problems``.

    A scene that cannot be read, or has no window, gets one window, so that reading it reports the reason. So
    does a scene that the database declares to be one scenario.
    """
    scenes: list[Found] = []
    for name, path, facts in _files(raw):
        windows = [RawScenario(name, path, Part(None))]
        duration_s = gap_s = 0.0
        with suppress(DataError):
            if not _is_one_scenario(facts):
                scene = _scene(path)
                duration_s = scene.recording.duration_s
                gap_s = longest_gap_s(scene.recording.step_s, options.step_s or scene.recording.step_s)
                for kind, sentence in scene.recording.warnings.items():
                    problems.setdefault(kind, []).append(f"{name}: {sentence}")
                windows = _windows(name, path, scene, options) or windows
        scenes.append(Found(name, windows, duration_s, gap_s))
    return scenes


def _windows(name: str, path: Path, scene: Scene, options: Windows) -> list[RawScenario]:
    """Return the windows of a scene. Raises: DataError if it is too short."""
    if scene.now is not None:
        return [RawScenario(name, path, Part(None))]
    times = scene.recording.windows(options)
    return [RawScenario(f"{name}_{start:05d}", path, Part(now), name) for start, now in times.items()]


def read(raw: RawScenario, options: Windows = Windows()) -> Scenario:
    """Read a window, or the first one of a file. Raises: DataError naming the file and the field."""
    try:
        scene = _scene(raw.path)
        now = None if raw.part is None else raw.part.now
        if now is None:
            now = next(iter(scene.windows(options).values()), None)
        if now is None:
            raise DataError("no road user is seen at the last observed step of any window", field="ts")
        return scene.scenario(now, options, raw.name)
    except DataError as error:
        raise error.located(raw.path) from None


def describe(raw: Path, options: Windows) -> dict[str, str]:
    """Describe the road users of the first scene that can be read. Raises: DataError if none can be."""
    problem = DataError("has no scene (*.pkl)", file=raw)
    for name, path, _ in _files(raw):
        try:
            return {"recording": name, **_scene(path).recording.facts()}
        except DataError as error:
            problem = error
    raise problem


LAYOUT = "*.pkl, in any folders, or the folder of a data base"
SOURCE = register("source", "scenarionet")(Source(discover, read, LAYOUT, Windows, describe))
