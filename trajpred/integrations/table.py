"""Scenarios from tables of recordings, CSV or parquet with a row per state: the source ``table``.

Recordings are cut into windows (:class:`~trajpred.sources.windows.Windows`) whose last observed step is at a
recorded state, and resampled from the states' true times. docs/how-to/own-data.md states the rules.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trajpred.data.lane_map import LaneMap
from trajpred.data.registry import register
from trajpred.data.scenario import Scenario
from trajpred.data.time import longest_gap_s
from trajpred.errors import DataError, require
from trajpred.integrations.maps import read_map_file, require_origin
from trajpred.integrations.maps.lanelet2 import from_utm, utm
from trajpred.sources import Source
from trajpred.sources.columns import PRESETS, Column, Preset, parse_columns
from trajpred.sources.reading import RawScenario, readable, text_codes
from trajpred.sources.recording import Recording
from trajpred.sources.tables import numbers_beside, read_rows, recordings_in
from trajpred.sources.windows import Found, Windows, split_recordings

#: Maximum rows to read at once, from any number of a file's recordings.
MAX_ROWS = 2**21


@dataclass(frozen=True)
class TableOptions(Windows):
    """Options of tables.

    Attributes:
        every_s: Seconds between the starts of windows.
        observe_s: Observed seconds of a window.
        predict_s: Future seconds of a window.
        step_s: Seconds between steps to which states are resampled.
        preset: Files and columns of a published data set: ind, round, exid, unid, highd, interaction,
            eth-ucy, ngsim, sind, sumo, pedpy, citr, nuscenes, waymo.
        columns: Columns and their units, such as track=id time=t_ms:ms x=X y=Y heading=yaw:deg type=class;
            with a preset, they replace its entries (docs/how-to/own-data.md).
        map: Map of the recordings: Lanelet2, OpenDRIVE, CommonRoad or Argoverse 2.
        origin: For a Lanelet2 map, latitude and longitude of the positions' origin, unless the preset knows
            it.
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
        require(self.preset is not None or bool(self.columns), "columns", "or --preset must be given")
        unknown = f"unknown preset {self.preset!r}; known: {', '.join(PRESETS)}"
        require(self.preset is None or self.preset in PRESETS, "preset", unknown)
        _ = self.mapping

    @property
    def files(self) -> Preset:
        """The files of the data set."""
        return Preset("") if self.preset is None else PRESETS[self.preset]

    @property
    def mapping(self) -> dict[str, Column]:
        """The column of each role."""
        return parse_columns(self.files.columns.split(), self.columns)


# -------------------------------------------------------------------------------- files and recordings


class Part(NamedTuple):
    """Location of a window.

    Attributes:
        files: files of its recording.
        together: names of the recordings in these files that are read at once.
        recording: its name; "" if the files are one recording.
        now: time of the last state in its observed seconds; None for the first window.
        block: start and end (s) of the used part of its recording.
    """

    files: tuple[Path, ...]
    together: tuple[str, ...] = ("",)
    recording: str = ""
    now: float | None = None
    block: tuple[float, float] = (-math.inf, math.inf)


def _files(raw: Path, options: TableOptions) -> dict[str, tuple[Path, ...]]:
    """Return the files of each recording in a folder, by name; a file is read alone.

    Raises: DataError if a folder has a recording twice, in different formats.
    """
    preset = options.files
    if raw.is_file():
        return {preset.recording_of(raw): (raw,)}
    recordings: dict[str, tuple[Path, ...]] = {}
    for path in sorted(raw.rglob("*")):
        if not preset.matches(path.name) or not path.is_file():
            continue
        parts = (*path.parent.relative_to(raw).parts, preset.recording_of(path))
        name = "-".join(parts)
        for other in recordings.get(name, ()):
            if _stem(other) == _stem(path):
                both = f"{path.relative_to(raw)} and {other.relative_to(raw)} are one recording"
                raise DataError(f"{both}: name one of them, or remove the other", file=raw)
        recordings[name] = (*recordings.get(name, ()), path)
    return recordings


def _stem(path: Path) -> Path:
    """Return a path without the suffixes of its format."""
    return path.with_suffix("").with_suffix("") if path.suffix == ".gz" else path.with_suffix("")


def _parts(raw: Path, options: TableOptions) -> Iterator[tuple[str, Part]]:
    """Yield the recordings of a folder or a file by name."""
    for name, files in _files(raw, options).items():
        for together in _together(files, options):
            for recording in together:
                yield "-".join(filter(None, (name, recording))), Part(files, together, recording)


def _together(files: tuple[Path, ...], options: TableOptions) -> list[tuple[str, ...]]:
    """Return the names of recordings to read at once: one, or several with at most :data:`MAX_ROWS` rows."""
    counts = Counter[str]()
    try:
        for path in files:
            counts += recordings_in(path, options.mapping, options.files)
    except DataError:
        counts.clear()  # reading reports the reason
    groups: dict[int, list[str]] = {}
    rows_so_far = 0
    for name in sorted(counts) or [""]:
        rows_so_far += counts[name]
        groups.setdefault(rows_so_far // MAX_ROWS, []).append(name)
    return [tuple(group) for group in groups.values()]


def _recording(part: Part, options: TableOptions) -> Recording:
    """Read the recording of a part. Raises: DataError naming the file and the column."""
    with readable(part.files[0], "table"):
        stamps = _stamps(*part.files, *_metadata(part, options))
        recording = _load(part.files, part.together, options, stamps)[part.recording]
        if isinstance(recording, DataError):
            raise recording
        return recording.between(*part.block)


def _metadata(part: Part, options: TableOptions) -> tuple[Path, ...]:
    """Return the files beside those of a part that are also read."""
    return tuple(chain.from_iterable(map(options.files.metadata_of, part.files)))


def _stamps(*files: Path) -> tuple[tuple[int, int], ...]:
    """Return size and time of the last change of the files that exist, which tell when one changes."""
    stats = [path.stat() for path in files if path.exists()]
    return tuple((stat.st_size, stat.st_mtime_ns) for stat in stats)


@lru_cache(maxsize=1)
def _load(
    files: tuple[Path, ...], together: tuple[str, ...], options: TableOptions, stamps: object
) -> dict[str, Recording | DataError]:
    """Read recordings, or why one cannot be read; the files' ``stamps`` reveal changes."""
    mapping = options.mapping
    table = pa.concat_tables([_rows(path, mapping, options.files, together) for path in files])
    code, names = text_codes(table, "recording")
    order = np.argsort(code, kind="stable")
    table = table.take(order)
    bounds = np.searchsorted(code[order], np.arange(len(names) + 1)).tolist()
    loaded: dict[str, Recording | DataError] = {}
    for name in together:
        row = names.index(name) if name in names else None
        rows = table[:0] if row is None else table[bounds[row] : bounds[row + 1]]
        try:
            loaded[name] = Recording.of(rows, mapping)
        except DataError as error:
            loaded[name] = error
    return loaded


def _rows(path: Path, mapping: dict[str, Column], preset: Preset, together: tuple[str, ...]) -> pa.Table:
    """Read the rows of a file; ids unique within files of its kind become unique in the recording."""
    rows = read_rows(path, mapping, preset, together)
    kind = preset.kind_of(path)
    if not kind:
        return rows
    ids = pc.binary_join_element_wise(kind, rows["track"].cast(pa.string()), "")
    return rows.set_column(rows.column_names.index("track"), "track", ids)


# ------------------------------------------------------------------------------------------ the source


def discover(raw: Path, options: TableOptions) -> dict[str, list[RawScenario]]:
    """Return the windows of all recordings, see :func:`~trajpred.sources.windows.split_recordings`.

    Raises: DataError if the map cannot be used.
    """
    first = next(_parts(raw, options), None)
    if first is not None:
        _, part = first
        try:
            _lanes(part.files[0], options)
        except DataError as error:
            if error.file == options.map:
                raise
    return split_recordings(raw, partial(_found, options=options), options)


def _found(raw: Path, problems: dict[str, list[str]], options: TableOptions) -> list[Found]:
    """Return the windows of each recording, and add what looks wrong to ``problems``.

    A recording that cannot be read, or has no window, gets one window, so that reading it reports the reason.
    """
    recordings: list[Found] = []
    for name, part in _parts(raw, options):
        windows: list[RawScenario] = []
        duration_s = gap_s = 0.0
        with suppress(DataError):
            recording = _recording(part, options)
            duration_s = recording.duration_s
            gap_s = longest_gap_s(recording.step_s, options.step_s or recording.step_s)
            for kind, sentence in recording.warnings.items():
                problems.setdefault(kind, []).append(f"{name}: {sentence}")
            windows = _windows(name, part, options)
        beside = _metadata(part, options)
        windows = windows or [RawScenario(f"{name}_00000", part.files[0], part, name, beside)]
        recordings.append(Found(name, windows, duration_s, gap_s, partial(_block, name, part, options)))
    return recordings


def _windows(name: str, part: Part, options: TableOptions) -> list[RawScenario]:
    """Return the windows of a recording by time. Raises: DataError."""
    windows: list[RawScenario] = []
    beside = _metadata(part, options)
    for start, now in _recording(part, options).windows(options).items():
        window = part._replace(now=now)
        windows.append(RawScenario(f"{name}_{start:05d}", part.files[0], window, name, beside))
    return windows


def _block(name: str, part: Part, options: TableOptions, first_s: float, last_s: float) -> list[RawScenario]:
    """Return the windows of a block of a recording, between two times."""
    with suppress(DataError):
        return _windows(f"{name}_{first_s:.0f}s", part._replace(block=(first_s, last_s)), options)
    return []


def read(raw: RawScenario, options: TableOptions) -> Scenario:
    """Read a window, or the first one of a file. Raises: DataError naming the file and the column."""
    part: Part = raw.part or next((part for _, part in _parts(raw.path, options)), Part((raw.path,)))
    try:
        recording = _recording(part, options)
        now = part.now
        if now is None:
            now = next(iter(recording.windows(options).values()), None)
        if now is None:
            raise DataError("no road user is seen at the last observed step of any window", field="time")
        return recording.scenario(now, options, raw.name, _lanes(part.files[0], options))
    except DataError as error:
        raise error.located(raw.path) from None


def describe(raw: Path, options: TableOptions) -> dict[str, str]:
    """Describe the first recording of a folder or file that can be read. Raises: DataError if none can be."""
    problem = DataError(f"no file is named like those of the data set: {options.files.files}", file=raw)
    for name, part in _parts(raw, options):
        try:
            return {"recording": name, **_recording(part, options).facts()}
        except DataError as error:
            problem = error
    raise problem


def _lanes(path: Path, options: TableOptions) -> LaneMap:
    """Return the map for a recording with the file ``path``. Raises: DataError if it has no known origin."""
    if options.map is None:
        return LaneMap()
    origin = options.origin
    if origin is None and options.map.suffix == ".osm":
        origin = options.files.origin or _origin(path, options.files)
    return _map(options.map, origin, _stamps(options.map))


def _origin(path: Path, preset: Preset) -> tuple[float, float] | None:
    """Return latitude and longitude of the positions' origin from the metadata; None if missing."""
    if not preset.origin_columns:
        return None
    east, north, lat, lon = numbers_beside(path, preset, preset.origin_columns)
    if not (math.isfinite(lat) and math.isfinite(lon)):
        return None
    if math.isfinite(east) and math.isfinite(north):
        return from_utm(east, north, utm(lat, lon))
    return lat, lon


@lru_cache(maxsize=4)
def _map(path: Path, origin: tuple[float, float] | None, stamps: object) -> LaneMap:
    """Read a map; ``stamps`` of the file tell when it changes."""
    file = read_map_file(path, origin=origin)
    require_origin(file, path, origin)
    file.problems.warn(path)
    return file.lanes


LAYOUT = "*.csv or *.parquet, named like those of the preset"
SOURCE = register("source", "table")(Source(discover, read, LAYOUT, TableOptions, describe))
