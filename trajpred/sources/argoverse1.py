"""Argoverse 1: sequences in CSV files or packs, and the maps of its two cities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.data.checks import as_array, encode, row_of
from trajpred.data.lane_map import NO_LANE, LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import EGO_ID, TrackCategory
from trajpred.errors import DataError, require, require_finite
from trajpred.sources.reading import (
    MAX_STATES,
    RawScenario,
    finite,
    is_text,
    of_tracks,
    parse,
    read_bytes,
    readable,
    require_columns,
    require_small_groups,
    require_values,
    text_codes,
    valid_states,
)

#: The number in each city's file name.
CITIES = {"MIA": 10316, "PIT": 10314}
#: Values of a lane's tags by key; a key may occur several times.
Tags = dict[str | None, list[str | None]]


@dataclass(frozen=True)
class CityMap:
    """All ``L`` lanes of a city, and their bounding boxes.

    Attributes:
        lanes: the map, city frame; all lanes are ``VEHICLE`` lanes, boundaries are empty.
        low: ``[L, 2]`` metres, lower corner of the box around each centreline.
        high: ``[L, 2]`` metres, upper corner.
    """

    lanes: LaneMap
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def near(self, low: NDArray[np.float64], high: NDArray[np.float64], radius_m: float) -> LaneMap:
        """Select the lanes within ``radius_m`` of the box from ``low`` to ``high`` ``[2]``, by their boxes.

        Links to lanes that are not selected are kept.
        """
        gap = np.maximum(np.maximum(self.low - high, low - self.high), 0.0)
        near = np.flatnonzero(np.square(gap).sum(-1) <= radius_m**2)
        return self.lanes.take(near, crossings=np.zeros(0, np.int64))


def city_map(folder: Path, city: str) -> CityMap:
    """Return the map of ``city`` in ``folder``, XML or gzip-compressed XML; parsed once per process.

    Raises: DataError naming the missing file, or the file and the field at fault.
    """
    if city not in CITIES:
        raise DataError(f"unknown value {city!r}; known: {', '.join(CITIES)}", field="CITY_NAME")
    plain = folder / f"pruned_argoverse_{city}_{CITIES[city]}_vector_map.xml"
    path = plain
    if not plain.is_file():
        path = plain.with_name(f"{plain.name}.gz")
    if not path.is_file():
        raise DataError("the map is missing, also as .gz", file=plain)
    return _read_once(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read_once(path: Path, modified_ns: int) -> CityMap:
    """Read a map; ``modified_ns`` makes the cache read a changed file again."""
    return read_city_map(path)


def read_city_map(path: Path) -> CityMap:
    """Read a vector map, ``.xml`` or ``.xml.gz``. Raises: DataError naming file and field."""
    with readable(path, "map"):
        return _city_map(parse(read_bytes(path)))


def _city_map(root: ElementTree.Element) -> CityMap:
    """Build a city's map from the root element of its file. Raises: DataError naming the field."""
    ways = root.findall("way")
    require(len(ways) > 0, "way", "the map has no lanes")
    tags = [_tags(way) for way in ways]
    is_intersection = encode(_single(tags, "is_intersection"), ("False", "True"), "way.is_intersection")
    centerline = _centerlines(root, ways)
    lanes = LaneMap(
        lane_id=_lane_ids([way.get("lane_id") for way in ways], "way.lane_id"),
        is_intersection=is_intersection.astype(np.bool_),
        centerline=centerline,
        left_neighbor=_neighbors(tags, "l_neighbor_id"),
        right_neighbor=_neighbors(tags, "r_neighbor_id"),
        predecessors=_links(tags, "predecessor"),
        successors=_links(tags, "successor"),
    )
    lanes.validate()
    points = centerline.values
    starts = centerline.offsets[:-1]
    low = np.minimum.reduceat(points, starts)
    high = np.maximum.reduceat(points, starts)
    return CityMap(lanes, low, high)


def _centerlines(root: ElementTree.Element, ways: list[ElementTree.Element]) -> Ragged:
    """Return the centreline of each way, ``[points, 2]`` metres in the city frame."""
    nodes = root.findall("node")
    row = row_of(node.get("id") for node in nodes)
    require(len(row) == len(nodes), "node.id", "contains a duplicate")
    x = _coordinates(nodes, "x")
    y = _coordinates(nodes, "y")
    require_finite(x, "node.x")
    require_finite(y, "node.y")
    refs: list[str | None] = []
    lengths: list[int] = []
    for way in ways:
        points = way.findall(".//nd")
        refs += [point.get("ref") for point in points]
        lengths.append(len(points))
    require(min(lengths) >= 2, "way.nd", "a lane has fewer than 2 points")
    try:
        index = [row[ref] for ref in refs]
    except KeyError as error:
        raise DataError(f"refers to the missing node {error}", field="way.nd") from None
    xy = np.stack((x, y), -1)
    return Ragged.from_lengths(xy[index], lengths)


def _coordinates(nodes: list[ElementTree.Element], axis: str) -> NDArray[np.float64]:
    values = [node.get(axis, "nan") for node in nodes]
    return as_array(values, np.float64, f"node.{axis}")


def _tags(way: ElementTree.Element) -> Tags:
    """Return the tags of a lane."""
    tags: Tags = {}
    for tag in way.iter("tag"):
        tags.setdefault(tag.get("k"), []).append(tag.get("v"))
    return tags


def _single(tags: list[Tags], key: str) -> list[str | None]:
    """Return the values ``[L]`` of a tag that every lane must have exactly once."""
    single: list[str | None] = []
    for lane_tags in tags:
        values = lane_tags.get(key, [])
        require(len(values) == 1, f"way.{key}", "must occur once in every lane")
        single += values
    return single


def _lane_ids(values: list[str | None], name: str) -> NDArray[np.int64]:
    ids: NDArray[np.int64] = as_array([value or "" for value in values], np.int64, name)
    require(bool((ids >= 0).all()), name, "must not be negative")
    return ids


def _neighbors(tags: list[Tags], key: str) -> NDArray[np.int64]:
    values = _single(tags, key)
    present = np.array([value != "None" for value in values])
    neighbors = np.full(len(values), NO_LANE, np.int64)
    neighbors[present] = _lane_ids([value for value in values if value != "None"], f"way.{key}")
    return neighbors


def _links(tags: list[Tags], key: str) -> Ragged:
    """Return the ids ``[L]`` in a tag that a lane may have any number of times."""
    values: list[str | None] = []
    lengths: list[int] = []
    for lane_tags in tags:
        links = lane_tags.get(key, [])
        values += links
        lengths.append(len(links))
    ids = _lane_ids(values, f"way.{key}")
    return Ragged.from_lengths(ids, lengths)


#: Folders of each split: as unpacked from the archives, or with the plain name.
FOLDERS = {"train": ("train",), "val": ("val",), "test": ("test_obs", "test")}
# Recorded timestamps jitter, and some frames are missing, but the task is defined in steps: the official
# metrics compare 30 predicted steps with 30 recorded ones, whatever their times. In other data sets,
# timestamps decide when a step is.
#: Observed steps (2 s at 10 Hz).
NUM_OBSERVED = 20
#: Observed and future steps together.
NUM_STEPS = 50
#: Lanes within this distance of the box around the focal track's observed positions belong to a scenario:
#: more than a car at 30 m/s covers in the 3 s to predict.
LANE_RADIUS_M = 100.0

_ROLES = ("AGENT", "AV", "OTHERS")
#: The columns of a CSV file.
_CSV = {
    "TIMESTAMP": pa.float64(),
    "X": pa.float64(),
    "Y": pa.float64(),
    "TRACK_ID": pa.string(),
    "OBJECT_TYPE": pa.string(),
    "CITY_NAME": pa.string(),
}
#: The columns of a pack; text may be dictionary-encoded.
_PACK = {
    "seq_id": pa.int32(),
    "TIMESTAMP": pa.float64(),
    "TRACK_ID": pa.int32(),
    "OBJECT_TYPE": pa.string(),
    "x_dmm": pa.int32(),
    "y_dmm": pa.int32(),
    "CITY_NAME": pa.string(),
}


def discover(raw: Path) -> dict[str, list[RawScenario]]:
    """Return the sequences of each split in order of number: files, or parts of a pack ``<split>.parquet``.

    Raises: DataError if there is no map folder.
    """
    splits = {split: _sequences(raw, split) for split in FOLDERS}
    if any(splits.values()) and not (raw / "map_files").is_dir():
        raise DataError("the folder of the vector maps is missing", file=raw / "map_files")
    return splits


def read(raw: RawScenario) -> Scenario:
    """Read a discovered sequence. Raises: DataError naming the file and the field at fault."""
    if raw.part is None:
        return read_scenario(raw.path)
    return read_packed(raw.path, raw.part)


def read_scenario(path: Path) -> Scenario:
    """Read the file of a sequence. Raises: DataError naming the file and the field at fault."""
    with readable(path, "CSV file"):
        maps = path.absolute().parents[2] / "map_files"
        return _scenario(_read_csv(path), path.stem, maps)


def read_packed(pack: Path, seq_id: int) -> Scenario:
    """Read a sequence of a pack. Raises: DataError naming the file and the field at fault."""
    with readable(pack, "parquet file"):
        return _scenario(_read_pack(pack, seq_id), str(seq_id), pack.absolute().parent / "map_files")


def _sequences(raw: Path, split: str) -> list[RawScenario]:
    """Return the sequences of a split, from CSV files or a pack, in order of number."""
    files: list[Path] = []
    for folder in FOLDERS[split]:
        files += (raw / folder / "data").glob("*.csv")
    maps = tuple(sorted((raw / "map_files").glob("pruned_argoverse_*_vector_map.xml*")))
    sequences = [RawScenario.of(path, beside=maps) for path in files]
    pack = raw / f"{split}.parquet"
    if not files and pack.is_file():
        with readable(pack, "pack", "seq_id"):
            ids = np.unique(_index(pack, pack.stat().st_mtime_ns).seq_id).tolist()
        drives = _drives(pack.with_name(f"{split}_drives.csv"))
        for seq_id in ids:
            drive = drives.get(seq_id, "")
            sequences.append(RawScenario(str(seq_id), pack, seq_id, drive, beside=maps))
    return sorted(sequences, key=lambda sequence: (len(sequence.name), sequence.name))


def _drives(path: Path) -> dict[int, str]:
    """Return the drive of each sequence that shares it with another one, if the file exists."""
    if not path.is_file():
        return {}
    with readable(path, "CSV file"):
        rows = pa.csv.read_csv(str(path))
        require_columns(rows.column_names, ("seq_id", "drive"))
        require_values(rows, ("seq_id", "drive"))
        drives = rows["drive"].cast(pa.string()).to_pylist()
        return dict(zip(rows["seq_id"].cast(pa.int64()).to_pylist(), drives, strict=True))


# ----------------------------------------------------------------------------------------------- files


def _read_csv(path: Path) -> pa.Table:
    types = pa.csv.ConvertOptions(column_types=_CSV)
    single_thread = pa.csv.ReadOptions(use_threads=False)
    table = pa.csv.read_csv(str(path), read_options=single_thread, convert_options=types)
    require_columns(table.column_names, _CSV)
    return table


class _Index(NamedTuple):
    """Index of the sequences in a pack.

    Attributes:
        metadata: the file's metadata, parsed once.
        seq_id: the sequence of each row.
        first: the first row of each row group.
    """

    metadata: pq.FileMetaData
    seq_id: NDArray[np.int32]
    first: NDArray[np.int64]


@lru_cache(maxsize=4)
def _index(pack: Path, modified_ns: int) -> _Index:
    """Check and index a pack; cached until the file changes."""
    file = pq.ParquetFile(pack)
    require_small_groups(file.metadata)
    schema = file.metadata.schema.to_arrow_schema()
    for name, dtype in _PACK.items():
        require(schema.names.count(name) == 1, name, "must be one column")
        kind = schema.field(name).type
        matches = is_text(kind) if dtype == pa.string() else kind == dtype
        require(matches, name, f"must be a column of {dtype}, is one of {kind}")
    rows = file.read(["seq_id"], use_threads=False)
    require_values(rows, ["seq_id"])
    seq_id: NDArray[np.int32] = rows["seq_id"].to_numpy()
    require(bool((np.diff(seq_id) >= 0).all()), "seq_id", "must be sorted")
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    return _Index(file.metadata, seq_id, np.cumsum([0, *sizes])[:-1])


def _read_pack(pack: Path, seq_id: int) -> pa.Table:
    """Return the rows of one sequence with the columns of a CSV file."""
    modified_ns = pack.stat().st_mtime_ns
    index = _index(pack, modified_ns)
    start, stop = np.searchsorted(index.seq_id, [seq_id, seq_id + 1]).tolist()
    require(start < stop, "seq_id", f"{seq_id} is not in the pack")
    require(stop - start <= MAX_STATES, "seq_id", f"{seq_id} has {stop - start} rows, more than {MAX_STATES}")
    first_group, last_group = (np.searchsorted(index.first, [start, stop - 1], side="right") - 1).tolist()
    groups = _row_groups(pack, modified_ns, first_group, last_group)
    rows = groups.slice(start - int(index.first[first_group]), stop - start)
    number = pc.utf8_lpad(rows["TRACK_ID"].cast(pa.string()), 12, padding="0")
    columns = {
        "TIMESTAMP": rows["TIMESTAMP"],
        "X": pc.divide(rows["x_dmm"].cast(pa.float64()), 1e4),
        "Y": pc.divide(rows["y_dmm"].cast(pa.float64()), 1e4),
        "TRACK_ID": pc.binary_join_element_wise("00000000-0000-0000-0000", number, "-"),
        "OBJECT_TYPE": rows["OBJECT_TYPE"].cast(pa.string()),
        "CITY_NAME": rows["CITY_NAME"].cast(pa.string()),
    }
    return pa.table(columns)


@lru_cache(maxsize=1)
def _row_groups(pack: Path, modified_ns: int, first: int, last: int) -> pa.Table:
    """Read the row groups from ``first`` to ``last``; cached, since consecutive sequences share them."""
    file = pq.ParquetFile(pack, metadata=_index(pack, modified_ns).metadata)
    return file.read_row_groups(range(first, last + 1), list(_PACK), use_threads=False)


# -------------------------------------------------------------------------------------------- scenario


def _scenario(rows: pa.Table, scenario_id: str, maps: Path) -> Scenario:
    """Arrange the rows: tracks sorted by their id in the file; the AV, if labelled, is renamed EGO_ID."""
    require_values(rows, _CSV)
    stamps, step = _steps(finite(rows, "TIMESTAMP"))
    _, cities = text_codes(rows, "CITY_NAME")
    require(len(cities) == 1, "CITY_NAME", f"must be the same in all rows, has {len(cities)} values")
    row, ids = text_codes(rows, "TRACK_ID")
    require("" not in ids, "TRACK_ID", "is empty in at least one row")
    valid = valid_states(row, step, len(ids), NUM_STEPS, "TIMESTAMP")
    is_focal, is_ego = _roles(rows, row, len(ids))
    focal = int(is_focal.argmax())
    complete = bool(valid[focal, : len(stamps)].all())
    require(complete, "TIMESTAMP", "the AGENT is not present at every step")
    position = np.zeros((len(ids), NUM_STEPS, 2))
    position[row, step] = np.stack((finite(rows, "X"), finite(rows, "Y")), -1)
    observed = position[focal, :NUM_OBSERVED]
    lanes = city_map(maps, cities[0]).near(observed.min(axis=0), observed.max(axis=0), LANE_RADIUS_M)
    # From the observed steps only: the future must not affect an input.
    throughout = valid[:, :NUM_OBSERVED].all(axis=1)
    if is_ego.any():
        ids[int(is_ego.argmax())] = EGO_ID
    scenario = Scenario.from_arrays(
        position,
        num_observed=NUM_OBSERVED,
        valid=valid,
        # OTHERS have no type: most are vehicles, some are pedestrians.
        object_type=np.where(is_focal | is_ego, "vehicle", "unknown").tolist(),
        track_id=ids,
        focal=focal,
        category=np.where(throughout, TrackCategory.UNSCORED, TrackCategory.FRAGMENT),
        map=lanes,
        scenario_id=scenario_id,
        city=cities[0],
    )
    return replace(scenario, timestamps_ns=stamps[0] + scenario.timestamps_ns)


def _steps(seconds: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted distinct timestamps in nanoseconds, and the index of each row's among them."""
    inside = bool(((seconds >= 0) & (seconds < 9e9)).all())
    require(inside, "TIMESTAMP", "must be seconds, from 0 to 9e9")
    stamps, step = np.unique(np.round(seconds * 1e9).astype(np.int64), return_inverse=True)
    fits = len(stamps) in (NUM_OBSERVED, NUM_STEPS)
    message = f"must have {NUM_STEPS} distinct values, or {NUM_OBSERVED} without a future; has {len(stamps)}"
    require(fits, "TIMESTAMP", message)
    return stamps, step


def _roles(
    rows: pa.Table, row: NDArray[np.int64], num_tracks: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks ``[A]`` of the AGENT and of the AV; ``row`` ``[N]`` is the track of each row."""
    code, roles = text_codes(rows, "OBJECT_TYPE")
    role = of_tracks(encode(roles, _ROLES, "OBJECT_TYPE")[code], row, num_tracks, "OBJECT_TYPE")
    is_focal = role == _ROLES.index("AGENT")
    is_ego = role == _ROLES.index("AV")
    require(int(is_focal.sum()) == 1, "OBJECT_TYPE", f"must name one AGENT, names {int(is_focal.sum())}")
    require(int(is_ego.sum()) <= 1, "OBJECT_TYPE", f"must name at most one AV, names {int(is_ego.sum())}")
    return is_focal, is_ego
