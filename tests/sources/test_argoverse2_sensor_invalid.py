"""Sensor logs that cannot be used are described in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.sources.sensor_logs import BOXES, POSES, change, only_log
from trajpred.errors import DataError
from trajpred.sources import SOURCES, argoverse2_sensor


def constant(column: str, value: float) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        values = pa.array(np.full(len(table), value))
        return table.set_column(table.schema.get_field_index(column), column, values)

    return changed


def times(convert: Callable[[np.ndarray], np.ndarray]) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        values = pa.array(convert(table["timestamp_ns"].to_numpy()))
        return table.set_column(table.schema.get_field_index("timestamp_ns"), "timestamp_ns", values)

    return changed


@pytest.mark.parametrize(
    ("file", "damage", "problem"),
    [
        (BOXES, lambda t: t.drop_columns(["track_uuid"]), f"{BOXES}, field 'track_uuid': column is missing"),
        (BOXES, constant("qw", 3.0), "field 'qw': and qx, qy, qz must be unit quaternions"),
        (BOXES, constant("tx_m", np.nan), f"{BOXES}, field 'tx_m'"),
        (BOXES, times(lambda ns: ns // 1000), f"{BOXES}, field 'timestamp_ns': must be nanoseconds"),
        (
            BOXES,
            times(lambda ns: ns.astype(np.float32)),
            f"{BOXES}, field 'timestamp_ns': must be nanoseconds",
        ),
        (POSES, times(lambda ns: ns.astype(str)), f"{POSES}, field 'timestamp_ns': must be nanoseconds"),
        (
            POSES,
            times(lambda ns: ns // 1000),
            "no pose at the time of an annotated frame, in the nano",
        ),
        (BOXES, lambda t: t.slice(0, 4000), "has [0-9]+ frames, a window 110"),
        (BOXES, lambda t: t.slice(0, 0), "field 'timestamp_ns': the file has no rows"),
        (POSES, lambda t: t.slice(0, 50), "has no pose at the time of an annotated frame"),
    ],
)
def test_unusable_logs_are_described_in_one_sentence(
    raw: Path, file: str, damage: Callable[[pa.Table], pa.Table], problem: str
) -> None:
    change(only_log(raw) / file, damage)
    with pytest.raises(DataError, match=problem):
        argoverse2_sensor.read(argoverse2_sensor.discover(raw)["val"][0])


def test_logs_of_the_test_split_have_no_annotations(tmp_path: Path) -> None:
    log = tmp_path / "test" / "log"
    (log / "map").mkdir(parents=True)
    (log / "map" / "log_map_archive_log____PIT_city_1.json").write_text("{}")
    (log / POSES).write_bytes(b"")
    [window] = argoverse2_sensor.discover(tmp_path)["test"]
    with pytest.raises(DataError, match=r"log: has no annotations \(annotations.feather"):
        argoverse2_sensor.read(window)


def test_damaged_files_and_empty_folders_are_described(raw: Path) -> None:
    log = only_log(raw)
    [lane_map] = (log / "map").iterdir()
    lane_map.write_text(json.dumps({"lane_segments": {}}))
    window = argoverse2_sensor.discover(raw)["val"][0]
    with pytest.raises(DataError, match="pedestrian_crossings"):
        argoverse2_sensor.read(window)
    (log / BOXES).write_bytes(b"not a table")
    [window] = argoverse2_sensor.discover(raw)["val"]
    with pytest.raises(DataError, match=r"annotations.feather: is not a readable feather file"):
        argoverse2_sensor.read(window)
    with pytest.raises(DataError, match="no scenarios; expected"):
        SOURCES["argoverse2-sensor"].scenarios(raw / "val")
