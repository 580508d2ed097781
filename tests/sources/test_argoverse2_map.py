"""Broken maps of Argoverse 2: invalid records are left out and named, and the rest is kept."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import equal
from tests.sources.argoverse2_files import ARCHIVE, TABLE, rejects
from trajpred.data.lane_map import LaneMap
from trajpred.sources.argoverse2 import map_from, read_archive
from trajpred.sources.reading import MapProblems


def placed(group: str, key: str, value: Any) -> Any:
    """Return the archive with another value under ``key`` of the last record of ``group``."""
    archive = copy.deepcopy(ARCHIVE)
    list(archive[group].values())[-1][key] = value
    return archive


def without_last(group: str) -> LaneMap:
    """Return the map without the last record of ``group``."""
    records = dict(list(ARCHIVE[group].items())[:-1])
    problems = MapProblems()
    lane_map = map_from(ARCHIVE | {group: records}, problems)
    assert not problems
    return lane_map


NOT_AN_ID = ("12", 1.5, True, 2**63)
NOT_A_NUMBER = ("1.5", None, True, float("nan"), 10**400)
NOT_A_LINE = (None, "xyz", {"x": 1}, [[1, 2, 3]] * 3, [{"x": 1, "y": 2}] * 3)
LANE = "lane_segments"


def cases(group: str, key: str, values: Iterable[Any]) -> list[tuple[str, str, str, Any]]:
    return [(f"{group}.{key}", group, key, value) for value in values]


#: Lines of three equal points, with a value that is no number.
NOT_POINTS = [[{"x": 0, "y": value, "z": 0}] * 3 for value in NOT_A_NUMBER]
NOT_IDS = [[value] for value in NOT_AN_ID]
INVALID_MAPS = [
    *cases(LANE, "centerline", [*NOT_A_LINE, *NOT_POINTS]),
    *cases("drivable_areas", "id", [*NOT_AN_ID, None]),
    *cases(LANE, "left_neighbor_id", NOT_AN_ID),
    *cases(LANE, "successors", [*NOT_IDS, None, "12"]),
    *cases(LANE, "lane_type", ("TRAM", None, 3, [])),
    *cases(LANE, "is_intersection", (None, 0, "true")),
    (f"{LANE}.id", LANE, "id", next(iter(ARCHIVE[LANE].values()))["id"]),
    ("crossing_edge1", "pedestrian_crossings", "edge1", []),
]


def test_records_with_invalid_values_are_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "log_map_archive_0.json"
    for field, group, key, value in INVALID_MAPS:
        path.write_text(json.dumps(placed(group, key, value)))
        with pytest.warns(UserWarning, match=f"1 .* left out: .*{field}") as caught:
            lane_map = read_archive(path)
        assert str(path) in str(caught[0].message)
        assert equal(lane_map, without_last(group)), (field, value)


def test_records_without_a_key_are_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "log_map_archive_0.json"
    for group, records in ARCHIVE.items():
        path.write_text(json.dumps(ARCHIVE | {group: records | {"x": 3}}))
        with pytest.warns(UserWarning, match=f"1 .* left out: number 4 .*{group}.id.* missing"):
            assert equal(read_archive(path), map_from(ARCHIVE, MapProblems()))
        for key in next(iter(records.values())):
            archive = copy.deepcopy(ARCHIVE)
            del list(archive[group].values())[-1][key]
            path.write_text(json.dumps(archive))
            with pytest.warns(UserWarning, match=f"1 .* left out: .*{group}.{key}.* missing"):
                assert equal(read_archive(path), without_last(group)), key


def test_maps_without_a_group_or_with_broken_lanes_alone_are_refused(tmp_path: Path) -> None:
    file = "log_map_archive_*.json"
    rejects(file, "lane_segments", tmp_path, TABLE, [])
    for group in ARCHIVE:
        without_group = dict(ARCHIVE)
        del without_group[group]
        rejects(file, group, tmp_path, TABLE, without_group)
        rejects(file, group, tmp_path, TABLE, ARCHIVE | {group: []})
    archive = copy.deepcopy(ARCHIVE)
    for lane in archive[LANE].values():
        lane["lane_type"] = "TRAM"
    message = rejects(file, "lanes", tmp_path, TABLE, archive)
    assert "3 lane segments left out" in message


#: Boundaries of which no centreline can be computed.
NO_SIDE: list[list[dict[str, float]]] = [[], [{"x": 0, "y": 0, "z": 0}, {"x": 1e308, "y": 0, "z": 0}]]


@pytest.mark.parametrize("boundary", NO_SIDE)
@pytest.mark.parametrize("side", ["left_lane_boundary", "right_lane_boundary"])
def test_lanes_without_centreline_and_boundary_are_left_out(
    tmp_path: Path, side: str, boundary: list[dict[str, float]]
) -> None:
    """Maps of Sensor logs have no centrelines: they follow from the boundaries."""
    path = tmp_path / "log_map_archive_0.json"
    archive = placed(LANE, side, boundary)
    for lane in archive[LANE].values():
        del lane["centerline"]
    path.write_text(json.dumps(archive))
    with pytest.warns(UserWarning, match="1 lane segment left out: .*lane_segments"):
        lane_map = read_archive(path)
    assert len(lane_map) == len(ARCHIVE[LANE]) - 1
