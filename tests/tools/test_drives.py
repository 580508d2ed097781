"""Drives of the shipped Argoverse 1 scenes: the files are those of the tool, and no half shares a second."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT
from tools.drives import drives
from trajpred.data.splits import half_of
from trajpred.sources import argoverse1

SHIPPED = ROOT / "datasets" / "argoverse1"


def test_scenes_that_share_three_positions_are_of_one_drive(tmp_path: Path) -> None:
    """1 and 2 share three, 2 and 4 too; 3 and 5 share only two, and a place of 50 rows."""
    rows = [(1, 0), (1, 10), (1, 20), (2, 0), (2, 10), (2, 20), (2, 50), (2, 60), (2, 70)]
    rows += [(4, 50), (4, 60), (4, 70), (3, 80), (3, 90), (5, 80), (5, 90)]
    rows += [(scene, 990) for scene in (3, 5) for _ in range(25)]
    columns = {
        "seq_id": pa.array([scene for scene, _ in rows], pa.int32()),
        "x_dmm": pa.array([x for _, x in rows], pa.int32()),
        "y_dmm": pa.array([7] * len(rows), pa.int32()),
        "CITY_NAME": ["MIA"] * len(rows),
    }
    pq.write_table(pa.table(columns), tmp_path / "val.parquet")
    scenes, drive = drives(tmp_path / "val.parquet")
    assert scenes.tolist() == [1, 2, 3, 4, 5]
    assert drive.tolist() == [4, 4, 3, 4, 5]


def states(split: str) -> pd.DataFrame:
    """Return the states of a pack, with their second and the recording of their scene."""
    rows = pd.read_parquet(SHIPPED / f"{split}.parquet")
    recordings: dict[int, str] = {}
    for raw in argoverse1.discover(SHIPPED)[split]:
        recordings[int(raw.name)] = raw.recording or raw.name
    rows["recording"] = rows["seq_id"].map(recordings)
    rows["x_mm"] = (rows["x_dmm"] / 10).round()
    rows["y_mm"] = (rows["y_dmm"] / 10).round()
    rows["ms"] = (rows["TIMESTAMP"] * 1000).round().astype("int64")
    return rows


#: What two scenes that show the same second have in common: a road user at a place at a time.
STATE = ["ms", "TRACK_ID", "x_dmm", "y_dmm"]


def test_neither_halves_nor_splits_share_a_second() -> None:
    val = states("val")
    val["half"] = val["recording"].map(half_of)
    together = val.groupby(STATE)
    assert together["seq_id"].nunique().max() > 1, "windows of one drive overlap"
    assert together["half"].nunique().max() == 1
    assert together["recording"].nunique().max() == 1
    train = states("train")
    timed = train[train["ms"] > 10_000]
    assert timed.merge(val, on=STATE).empty
    # The other training scenes have no true times; overlapping windows share dozens of positions.
    place = ["x_mm", "y_mm", "CITY_NAME"]
    shared = (
        train[train["ms"] <= 10_000].merge(val, on=place).drop_duplicates(["seq_id_x", "seq_id_y", *place])
    )
    assert shared.groupby(["seq_id_x", "seq_id_y"]).size().max() <= 3


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "val"])
def test_the_files_of_drives_are_those_of_the_tool(split: str) -> None:
    scenes, drive = drives(SHIPPED / f"{split}.parquet")
    expected = dict(zip(scenes.tolist(), drive.tolist(), strict=True))
    for raw in argoverse1.discover(SHIPPED)[split]:
        assert int(raw.recording or raw.name) == expected[int(raw.name)]
