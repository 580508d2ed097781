"""What an Argoverse 1 sequence means: window, roles, motion, causality, map, folders."""

from __future__ import annotations

import os
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.graph.scenes import features_of
from tests.sources.argoverse1_files import MAPS, Row, made_map, made_rows, unpack, write, write_csv
from trajpred.lane_map import NO_LANE, TRAFFIC_CONTROL, TURN_DIRECTIONS
from trajpred.scenario import EGO_ID, OBJECT_TYPES, TrackCategory, Tracks
from trajpred.sources import SOURCES
from trajpred.sources.argoverse1 import discover, read_scenario
from trajpred.sources.argoverse1_map import city_map


@pytest.fixture(scope="module")
def unpacked(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(shared, tmp_path_factory.mktemp("argoverse1"))


def test_window_roles_and_categories(tmp_path: Path) -> None:
    scenario = read_scenario(write(tmp_path, made_rows()))
    tracks = scenario.tracks
    assert (scenario.num_observed, scenario.num_steps, scenario.has_future) == (20, 50, True)
    assert scenario.step_s == pytest.approx(0.1)
    assert scenario.focal_id == "focal"
    assert tracks.track_id.tolist() == [EGO_ID, "focal", "late", "parked", "unseen"]
    types = [OBJECT_TYPES[i] for i in tracks.object_type]
    assert types == ["vehicle", "vehicle", "unknown", "unknown", "unknown"]
    assert [TrackCategory(i).name for i in tracks.category] == [
        *("UNSCORED", "FOCAL", "FRAGMENT", "UNSCORED", "FRAGMENT")
    ]


def test_motion_is_derived_from_positions(tmp_path: Path) -> None:
    tracks = read_scenario(write(tmp_path, made_rows())).tracks
    np.testing.assert_allclose(tracks.velocity[tracks.index("focal"), 1:], [[10, 0]] * 49, atol=1e-6)
    np.testing.assert_allclose(tracks.velocity[tracks.index(EGO_ID), 1:], [[0, 5]] * 49, atol=1e-6)
    np.testing.assert_allclose(tracks.heading[tracks.index(EGO_ID), 1:], np.pi / 2, atol=1e-6)
    parked = tracks.index("parked")
    assert np.isfinite(tracks.heading[parked]).all()
    assert not tracks.heading[parked].any()
    assert np.abs(tracks.velocity[parked, 9:]).max() < 0.1


def test_a_parked_track_keeps_the_heading_it_came_with(tmp_path: Path) -> None:
    rows = made_rows()
    for k, row in enumerate(row for row in rows if row[1] == "000"):
        row[4] = 40 + 0.5 * min(k, 15)
    tracks = read_scenario(write(tmp_path, rows)).tracks
    np.testing.assert_allclose(tracks.heading[tracks.index(EGO_ID), 1:], np.pi / 2, atol=1e-6)
    assert not tracks.velocity[tracks.index(EGO_ID), 30:].round(6).any()


def same(a: Any, b: Any, leave_out: tuple[str, ...] = (), name: str = "") -> None:
    """Bit for bit, field by field."""
    if is_dataclass(a):
        for one in fields(a):
            if one.name not in leave_out:
                same(getattr(a, one.name), getattr(b, one.name), leave_out, one.name)
    else:
        left, right = np.asarray(a), np.asarray(b)
        assert (left.dtype, left.tobytes()) == (right.dtype, right.tobytes()), name


def inputs(tracks: Tracks) -> Tracks:
    """The observed steps of the tracks that have any."""
    seen = tracks.valid[:, :20].any(axis=1)
    cut = {one.name: getattr(tracks, one.name)[seen] for one in fields(tracks)}
    return Tracks(**{name: values[:, :20] if values.ndim > 1 else values for name, values in cut.items()})


def with_other_future(rows: list[Row], change: str) -> list[Row]:
    stamps = sorted({row[0] for row in rows}, key=float)
    shift = np.random.default_rng(1)
    changed = []
    for row in rows:
        k = stamps.index(row[0])
        if k < 20:
            changed.append(row)
        elif change == "stamps":
            changed.append([repr(float(row[0]) + 0.2 * (k - 19)), *row[1:]])
        elif change != "none" and not (change == "focal alone" and row[1] != "focal"):
            x, y = np.array(row[3:5], float) + shift.normal(0, 300, 2)
            changed.append([*row[:3], x, y, row[5]])
    return changed


CHANGES = ["places", "stamps", "focal alone", "none"]


def check_causal(path: Path, rows: list[Row], change: str) -> None:
    before = read_scenario(path)
    write_csv(path, with_other_future(rows, change))
    after = read_scenario(path)
    assert len(before.map) > 0
    same(before.map, after.map)
    same(inputs(before.tracks), inputs(after.tracks))
    assert before.step_s == after.step_s
    a, b = (features_of(one) for one in (before, after))
    same(a.agents, b.agents, leave_out=("target", "target_mask", "track"))
    same(a.lanes, b.lanes)
    # The change did arrive.
    assert (a.agents.target.tobytes() == b.agents.target.tobytes()) == (change == "stamps")


@pytest.mark.parametrize("change", CHANGES)
def test_the_future_changes_no_input(tmp_path: Path, change: str) -> None:
    check_causal(write(tmp_path, made_rows()), made_rows(), change)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("scene", [0, 300, 615])
def test_the_future_changes_no_input_of_a_real_scene(unpacked: Path, scene: int, change: str) -> None:
    source = discover(unpacked)["val"][scene]
    rows: list[Row] = [line.split(",") for line in source.read_text().splitlines()[1:]]
    path = unpacked / "train" / "data" / "7.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, rows)
    check_causal(path, rows, change)


def test_a_sequence_without_future(tmp_path: Path) -> None:
    """The test split: 20 steps in the file, 30 more to predict."""
    path = write(tmp_path, made_rows(20), split="test_obs")
    scenario = read_scenario(path)
    assert (scenario.num_observed, scenario.num_steps, scenario.has_future) == (20, 50, False)
    assert discover(tmp_path) == {"test": [path]}
    same(inputs(scenario.tracks), inputs(read_scenario(write(tmp_path, made_rows())).tracks))


def test_the_label_av_changes_the_label_alone(tmp_path: Path) -> None:
    labelled = read_scenario(write(tmp_path, made_rows())).tracks
    rows = [[*row[:2], "OTHERS" if row[1] == "000" else row[2], *row[3:]] for row in made_rows()]
    plain = read_scenario(write(tmp_path, rows)).tracks
    assert plain.track_id[0] == "000"
    assert labelled.track_id[0] == EGO_ID
    same(labelled, plain, leave_out=("track_id", "object_type"))


def test_rows_in_any_order_and_quotes(tmp_path: Path) -> None:
    plain = read_scenario(write(tmp_path, made_rows()))
    shuffled = [made_rows()[i] for i in np.random.default_rng(0).permutation(len(made_rows()))]
    quoted = [[*row[:1], f'"{row[1]}"', *row[2:]] for row in shuffled]
    same(read_scenario(write(tmp_path, quoted)), plain)


def test_the_made_map(tmp_path: Path) -> None:
    lanes = read_scenario(write(tmp_path, made_rows())).map
    assert lanes.lane_id.tolist() == [11, 12]
    assert lanes.left_neighbor.tolist() == [13, NO_LANE]
    assert lanes.right_neighbor.tolist() == [NO_LANE, 99]
    assert [row.tolist() for row in lanes.successors] == [[12], []]
    assert [row.tolist() for row in lanes.predecessors] == [[], [11]]
    assert lanes.is_intersection.tolist() == [True, False]
    assert lanes.centerline[1].tolist() == [[120, 50], [150, 51], [180, 52]]
    assert [TURN_DIRECTIONS[code] for code in lanes.turn_direction] == ["LEFT", "NONE"]
    assert [TRAFFIC_CONTROL[code] for code in lanes.has_traffic_control] == ["NO", "YES"]
    whole = city_map(tmp_path / "map_files", "MIA")
    assert [TURN_DIRECTIONS[code] for code in whole.lanes.turn_direction] == ["LEFT", "NONE", "RIGHT"]
    assert len(whole.near(np.array([1e6, 0]), np.array([1e6, 1]), 100)) == 0


def test_a_map_is_parsed_once_and_again_when_it_changed(tmp_path: Path) -> None:
    write(tmp_path, made_rows())
    first = city_map(tmp_path / "map_files", "MIA")
    assert city_map(tmp_path / "map_files", "MIA") is first
    path = tmp_path / "map_files" / MAPS["MIA"]
    path.write_text(made_map().replace('"700"', '"170"'))
    os.utime(path, ns=(0, 0))
    assert city_map(tmp_path / "map_files", "MIA").low[2, 0] == 170


def test_discover_by_number_and_folder(tmp_path: Path) -> None:
    for name in ("val/data/10.csv", "val/data/9.csv", "val/data/list.txt", "train/data/3.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "map_files").mkdir()
    (tmp_path / "val.parquet").touch()  # a folder with sequences goes before a pack
    data = tmp_path / "val" / "data"
    expected = {"train": [tmp_path / "train" / "data" / "3.csv"], "val": [data / "9.csv", data / "10.csv"]}
    assert SOURCES["argoverse1"].discover(tmp_path) == expected
