"""Argoverse 1 against plain csv and ElementTree reading, and the figures of the shipped scenes."""

from __future__ import annotations

import csv
import gzip
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.sources.argoverse1_files import MAPS, SHIPPED, made_rows, unpack, write
from trajpred.evaluation import evaluate
from trajpred.lane_map import NO_LANE, TRAFFIC_CONTROL, TURN_DIRECTIONS, LaneMap
from trajpred.predictors import load_predictor
from trajpred.scenario import EGO_ID, Scenario, equal
from trajpred.sources.argoverse1 import LANE_RADIUS_M, discover, read_scenario
from trajpred.sources.argoverse1_map import read_city_map
from trajpred.store import ScenarioStore, prepare


@pytest.fixture(scope="module")
def unpacked(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(shared, tmp_path_factory.mktemp("argoverse1"))


def check_tracks(scenario: Scenario, path: Path) -> None:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    stamps = sorted({float(row["TIMESTAMP"]) for row in rows})
    expected = np.full((len(scenario.tracks), 50, 2), np.nan)
    names = scenario.tracks.track_id.tolist()
    for row in rows:
        name = EGO_ID if row["OBJECT_TYPE"] == "AV" else row["TRACK_ID"]
        expected[names.index(name), stamps.index(float(row["TIMESTAMP"]))] = float(row["X"]), float(row["Y"])
    assert set(names) == {EGO_ID if r["OBJECT_TYPE"] == "AV" else r["TRACK_ID"] for r in rows}
    assert [scenario.focal_id] == list({r["TRACK_ID"] for r in rows if r["OBJECT_TYPE"] == "AGENT"})
    assert {scenario.city} == {row["CITY_NAME"] for row in rows}
    assert scenario.scenario_id == path.stem
    valid = scenario.tracks.valid
    np.testing.assert_array_equal(valid, ~np.isnan(expected[..., 0]))
    np.testing.assert_array_equal(scenario.tracks.position[valid], expected[valid])
    assert not scenario.tracks.position[~valid].any()


def test_positions_equal_plain_csv(unpacked: Path) -> None:
    for path in discover(unpacked)["val"][::7]:
        check_tracks(read_scenario(path), path)


def test_made_positions_equal_plain_csv(tmp_path: Path) -> None:
    path = write(tmp_path, made_rows())
    check_tracks(read_scenario(path), path)


def test_shipped_pack_equals_the_official_layout(unpacked: Path) -> None:
    plain, packed = discover(unpacked)["val"], discover(SHIPPED)["val"]
    assert [path.stem for path in plain] == [path.name for path in packed]
    assert len(packed) == 616
    for csv_path, pack_path in zip(plain, packed, strict=True):
        assert equal(read_scenario(csv_path), read_scenario(pack_path))


def plain_lanes(path: Path) -> tuple[dict[int, Any], dict[int, list[list[float]]]]:
    """Tags (key -> list of values) and points of each lane, read one element after another."""
    with gzip.open(path) as file:
        root = ElementTree.parse(file).getroot()
    node = {one.attrib["id"]: [float(one.attrib["x"]), float(one.attrib["y"])] for one in root.iter("node")}
    tags: dict[int, Any] = {}
    points: dict[int, list[list[float]]] = {}
    for way in root.iter("way"):
        lane_id = int(way.attrib["lane_id"])
        tags[lane_id] = {}
        for tag in way.iter("tag"):
            tags[lane_id].setdefault(tag.attrib["k"], []).append(tag.attrib["v"])
        points[lane_id] = [node[nd.attrib["ref"]] for nd in way.iter("nd")]
    return tags, points


def check_lane(lanes: LaneMap, row: int, tags: Any, points: list[list[float]]) -> None:
    def neighbor(key: str) -> int:
        return NO_LANE if tags[key] == ["None"] else int(tags[key][0])

    np.testing.assert_array_equal(lanes.centerline[row], points)
    assert [str(lanes.is_intersection[row])] == tags["is_intersection"]
    assert (lanes.left_neighbor[row], lanes.right_neighbor[row]) == (
        neighbor("l_neighbor_id"),
        neighbor("r_neighbor_id"),
    )
    assert lanes.successors[row].tolist() == [int(value) for value in tags.get("successor", [])]
    assert lanes.predecessors[row].tolist() == [int(value) for value in tags.get("predecessor", [])]
    assert not len(lanes.left_boundary[row])


@pytest.mark.parametrize("city", ["MIA", "PIT"])
def test_city_maps_equal_element_tree(city: str) -> None:
    path = SHIPPED / "map_files" / f"{MAPS[city]}.gz"
    tags, points = plain_lanes(path)
    whole = read_city_map(path)
    assert whole.lanes.lane_id.dtype == np.int64
    assert set(whole.lanes.lane_id.tolist()) == set(tags)
    for row, lane_id in enumerate(whole.lanes.lane_id.tolist()):
        check_lane(whole.lanes, row, tags[lane_id], points[lane_id])
        assert [TURN_DIRECTIONS[whole.lanes.turn_direction[row]]] == tags[lane_id]["turn_direction"]
        control = TRAFFIC_CONTROL[whole.lanes.has_traffic_control[row]]
        assert [{"NO": "False", "YES": "True"}[control]] == tags[lane_id]["has_traffic_control"]


def test_the_cut_out_holds_exactly_the_near_lanes() -> None:
    scenario = read_scenario(discover(SHIPPED)["val"][100])
    tags, points = plain_lanes(SHIPPED / "map_files" / f"{MAPS[scenario.city]}.gz")
    seen = scenario.tracks.position[scenario.focal, :20]
    near = set()
    for lane_id, line in points.items():
        gap = [
            max(0, min(p[i] for p in line) - seen[:, i].max(), seen[:, i].min() - max(p[i] for p in line))
            for i in range(2)
        ]
        if np.hypot(*gap) <= LANE_RADIUS_M:
            near.add(lane_id)
    assert set(scenario.map.lane_id.tolist()) == near
    assert 10 < len(near) < len(points) / 10
    for row, lane_id in enumerate(scenario.map.lane_id.tolist()):
        check_lane(scenario.map, row, tags[lane_id], points[lane_id])


@pytest.fixture(scope="module")
def shipped_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("argoverse1") / "store"
    summary = prepare("argoverse1", SHIPPED, store, workers=1, progress=False)
    assert (summary.scenarios, summary.skipped) == ({"val": 616}, {"val": {}})
    return store


def test_the_store_keeps_the_scenarios(shipped_store: Path) -> None:
    rows = ScenarioStore(shipped_store, "val")
    assert rows.lengths == (20, 30)
    for index, path in list(enumerate(discover(SHIPPED)["val"]))[::50]:
        assert equal(rows[index], read_scenario(path), tolerance=6e-4)


def test_constant_velocity_on_the_shipped_scenes(shipped_store: Path) -> None:
    """The published line fit gives FDE 4.991, ADE 2.212: from its own line, 5 cm beside the last position."""
    errors = []
    for scenario in ScenarioStore(shipped_store, "val"):
        position = scenario.tracks.position[scenario.focal]
        velocity = scenario.tracks.velocity[scenario.focal, 19]
        # A least-squares line passes through the centre of its points.
        ahead = np.arange(20, 50)[:, None] - 14.5
        line = position[10:20].mean(axis=0) + 0.1 * ahead * velocity
        errors.append(np.hypot(*(line - position[20:]).T))
    assert np.mean(errors) == pytest.approx(2.212, abs=2e-3)
    assert np.mean(errors, axis=0)[-1] == pytest.approx(4.991, abs=2e-3)


def test_the_tool_prints_what_the_card_says(shipped_store: Path) -> None:
    result = evaluate(
        load_predictor("constant_velocity"), ScenarioStore(shipped_store, "val"), progress=False
    )
    focal = result.metrics["focal"]
    figures = [round(focal[name], 2) for name in ("minADE1", "minFDE1", "MR1")]
    card = (SHIPPED / "README.md").read_text()
    assert "focal minADE1 of {} m, minFDE1 of {} m and MR1 of {}".format(*figures) in " ".join(card.split())


def test_reading_takes_few_milliseconds() -> None:
    paths = discover(SHIPPED)["val"][:200]
    for path in paths:
        read_scenario(path)  # both cities parsed, the row group decoded
    start = time.process_time()
    for path in paths:
        read_scenario(path)
    assert (time.process_time() - start) / len(paths) < 10e-3
