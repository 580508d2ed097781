"""Any map can be written in Argoverse 2's format, and nothing is lost."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT, equal, rejected, run
from tests.integrations.map_files import commonroad, lanelet2, town
from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.integrations.maps import read_map, read_map_file, write_map
from trajpred.sources.argoverse1 import read_city_map

#: Half a millimetre, to which positions are rounded.
TOLERANCE = 0.5e-3 + 1e-9


def planar(lines: Ragged) -> Ragged:
    return Ragged(lines.values[:, :2], lines.offsets) if lines.values.ndim == 2 else lines


def assert_same_map(found: LaneMap, expected: LaneMap) -> None:
    """All fields but heights, which a map may lack."""
    for field in fields(LaneMap):
        a, b = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(a, Ragged):
            a, b = planar(a), planar(b)
        assert equal(a, b, TOLERANCE), field.name


@pytest.mark.parametrize("content", [town(), lanelet2(), commonroad()], ids=["xodr", "osm", "xml"])
def test_maps_of_vehicles(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "map.xml").write_bytes(content)
    expected = read_map(tmp_path / "map.xml")
    assert run("info", tmp_path / "map.xml", "--save", tmp_path / "lanes.json") == 0
    found = read_map(tmp_path / "lanes.json")
    assert_same_map(found, expected)
    assert len(found) > 1


def test_the_frame_of_latitudes_is_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its origin at lanelet 1's start the lane lies along x; other formats are in metres already."""
    pytest.importorskip("pyproj")
    (tmp_path / "map.osm").write_bytes(lanelet2())
    out = tmp_path / "lanes.json"
    assert run("info", tmp_path / "map.osm", "--origin", 48, 9, "--crs", "EPSG:32632", "--save", out) == 0
    assert "EPSG:32632, from latitude 48 and longitude 9" in capsys.readouterr().out
    start = read_map(out).centerline[0][0, :2]
    np.testing.assert_allclose(start, (0, 7.5), atol=0.05)
    assert run("info", out, "--origin", 48, 9) == 2
    assert "'origin': is for latitudes and longitudes of Lanelet2: Argoverse 2" in capsys.readouterr().err
    assert run("info", "argoverse-nano", "--crs", "EPSG:32632") == 2
    assert "--crs: is for map files" in capsys.readouterr().err


def test_maps_of_argoverse_2_with_heights(sample_scenarios: list[Scenario], tmp_path: Path) -> None:
    for scenario in sample_scenarios[::5]:
        write_map(scenario.map, tmp_path / "lanes.json")
        found = read_map_file(tmp_path / "lanes.json")
        assert found.format == "Argoverse 2"
        assert equal(found.lanes, scenario.map, TOLERANCE)


def test_av2_reads_what_is_written(sample_scenarios: list[Scenario], tmp_path: Path) -> None:
    av2_map = pytest.importorskip("av2.map.map_api")
    expected = sample_scenarios[0].map
    write_map(expected, tmp_path / "log_map_archive_a.json")
    found = av2_map.ArgoverseStaticMap.from_json(tmp_path / "log_map_archive_a.json")
    assert sorted(found.vector_lane_segments) == sorted(expected.lane_id.tolist())
    assert sorted(found.vector_pedestrian_crossings) == sorted(expected.crossing_id.tolist())
    for row, lane_id in enumerate(expected.lane_id.tolist()):
        lane = found.vector_lane_segments[lane_id]
        assert lane.successors == expected.successors[row].tolist()
        np.testing.assert_allclose(lane.left_lane_boundary.xyz, expected.left_boundary[row], atol=TOLERANCE)


def test_scenarios_have_maps_that_can_be_saved(store_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "lanes.json"
    assert run("info", "0a1e6f0a", "--store", store_path, "--save", out) == 0
    assert len(read_map(out)) > 40
    assert run("info", "argoverse-nano", "--save", out) == 2
    assert run("info", out, "--save", tmp_path / "lanes.txt") == 2


def test_maps_of_argoverse_1(tmp_path: Path) -> None:
    file = next((ROOT / "datasets" / "argoverse1" / "map_files").glob("*MIA*"))
    expected = read_city_map(file).lanes
    write_map(expected, tmp_path / "lanes.json")
    assert_same_map(read_map(tmp_path / "lanes.json"), expected)


def test_duplicate_ids_are_refused(sample_scenarios: list[Scenario], tmp_path: Path) -> None:
    lanes = np.zeros(0, np.int64)
    twice = sample_scenarios[0].map.take(lanes, np.array([0, 0]))
    error = rejected(lambda: write_map(twice, tmp_path / "lanes.json"), "None", "crossing_id")
    assert "duplicate" in error.message
    assert not list(tmp_path.iterdir())
