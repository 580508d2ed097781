"""Read Argoverse 1 motion forecasting: ``<split>/data/<id>.csv`` and ``map_files/pruned_argoverse_*.xml``.

A row is one position of one track; ``OBJECT_TYPE`` is AGENT (the focal track), AV or OTHERS. Headings and
velocities are not in the files and are estimated causally (:mod:`trajpred.geometry`).
Sequences packed as ``<split>.parquet`` (datasets/argoverse1/README.md lists the columns) are read too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.errors import DataError, encode, require
from trajpred.scenario import EGO_ID, Scenario, TrackCategory
from trajpred.sources.argoverse1_map import city_map
from trajpred.sources.raw_scenario import RawScenario
from trajpred.sources.reading import (
    finite,
    of_tracks,
    readable,
    require_columns,
    require_small_groups,
    require_values,
    text_codes,
    valid_states,
)

#: Folders of each split: as the archives unpack, or under its plain name.
FOLDERS = {"train": ("train",), "val": ("val",), "test": ("test_obs", "test")}
# Recorded timestamps jitter, and some frames are missing, but the task is defined in steps: 30 are to be
# predicted, whenever they were recorded. Elsewhere timestamps decide when a step is; here the official
# metrics do, which compare step with step.
#: Observed steps (2 s at 10 Hz).
NUM_OBSERVED = 20
#: Observed and future steps together.
NUM_STEPS = 50
#: A scenario contains the lanes within this distance of the box around the focal track's observed positions:
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
_NAMES = pa.dictionary(pa.int8(), pa.string())
#: The columns of a pack.
_PACK = {
    "seq_id": pa.int32(),
    "TIMESTAMP": pa.float64(),
    "TRACK_ID": pa.int32(),
    "OBJECT_TYPE": _NAMES,
    "x_dmm": pa.int32(),
    "y_dmm": pa.int32(),
    "CITY_NAME": _NAMES,
}


def discover(raw: Path) -> dict[str, list[RawScenario]]:
    """Return the sequences of each split, by number: files, or parts of a pack ``<split>.parquet``.

    Raises: DataError if there is no map folder.
    """
    splits = {split: _sequences(raw, split) for split in FOLDERS}
    if any(splits.values()) and not (raw / "map_files").is_dir():
        raise DataError("the folder of the vector maps is missing", file=raw / "map_files")
    return splits


def read(raw: RawScenario) -> Scenario:
    """Read one of :func:`discover`. Raises: DataError naming the file and the field at fault."""
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
    files: list[Path] = []
    for folder in FOLDERS[split]:
        files += (raw / folder / "data").glob("*.csv")
    sequences = [RawScenario.of(path) for path in files]
    pack = raw / f"{split}.parquet"
    if not files and pack.is_file():
        sequences = [RawScenario(str(seq_id), pack, seq_id) for seq_id in _pack_ids(pack)]
    return sorted(sequences, key=lambda sequence: (len(sequence.name), sequence.name))


# ----------------------------------------------------------------------------------------------- files


def _read_csv(path: Path) -> pa.Table:
    types = pa.csv.ConvertOptions(column_types=_CSV)
    single_thread = pa.csv.ReadOptions(use_threads=False)
    table = pa.csv.read_csv(str(path), read_options=single_thread, convert_options=types)
    require_columns(table.column_names, _CSV)
    return table


def _pack_ids(pack: Path) -> list[int]:
    with readable(pack, "pack", "seq_id"):
        ids: list[int] = np.unique(_index(pack, pack.stat().st_mtime_ns)[0]).tolist()
        return ids


def _open_pack(pack: Path) -> pq.ParquetFile:
    file = pq.ParquetFile(pack)
    require_small_groups(file.metadata)
    schema = file.metadata.schema.to_arrow_schema()
    for name, dtype in _PACK.items():
        matches = schema.names.count(name) == 1 and schema.field(name).type == dtype
        require(matches, name, f"must be a column of {dtype}")
    return file


@lru_cache(maxsize=4)
def _index(pack: Path, modified_ns: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the sequence of each row, and the first row of each row group; cached until the file changes."""
    file = _open_pack(pack)
    rows = file.read(["seq_id"], use_threads=False)
    require_values(rows, ["seq_id"])
    seq_id: NDArray[np.int32] = rows["seq_id"].to_numpy()
    require(bool((np.diff(seq_id) >= 0).all()), "seq_id", "must be sorted")
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    return seq_id, np.cumsum([0, *sizes])[:-1]


def _read_pack(pack: Path, seq_id: int) -> pa.Table:
    """Return the rows of one sequence with the columns of a CSV file."""
    modified_ns = pack.stat().st_mtime_ns
    ids, first = _index(pack, modified_ns)
    start, stop = np.searchsorted(ids, [seq_id, seq_id + 1]).tolist()
    require(start < stop, "seq_id", f"{seq_id} is not in the pack")
    group = int(np.searchsorted(first, start, side="right")) - 1
    rows = _row_group(pack, modified_ns, group).slice(start - int(first[group]), stop - start)
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
def _row_group(pack: Path, modified_ns: int, group: int) -> pa.Table:
    """Read a row group; cached, since consecutive sequences share it."""
    return _open_pack(pack).read_row_group(group, list(_PACK), use_threads=False)


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
        # The type of OTHERS is not given: most are vehicles, some are pedestrians.
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
