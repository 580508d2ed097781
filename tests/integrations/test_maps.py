"""Maps of vehicles against closed forms and the formats' own libraries, read and written."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import fresnel

from tests.conftest import ROOT, equal, error_of, rejected, rejects, run
from tests.integrations.map_files import LINE, STRAIGHT, commonroad, lane, lanelet2, opendrive, road, town
from trajpred.data import lane_map as records
from trajpred.data.geometry import arc_length, norm
from trajpred.data.lane_map import LANE_TYPES, MARK_TYPES, LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.integrations.maps import read_map, read_map_file, write_map
from trajpred.integrations.maps.lanelet2 import project
from trajpred.integrations.maps.segments import faults
from trajpred.sources.argoverse1 import read_city_map

Load = Callable[..., LaneMap]
#: A map of Argoverse 2 without elements.
EMPTY_ARCHIVE = b'{"lane_segments": {}, "pedestrian_crossings": {}, "drivable_areas": {}}'


@pytest.fixture(scope="session")
def files(shared: Path) -> list[Path]:
    paths = sorted((shared / "data" / "maps").glob("*/*"))
    paths = [path for path in paths if path.is_file()]
    if not paths:
        pytest.skip(f"no maps in {shared}")
    return paths


def named(files: list[Path], name: str) -> Path:
    return next(path for path in files if path.name.startswith(name))


def total_length(lines: Ragged) -> float:
    """Sum of the lengths in metres."""
    return sum(arc_length(line)[-1] for line in lines)


def marks(lane_map: LaneMap, row: int) -> tuple[str, str]:
    return MARK_TYPES[lane_map.left_mark[row]], MARK_TYPES[lane_map.right_mark[row]]


def one_curve(load: Load, shape: str, length: float = 40) -> np.ndarray:
    """Return a curve that starts at the origin, from the left boundary of a lane beside it."""
    record = f'<geometry s="0" x="0" y="0" hdg="0" length="{length}">{shape}</geometry>'
    width = 'a="2" b="0" c="0" d="0"'
    return load(opendrive(road("1", record, length, right=lane(-1, width=width)))).left_boundary.values


def test_lines_arcs_spirals_and_polynomials_are_those_of_closed_forms(load: Load) -> None:
    assert np.allclose(one_curve(load, LINE)[:, 1], 0)
    arc = one_curve(load, '<arc curvature="-0.05"/>')
    assert np.allclose(norm(arc - [0, -20]), 20, atol=1e-9)
    assert np.allclose(arc[-1], [20 * np.sin(2), -20 + 20 * np.cos(2)], atol=1e-9)
    # A clothoid from curvature 0 to 0.1 over L = 40 m: theta = s² / (2 A²), A² = 400.
    scale = np.sqrt(np.pi * 400)
    sine, cosine = fresnel(40 / scale)
    spiral = one_curve(load, '<spiral curvStart="0" curvEnd="0.1"/>')
    assert np.allclose(spiral[-1], [scale * cosine, scale * sine], atol=1e-6)
    parabola = one_curve(load, '<poly3 a="0" b="0" c="0.01" d="0"/>')
    assert np.allclose(parabola[:, 1], 0.01 * parabola[:, 0] ** 2)
    assert arc_length(parabola)[-1] == pytest.approx(40, abs=0.01)
    cubic = '<paramPoly3 aU="0" bU="40" cU="0" dU="-4" aV="0" bV="0" cV="9" dV="1" pRange="{}"/>'
    assert np.allclose(one_curve(load, cubic.format("normalized"))[-1], [36, 10])
    by_length = one_curve(load, cubic.format("arcLength"), 0.5)
    assert np.allclose(by_length[-1], [40 * 0.5 - 4 / 8, 9 / 4 + 1 / 8])


def test_lanes_of_a_section_have_directions_neighbours_and_marks(load: Load) -> None:
    def section(rule: str) -> LaneMap:
        sides = {"left": lane(1) + lane(2, "sidewalk"), "right": lane(-1) + lane(-2, "bus")}
        return load(opendrive(road(**sides, attributes=f'rule="{rule}"')))

    right = section("RHT")
    left = section("LHT")
    ends = np.stack([line[[0, -1]] for line in right.centerline])
    expected = [[[40, 1.5], [0, 1.5]], [[0, -1.5], [40, -1.5]], [[0, -4.5], [40, -4.5]]]
    np.testing.assert_allclose(ends, expected, atol=1e-9)
    backward = np.concatenate([line[::-1] for line in left.centerline])
    assert np.allclose(backward, right.centerline.values)
    assert np.allclose(right.left_boundary[1][:, 1], 0)
    assert np.allclose(left.left_boundary[1][:, 1], -3)
    assert [LANE_TYPES[i] for i in right.lane_type] == ["VEHICLE", "VEHICLE", "BUS"]
    assert right.left_neighbor.tolist() == [-1, -1, 1]
    assert right.right_neighbor.tolist() == [-1, 2, -1]
    assert left.left_neighbor.tolist() == [-1, 2, -1]
    assert left.right_neighbor.tolist() == [-1, -1, 1]
    # Inner line first, at the centre the left one; in a lane map the line near the lane.
    assert marks(right, 0) == ("SOLID_DASH_YELLOW", "SOLID_DASH_YELLOW")
    assert marks(right, 1) == ("DASH_SOLID_YELLOW", "SOLID_DASH_YELLOW")
    assert marks(right, 2) == ("DASH_SOLID_YELLOW", "SOLID_DASH_YELLOW")
    dots = load(opendrive(road()).replace(b"solid broken", b"botts dots"))
    assert marks(dots, 0) == ("DASHED_YELLOW", "DASHED_YELLOW"), "from either side"


def test_a_header_offset_turns_and_moves_the_map(load: Load) -> None:
    moved = load(opendrive(road(), header='<offset x="100" y="50" z="0" hdg="1.5707963267948966"/>'))
    assert np.allclose(moved.centerline[0][[0, -1]], [[101.5, 50], [101.5, 90]])


def test_lane_offsets_may_jump_between_sections(load: Load) -> None:
    offsets = '<laneOffset s="0" a="0" b="0" c="0" d="0"/><laneOffset s="20" a="3" b="0" c="0" d="0"/>'
    other = lane(-1) + lane(-2, link='<predecessor id="-1"/>')
    second = f'</laneSection><laneSection s="20"><right>{other}</right></laneSection>'.encode()
    first = opendrive(road(extra=offsets, right=lane(-1, link='<successor id="-2"/>')))
    lane_map = load(first.replace(b"</laneSection>", second))
    sides = [np.unique(line[:, 1].round(9)).tolist() for line in lane_map.centerline]
    assert sides == [[-1.5], [1.5], [-1.5]]
    assert lane_map.successors[0].tolist() == [2]
    assert faults(lane_map) == []


def test_lanes_lie_on_the_line_before_the_first_offset(load: Load) -> None:
    """The example of the standard: the offset leaves 0 at 25 m with slope 0, and reaches 3.25 m at 75 m."""
    widening = (
        '<laneOffset s="25" a="0" b="0" c="3.9e-3" d="-5.2e-5"/>'
        '<laneOffset s="75" a="3.25" b="0" c="0" d="0"/>'
    )
    line = STRAIGHT.replace('length="40"', 'length="100"')
    lane_map = load(opendrive(road(geometry=line, length=100, extra=widening)))
    s, offset = np.concatenate([*lane_map.left_boundary]).T
    assert np.abs(offset[s <= 25]).max() == 0
    assert offset[(s > 30) & (s < 75)].min() > 0.05
    assert offset[s > 76] == pytest.approx(3.25)


def test_sections_of_one_side_cut_that_side_alone(load: Load) -> None:
    """On the left lane 1 has one section of 40 m, on the right there are two."""
    content = opendrive(road(left=lane(1), right=lane(-1, link='<successor id="-1"/>')))
    right = lane(-1, link='<predecessor id="-1"/>') + lane(-2)
    second = f'</laneSection><laneSection s="20" singleSide="true"><right>{right}</right></laneSection>'
    lane_map = load(content.replace(b"</laneSection>", second.encode()))
    ends = [line[[0, -1]].round(6).tolist() for line in lane_map.centerline]
    assert ends == [
        [[40.0, 1.5], [0.0, 1.5]],
        [[0.0, -1.5], [20.0, -1.5]],
        [[20.0, -1.5], [40.0, -1.5]],
        [[20.0, -4.5], [40.0, -4.5]],
    ]
    assert [row.tolist() for row in lane_map.successors] == [[], [lane_map.lane_id[2]], [], []]
    assert lane_map.right_neighbor[2] == lane_map.lane_id[3]
    left = f'</laneSection><laneSection s="20" singleSide="true"><left>{lane(1)}</left></laneSection>'
    later = load(opendrive(road()).replace(b"</laneSection>", left.encode()))
    ends = [line[[0, -1], 0].round(6).tolist() for line in later.centerline]
    assert ends == [[40.0, 20.0], [0.0, 40.0]], "no lane on the left before 20 m"
    sides = opendrive(road(left=lane(1), right=""))
    sides = sides.replace(b'<laneSection s="0">', b'<laneSection s="0" singleSide="true">')
    also = f'</laneSection><laneSection s="0" singleSide="true"><right>{lane(-1)}</right></laneSection>'
    both = load(sides.replace(b"</laneSection>", also.encode()))
    assert [arc_length(line)[-1] for line in both.centerline] == pytest.approx([40, 40])


def test_a_town_links_across_its_junction(load: Load) -> None:
    lane_map = load(town())
    assert faults(lane_map) == []
    assert len(lane_map.crossing_id) == 1
    assert [lane_map.successors[row].tolist() for row in range(2)] == [[1], [3, 6, 9]]
    assert lane_map.is_intersection.tolist() == [False, True, *[False] * (len(lane_map) - 2)]
    edges = lane_map.crossing_edge1[0], lane_map.crossing_edge2[0]
    assert sorted(round(float(edge[:, 0].mean()), 6) for edge in edges) == [18.5, 21.5]
    assert np.allclose([np.ptp(edge[:, 1]) for edge in edges], 8)
    # The offset of the lanes is 0.001 s² up to 20 m.
    assert np.interp(10, *lane_map.left_boundary[0].T) == pytest.approx(0.1)


@pytest.mark.parametrize("local", [True, False])
def test_lanelets_are_oriented_and_linked(load: Load, local: bool) -> None:
    options = {} if local else {"origin": (48, 9), "crs": "+proj=tmerc +lat_0=48 +lon_0=9"}
    lane_map = load(lanelet2(local), **options)
    row = {i: k for k, i in enumerate(lane_map.lane_id.tolist())}
    reverse = max(row)
    kinds = [LANE_TYPES[i] for i in lane_map.lane_type]
    assert kinds == ["VEHICLE", "VEHICLE", "BIKE", "VEHICLE", "VEHICLE"]
    assert np.allclose(lane_map.centerline[row[1]][[0, -1]], [[0, 7.5], [30, 7.5]], atol=0.01)
    assert np.allclose(lane_map.centerline[row[3]][[0, -1]], [[0, 4.5], [30, 4.5]], atol=0.01)
    assert lane_map.successors[row[1]].tolist() == [2]
    assert lane_map.predecessors[row[2]].tolist() == [1]
    assert lane_map.right_neighbor[row[1]] == 3
    assert lane_map.left_neighbor[row[3]] == 1
    assert np.allclose(lane_map.centerline[row[reverse]], lane_map.centerline[row[4]][::-1])
    assert marks(lane_map, row[1]) == ("SOLID_WHITE", "SOLID_DASH_WHITE")
    assert marks(lane_map, row[3]) == ("DASH_SOLID_WHITE", "DASHED_WHITE")
    assert len(lane_map.crossing_id) == 1


def test_commonroad_has_intersections_marks_and_crosswalks(load: Load) -> None:
    lane_map = load(commonroad())
    assert lane_map.lane_id.tolist() == [1, 2]
    assert lane_map.successors[0].tolist() == [2]
    assert lane_map.is_intersection.tolist() == [False, True]
    assert len(lane_map.crossing_id) == 1
    assert marks(lane_map, 0) == ("DASH_SOLID_WHITE", "SOLID_WHITE")
    assert load(commonroad().replace(b"urban", b"restricted_area", 1)).lane_id.tolist() == [2]


def test_lanelets_are_those_of_the_library(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """lanelet2 1.2.3: UtmProjector, canPass of vehicles in Germany, following, left and right lanes."""
    monkeypatch.setattr(records, "MAX_LENGTH_M", 1e9)
    path = named(files, "mapping_example")
    lane_map = read_map(path, origin=(49.0, 8.4))
    ids = [int(i) for i in re.findall(r"relation id='(\d+)'", path.read_text())]
    in_file = np.isin(lane_map.lane_id, ids)
    cars = np.flatnonzero(in_file & (lane_map.lane_type == 0))
    assert len(cars) == 328
    assert (in_file & (lane_map.lane_type == 1)).sum() == 31
    left = lane_map.left_boundary.take(cars)
    right = lane_map.right_boundary.take(cars)
    assert total_length(left) == pytest.approx(4546.67477009132, abs=1e-6)
    assert total_length(right) == pytest.approx(4697.791666076213, abs=1e-6)
    start = left.values[left.offsets[:-1]].mean(axis=0)
    assert np.allclose(start, [1666.7887427592877, 611.2041718092514], atol=1e-6)
    following = lane_map.successors.take(cars).values
    assert np.isin(following, lane_map.lane_id[cars]).sum() == 313
    assert np.isin(lane_map.left_neighbor[cars], lane_map.lane_id[cars]).sum() == 111


def test_bounds_of_lanelets_run_as_in_the_library(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of small ones that cross others on the same four nodes, which are not turned inside out."""
    pytest.importorskip("lanelet2")
    from lanelet2.io import Origin, load
    from lanelet2.projection import UtmProjector

    monkeypatch.setattr(records, "MAX_LENGTH_M", 1e9)
    path = named(files, "mapping_example")
    lane_map = read_map(path, origin=(49.0, 8.4))
    row = {number: i for i, number in enumerate(lane_map.lane_id.tolist())}
    found = [one for one in load(str(path), UtmProjector(Origin(49.0, 8.4))).laneletLayer if one.id in row]
    assert len(found) == 359
    for lanelet in found:
        i = row[lanelet.id]
        for line, bound in (
            (lane_map.left_boundary[i], lanelet.leftBound),
            (lane_map.right_boundary[i], lanelet.rightBound),
        ):
            expected = [(point.x, point.y) for point in bound]
            np.testing.assert_allclose(line[[0, -1], :2], [expected[0], expected[-1]], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("USA_Lanker", (1689.4027907311656, 84, 57, [1.7596035227272748, 18.778639318181813])),
        ("USA_US101", (1181.2919764693706, 6, 9, [21.155179874213843, -31.099742243186604])),
    ],
)
def test_commonroad_lanelets_are_those_of_the_library(
    name: str, expected: tuple[Any, ...], files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """commonroad-io 2026.1: sums of distances, successors, left lanes of the same direction, mean vertex."""
    metres, links, left, centre = expected
    monkeypatch.setattr(records, "MAX_LENGTH_M", 1e9)
    lane_map = read_map(named(files, name))
    assert total_length(lane_map.centerline) == pytest.approx(metres, abs=1e-9)
    assert len(lane_map.successors.values) == links
    assert (lane_map.left_neighbor >= 0).sum() == left
    assert np.allclose(lane_map.centerline.values.mean(axis=0), centre, atol=1e-9)


def test_every_file_is_connected_and_validates(files: list[Path]) -> None:
    formats = {".osm": "Lanelet2", ".xodr": "OpenDRIVE", ".xml": "CommonRoad"}
    for path in files:
        file = read_map_file(path)
        lanes = file.lanes
        assert file.format == formats[path.suffix], path
        crossed = ["1 outlines of lanes cross themselves: 45566"] if "mapping_example" in path.name else []
        assert faults(lanes) == crossed, path
        assert max(arc_length(line)[-1] for line in lanes.centerline) <= records.MAX_LENGTH_M + 1e-6
        for boundary, side in ((lanes.left_boundary, 1), (lanes.right_boundary, -1)):
            sides = list(map(side_of, lanes.centerline, boundary))
            assert np.mean(side * np.array(sides) > 0) > 0.95, path


def side_of(line: np.ndarray, boundary: np.ndarray) -> float:
    """Return a positive number if the middle of a boundary is to the left of a line."""
    ahead = line[-1] - line[0]
    aside = boundary.mean(axis=0) - line.mean(axis=0)
    return float(ahead[0] * aside[1] - ahead[1] * aside[0])


def test_coordinates_are_projected_around_an_origin_to_metres() -> None:
    degrees = np.array([[49.0, 8.4], [49.01, 8.4], [49.0, 8.41]])
    # Metres of a degree on the ellipsoid WGS 84 at latitude 49, times UTM's scale.
    metres = project(degrees, origin=(49.0, 8.4))
    assert np.allclose(norm(metres), [0, 0.9996 * 1112.07, 0.9996 * 731.68], atol=0.3)
    assert np.allclose(project(degrees) - project(degrees)[0], metres, atol=1e-6)
    degrees = np.array([[40.7, -74.0], [40.71, -74.0], [40.7, -73.99]])
    new_york = project(degrees, (40.7, -74.0), "EPSG:2263")  # US survey feet
    assert np.allclose(norm(new_york), norm(project(degrees, (40.7, -74.0))), rtol=1e-3)
    rejects("crs': must be a projection to a plane, is WGS 84", project, degrees, crs="EPSG:4326")


@pytest.mark.parametrize(
    ("lat", "lon", "zone"), [(60.4, 5.3, 32), (55.9, 5.3, 31), (78.2, 15.6, 33), (78, 8, 31), (75, 41, 37)]
)
def test_zones_are_those_of_utm_also_off_norway(lat: float, lon: float, zone: int) -> None:
    degrees = np.array([[lat, lon], [lat + 0.01, lon + 0.01]])
    hand_made = project(degrees, (lat, lon), f"EPSG:{32600 + zone}")
    assert np.allclose(project(degrees, (lat, lon)), hand_made, atol=1e-3)


@pytest.mark.parametrize(
    ("content", "options", "problem"),
    [
        (b"", {}, "is not a readable map"),
        (b"<osm></osm>", {}, "no lane that road users drive on$"),
        (b"<OpenDRIVE></OpenDRIVE>", {}, "no lane that road users drive on$"),
        (b"<commonRoad></commonRoad>", {}, "no lane that road users drive on$"),
        (EMPTY_ARCHIVE, {}, "no lane that road users drive on$"),
        (b"<gpx></gpx>", {}, "known map"),
        (lanelet2(), {"crs": "EPSG:0"}, "projection"),
        (lanelet2(), {"origin": (100, 0)}, "latitude and longitude"),
        (lanelet2(), {"origin": (9, 48)}, "origin': is 39° from the map"),
        (b'<!DOCTYPE x [<!ENTITY a "b">]>' + lanelet2(), {}, "must not declare a document type"),
        (opendrive(road(length=1e9)), {}, "no lane that .*: 1 road left out: 1 .*road.length"),
        (re.sub(rb'<way id="1\d"', b'<way id="0"', lanelet2()), {}, "no lane .*: 5 lanelets left out: 1, 2"),
        (re.sub(rb' v="\d+"', b' v="1"', lanelet2(local=True)), {}, "5 lanelets left out: 1, 2, 3, 4, 5"),
        (re.sub(rb">-?\d+</([xy])>", rb">1</\1>", commonroad()), {}, "3 lanelets left out: 1, 2, 3"),
    ],
)
def test_wrong_maps_are_named(content: bytes, options: dict[str, object], problem: str, load: Load) -> None:
    caught = rejects(problem, load, content, **options)
    assert str(caught).count("map.xml") == 1


#: Half a millimetre, to which positions are rounded.
TOLERANCE = 0.5e-3 + 1e-9


def planar(values: Any) -> Any:
    """Return polylines without their heights, and anything else."""
    if isinstance(values, Ragged) and values.values.ndim == 2:
        return Ragged(values.values[:, :2], values.offsets)
    return values


def assert_same_map(found: LaneMap, expected: LaneMap) -> None:
    """All fields but heights, which a map may lack."""
    for field in fields(LaneMap):
        a = planar(getattr(found, field.name))
        b = planar(getattr(expected, field.name))
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
    error = error_of(capsys, "info", out, "--origin", 48, 9)
    assert "'origin': is for latitudes and longitudes of Lanelet2" in error
    assert "--crs: is for map files" in error_of(capsys, "info", "argoverse-nano", "--crs", "EPSG:32632")


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
    city = read_city_map(file)
    corner = city.low[0]
    expected = city.near(corner, corner + 100, 50.0)
    assert 10 < len(expected) < len(city.lanes)
    write_map(expected, tmp_path / "lanes.json")
    assert_same_map(read_map(tmp_path / "lanes.json"), expected)


def test_duplicate_ids_are_refused(sample_scenarios: list[Scenario], tmp_path: Path) -> None:
    lanes = np.zeros(0, np.int64)
    twice = sample_scenarios[0].map.take(lanes, np.array([0, 0]))
    error = rejected(lambda: write_map(twice, tmp_path / "lanes.json"), "None", "crossing_id")
    assert "duplicate" in error.message
    assert not list(tmp_path.iterdir())
