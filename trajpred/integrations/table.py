"""Scenarios from tables of anyone's recordings, CSV or parquet with a row per state: the source ``table``.

Recordings are cut into windows (:class:`~trajpred.sources.windows.Windows`) whose last observed step is that
of a recorded state, and resampled with the true times of their states. docs/how-to/own-data.md has the rules.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trajpred.data.geometry import norm
from trajpred.data.lane_map import LaneMap
from trajpred.data.registry import register
from trajpred.data.scenario import Scenario
from trajpred.data.splits import SPLITS, draw
from trajpred.data.time import GAP_STEPS
from trajpred.errors import DataError, quoted, require
from trajpred.integrations.maps import read_map
from trajpred.sources import Source
from trajpred.sources.reading import RawScenario
from trajpred.sources.recording import Recording
from trajpred.sources.tables import (
    PRESETS,
    Column,
    Preset,
    parse_columns,
    read_rows,
    recording_of,
    recordings_in,
)
from trajpred.sources.windows import Windows

#: Rows that are read at once, of as many recordings of a file as there are.
MAX_ROWS = 2**21
#: The text that is hashed to choose the split of a recording.
SPLIT = "split of the recording {}"
#: Fraction of the recordings, or of the only one, that becomes the split ``val``.
VAL_FRACTION = 0.2
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
    groups: dict[int, list[str]] = {}
    rows_so_far = 0
    for name in names:
        rows_so_far += counts[name]
        groups.setdefault(rows_so_far // MAX_ROWS, []).append(name)
    return tuple(tuple(group) for group in groups.values())


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


LAYOUT = "*.csv or *.parquet, named like those of the preset"
SOURCE = register("source", "table")(Source(discover, read, LAYOUT, TableOptions))
