"""Maps of vehicles: geometry, links and kinds against closed forms and the formats' own libraries."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.special import fresnel

from tests.conftest import equal
from tests.sources.map_files import LINE, STRAIGHT, commonroad, lane, lanelet2, opendrive, road, town
from trajpred import LaneMap
from trajpred.errors import DataError
from trajpred.geometry import arc_length, norm
from trajpred.lane_map import LANE_TYPES, MARK_TYPES, TURN_DIRECTIONS
from trajpred.sources.maps import read_map, segments
from trajpred.sources.maps.lanelet2 import project
from trajpred.sources.maps.lanes import Line
from trajpred.sources.maps.segments import faults

Load = Callable[..., LaneMap]
GROUPS = (b"lane_segments", b"pedestrian_crossings", b"drivable_areas")
#: The namespace of OpenDRIVE 1.8.
NAMESPACE = b"http://code.asam.net/simulation/standard/opendrive_schema"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(content: bytes, **options: object) -> LaneMap:
        path = tmp_path / "map.xml"
        path.write_bytes(content)
        return LaneMap.load(path, **options)  # type: ignore[arg-type]

    return load


@pytest.fixture(scope="session")
def files(shared: Path) -> list[Path]:
    found = sorted(path for path in (shared / "data" / "maps").glob("*/*") if path.is_file())
    if not found:
        pytest.skip(f"no maps in {shared}")
    return found


def named(files: list[Path], name: str) -> Path:
    return next(path for path in files if path.name.startswith(name))


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

    right, left = section("RHT"), section("LHT")
    assert [line[[0, -1]].round(9).tolist() for line in right.centerline] == [
        [[40, 1.5], [0, 1.5]], [[0, -1.5], [40, -1.5]], [[0, -4.5], [40, -4.5]],
    ]  # fmt: skip
    backward = np.concatenate([line[::-1] for line in left.centerline])
    assert np.allclose(backward, right.centerline.values)
    assert np.allclose(right.left_boundary[1][:, 1], 0) and np.allclose(left.left_boundary[1][:, 1], -3)
    assert [LANE_TYPES[i] for i in right.lane_type] == ["VEHICLE", "VEHICLE", "BUS"]
    assert right.left_neighbor.tolist() == [-1, -1, 1] and right.right_neighbor.tolist() == [-1, 2, -1]
    assert left.left_neighbor.tolist() == [-1, 2, -1] and left.right_neighbor.tolist() == [-1, -1, 1]
    # Inner line first, at the centre the left one; in a lane map the line near the lane.
    assert marks(right, 0) == ("SOLID_DASH_YELLOW", "SOLID_DASH_YELLOW")
    assert marks(right, 1) == ("DASH_SOLID_YELLOW", "SOLID_DASH_YELLOW")
    assert marks(right, 2) == ("DASH_SOLID_YELLOW", "SOLID_DASH_YELLOW")


def test_long_lanes_become_segments_in_a_row(load: Load) -> None:
    long = STRAIGHT.replace('"40"', '"120"')
    lane_map = load(opendrive(road("1", long, 120, right=lane(-1) + lane(-2))))
    assert [row.tolist() for row in lane_map.successors] == [[2], [3], [], [4], [5], []]
    lengths = [arc_length(line)[-1] for line in lane_map.centerline]
    assert np.allclose(lengths, 40) and faults(lane_map) == []
    assert lane_map.right_neighbor.tolist()[:3] == lane_map.lane_id.tolist()[3:]


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
    assert lane_map.successors[0].tolist() == [2] and faults(lane_map) == []


def test_a_town_links_across_its_junction(load: Load) -> None:
    lane_map = load(town())
    assert faults(lane_map) == [] and len(lane_map.crossing_id) == 1
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
    assert [LANE_TYPES[i] for i in lane_map.lane_type] == ["VEHICLE", "VEHICLE", "BIKE", "VEHICLE", "VEHICLE"]
    assert np.allclose(lane_map.centerline[row[1]][[0, -1]], [[0, 7.5], [30, 7.5]], atol=0.01)
    assert np.allclose(lane_map.centerline[row[3]][[0, -1]], [[0, 4.5], [30, 4.5]], atol=0.01)
    assert lane_map.successors[row[1]].tolist() == [2] and lane_map.predecessors[row[2]].tolist() == [1]
    assert lane_map.right_neighbor[row[1]] == 3 and lane_map.left_neighbor[row[3]] == 1
    assert np.allclose(lane_map.centerline[row[reverse]], lane_map.centerline[row[4]][::-1])
    assert marks(lane_map, row[1]) == ("SOLID_WHITE", "SOLID_DASH_WHITE")
    assert marks(lane_map, row[3]) == ("DASH_SOLID_WHITE", "DASHED_WHITE")
    assert len(lane_map.crossing_id) == 1


def test_commonroad_has_intersections_marks_and_crosswalks(load: Load) -> None:
    lane_map = load(commonroad())
    assert lane_map.lane_id.tolist() == [1, 2] and lane_map.successors[0].tolist() == [2]
    assert lane_map.is_intersection.tolist() == [False, True] and len(lane_map.crossing_id) == 1
    assert [TURN_DIRECTIONS[i] for i in lane_map.turn_direction] == ["NONE", "LEFT"]
    assert marks(lane_map, 0) == ("DASH_SOLID_WHITE", "SOLID_WHITE")


def test_lanelets_are_those_of_the_library(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """lanelet2 1.2.3: UtmProjector, canPass of vehicles in Germany, following, left and right lanes."""
    monkeypatch.setattr(segments, "MAX_LENGTH_M", 1e9)
    path = named(files, "mapping_example")
    lane_map = LaneMap.load(path, origin=(49.0, 8.4))
    given = np.isin(lane_map.lane_id, [int(i) for i in re.findall(r"relation id='(\d+)'", path.read_text())])
    cars = np.flatnonzero(given & (lane_map.lane_type == 0))
    assert len(cars) == 328 and (given & (lane_map.lane_type == 1)).sum() == 31
    left, right = lane_map.left_boundary.take(cars), lane_map.right_boundary.take(cars)
    assert sum(arc_length(line)[-1] for line in left) == pytest.approx(4546.67477009132, abs=1e-6)
    assert sum(arc_length(line)[-1] for line in right) == pytest.approx(4697.791666076213, abs=1e-6)
    start = left.values[left.offsets[:-1]].mean(axis=0)
    assert np.allclose(start, [1666.7887427592877, 611.2041718092514], atol=1e-6)
    following = lane_map.successors.take(cars).values
    assert np.isin(following, lane_map.lane_id[cars]).sum() == 313
    assert np.isin(lane_map.left_neighbor[cars], lane_map.lane_id[cars]).sum() == 111


@pytest.mark.parametrize(
    ("name", "metres", "links", "left", "centre"),
    [
        ("USA_Lanker", 1689.4027907311656, 84, 57, [1.7596035227272748, 18.778639318181813]),
        ("USA_US101", 1181.2919764693706, 6, 9, [21.155179874213843, -31.099742243186604]),
    ],
)
def test_commonroad_lanelets_are_those_of_the_library(
    name: str,
    metres: float,
    links: int,
    left: int,
    centre: list[float],
    files: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """commonroad-io 2026.1: sums of distances, successors, left lanes of the same direction, mean vertex."""
    monkeypatch.setattr(segments, "MAX_LENGTH_M", 1e9)
    lane_map = LaneMap.load(named(files, name))
    assert sum(arc_length(line)[-1] for line in lane_map.centerline) == pytest.approx(metres, abs=1e-9)
    assert len(lane_map.successors.values) == links and (lane_map.left_neighbor >= 0).sum() == left
    assert np.allclose(lane_map.centerline.values.mean(axis=0), centre, atol=1e-9)


def test_every_file_is_connected_and_validates(files: list[Path]) -> None:
    formats = {".osm": "Lanelet2", ".xodr": "OpenDRIVE", ".xml": "CommonRoad"}
    for path in files:
        found, lane_map = read_map(path)
        assert found == formats[path.suffix] and faults(lane_map) == [], path
        assert max(arc_length(line)[-1] for line in lane_map.centerline) <= segments.MAX_LENGTH_M + 1e-6
        ahead = [line[-1] - line[0] for line in lane_map.centerline]
        for side, sign in ((lane_map.left_boundary, 1), (lane_map.right_boundary, -1)):
            pairs = zip(side, lane_map.centerline, strict=True)
            aside = [edge.mean(axis=0) - line.mean(axis=0) for edge, line in pairs]
            turned = [a[0] * b[1] - a[1] * b[0] for a, b in zip(ahead, aside, strict=True)]
            assert np.mean(np.sign(turned) == sign) > 0.95, path


def test_coordinates_are_projected_around_an_origin() -> None:
    degrees = np.array([[49.0, 8.4], [49.01, 8.4], [49.0, 8.41]])
    # Metres of a degree on the ellipsoid WGS 84 at latitude 49, times UTM's scale.
    metres = project(degrees, origin=(49.0, 8.4))
    assert np.allclose(norm(metres), [0, 0.9996 * 1112.07, 0.9996 * 731.68], atol=0.3)
    assert np.allclose(project(degrees) - project(degrees)[0], metres, atol=1e-6)


@pytest.mark.parametrize(
    ("content", "options", "problem"),
    [
        (b"", {}, "is not a readable map"),
        (b"<osm></osm>", {}, "no lane that road users drive on$"),
        (b"<OpenDRIVE></OpenDRIVE>", {}, "no lane that road users drive on$"),
        (b"<commonRoad></commonRoad>", {}, "no lane that road users drive on$"),
        (
            b"{%s}" % b",".join(b'"%s": {}' % group for group in GROUPS),
            {},
            "no lane that road users drive on$",
        ),
        (b"<gpx></gpx>", {}, "known map"),
        (lanelet2(), {"crs": "EPSG:0"}, "projection"),
        (lanelet2(), {"origin": (100, 0)}, "latitude and longitude"),
        (opendrive(road(length=1e9)), {}, "1 road left out: 1 .*road.length"),
        (opendrive(road(geometry=STRAIGHT.replace("line", "bend"))), {}, "1 road left out: 1 .*paramPoly3"),
        (b'<!DOCTYPE x [<!ENTITY a "b">]>' + lanelet2(), {}, "must not declare a document type"),
    ],
)
def test_a_wrong_map_is_one_sentence(
    content: bytes, options: dict[str, object], problem: str, load: Load
) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        load(content, **options)
    assert str(caught.value).count("map.xml") == 1


@pytest.mark.parametrize(
    "named_space", [rb'<\1 xmlns="%s"', rb'<odr:\1 xmlns:odr="%s"'], ids=["default", "prefix"]
)
def test_elements_may_be_in_a_namespace(named_space: bytes, load: Load) -> None:
    content = re.sub(rb"<(\w+)", named_space % NAMESPACE, town())
    if b"<odr:" in content:
        content = content.replace(b"</", b"</odr:")
    assert equal(load(content), load(town()))


def test_elements_in_the_namespace_of_others_are_no_lanes(load: Load) -> None:
    foreign = b'<right><lane xmlns="http://vendor.example" id="-2" type="driving"/>'
    assert equal(load(town().replace(b"<right>", foreign)), load(town()))


def straight_roads(attributes: str = "", first: str = "start", second: str = "end") -> bytes:
    """Return road 1 along x to (40, 0), and road 2 from there on, linked at the named contact points."""
    onward = '<{} elementType="road" elementId="{}" contactPoint="{}"/>'
    roads = road(
        "1",
        right=lane(-1, link='<successor id="-1"/>'),
        link=onward.format("successor", 2, first),
    ) + road(
        "2",
        STRAIGHT.replace('x="0"', 'x="40"'),
        right=lane(-1, link='<predecessor id="-1"/>'),
        link=onward.format("predecessor", 1, second),
    )
    return opendrive(roads.replace('type="driving"', f'type="driving" {attributes}'))


@pytest.mark.parametrize("first", ["start", "end"])
@pytest.mark.parametrize("second", ["start", "end"])
@pytest.mark.parametrize("direction", ["standard", "both"])
def test_lanes_are_linked_where_they_touch(first: str, second: str, direction: str, load: Load) -> None:
    """Converters write contact points that contradict the positions of the roads."""
    lane_map = load(straight_roads(f'direction="{direction}"', first, second))
    successors = [row.tolist() for row in lane_map.successors]
    ahead = [0 if line[0, 0] < 39 else 1 for line in lane_map.centerline if line[-1, 0] > line[0, 0]]
    assert ahead == [0, 1] and faults(lane_map) == []
    # Without direction: road 1 leads to road 2; with both, the other lanes lead back.
    assert successors == ([[1], []] if direction == "standard" else [[2], [], [], [1]])


def test_lanes_in_both_directions_are_two_lanes(load: Load) -> None:
    one_way = load(straight_roads())
    both = load(straight_roads('direction="both"'))
    bidirectional = straight_roads().replace(b'type="driving"', b'type="bidirectional"')
    assert equal(both, load(bidirectional))
    for i, line in enumerate(one_way.centerline):
        np.testing.assert_allclose(both.centerline[2 * i], line, atol=1e-9)
        np.testing.assert_allclose(both.centerline[2 * i + 1], line[::-1], atol=1e-9)


@pytest.mark.parametrize("contact", ["start", "end"])
def test_lanes_in_both_directions_are_linked_through_junctions(contact: str, load: Load) -> None:
    """Roads 1 and 2 meet in the connecting road 3; each way is connected."""
    right = lane(-1, link='<predecessor id="-1"/><successor id="-1"/>')
    onward = '<{} elementType="road" elementId="{}" contactPoint="{}"/>'
    link = onward.format("predecessor", 1, "end") + onward.format("successor", 2, "start")
    connection = (
        '<connection id="{0}" incomingRoad="{0}" connectingRoad="3" contactPoint="{1}">{2}</connection>'
    )
    lanes_linked = '<laneLink from="-1" to="-1"/>'
    content = opendrive(
        road("1"),
        road("2", STRAIGHT.replace('x="0"', 'x="80"')),
        road("3", STRAIGHT.replace('x="0"', 'x="40"'), right=right, link=link, attributes='junction="J"'),
        junctions=f'<junction id="J">{connection.format(1, contact, lanes_linked)}'
        f"{connection.format(2, contact, lanes_linked)}</junction>",
    )
    lane_map = load(content.replace(b'type="driving"', b'type="driving" direction="both"'))
    assert [row.tolist() for row in lane_map.successors] == [[4], [], [], [5], [2], [1]]
    assert faults(lane_map) == []


@pytest.mark.parametrize("right_sign", [1, -1])
@pytest.mark.parametrize("left_sign", [1, -1])
@pytest.mark.parametrize("offset", [0, 2])
def test_borders_have_either_sign(left_sign: int, right_sign: int, offset: float, load: Load) -> None:
    """Widths of 3 m beside the lane offset, as borders of any sign."""

    def bordered(number: int, t: float) -> str:
        shape = f'<border sOffset="0" a="{t}" b="0" c="0" d="0"/>'
        return f'<lane id="{number}" type="driving">{shape}</lane>'

    left = bordered(1, 3 * left_sign) + bordered(2, 6 * left_sign)
    right = bordered(-1, 3 * right_sign) + bordered(-2, 6 * right_sign)
    extra = f'<laneOffset s="0" a="{offset}" b="0" c="0" d="0"/>'
    lane_map = load(opendrive(road(left=left, right=right, extra=extra)))
    expected = load(opendrive(road(left=lane(1) + lane(2), right=lane(-1) + lane(-2), extra=extra)))
    np.testing.assert_allclose(lane_map.left_boundary.values, expected.left_boundary.values, atol=1e-9)
    np.testing.assert_allclose(lane_map.right_boundary.values, expected.right_boundary.values, atol=1e-9)


@pytest.mark.parametrize(("along", "across"), [(3, 8), (8, 3), (12, 7)])
@pytest.mark.parametrize("turned", [False, True])
def test_crossings_lead_across_their_road(along: float, across: float, turned: bool, load: Load) -> None:
    """The sides by which they are crossed are those at right angles to the road, longer or shorter."""
    length, width = (across, along) if turned else (along, across)
    heading = np.pi / 2 if turned else 0.0
    crosswalk = f'<object type="crosswalk" s="20" t="0" hdg="{heading}" length="{length}" width="{width}"/>'
    lane_map = load(opendrive(road(objects=crosswalk)))
    edges = np.stack((lane_map.crossing_edge1[0], lane_map.crossing_edge2[0]))
    np.testing.assert_allclose(np.ptp(edges[..., 1], axis=1), across, atol=1e-9)
    np.testing.assert_allclose(
        sorted(edges[..., 0].mean(axis=1)), [20 - along / 2, 20 + along / 2], atol=1e-9
    )


def local_lanelets(bounds: dict[int, tuple[Line, Line]]) -> bytes:
    """Return lanelets by their numbers; points at the same place are one node."""
    names: dict[tuple[float, ...], int] = {}
    ways = []
    relations = []
    for number, sides in bounds.items():
        members = []
        for side, line in zip(("left", "right"), sides, strict=True):
            refs = [names.setdefault(tuple(point), 1000 + len(names)) for point in line.round(9).tolist()]
            way = 100 + len(ways)
            ways.append(f'<way id="{way}">{"".join(f"<nd ref={str(ref)!r}/>" for ref in refs)}</way>')
            members.append(f'<member type="way" ref="{way}" role="{side}"/>')
        tags = '<tag k="type" v="lanelet"/><tag k="subtype" v="road"/>'
        relations.append(f'<relation id="{number}">{"".join(members)}{tags}</relation>')
    tag = '<tag k="local_{}" v="{}"/>'
    nodes = [
        f'<node id="{name}" lat="0" lon="0">{tag.format("x", x)}{tag.format("y", y)}</node>'
        for (x, y), name in names.items()
    ]
    return "".join(["<osm>", *nodes, *ways, *relations, "</osm>"]).encode()


@pytest.mark.parametrize("reversed_ways", range(4))
def test_sharp_turns_are_oriented_by_the_nodes_they_share(reversed_ways: int, load: Load) -> None:
    """A U-turn to the left about an inner bound whose ends are nearest crosswise, between two lanes."""
    angle = np.linspace(-np.pi / 2, np.pi / 2, 9)
    outer = 4 * np.stack((np.cos(angle), np.sin(angle)), -1).round(9)
    inner = np.array([[0, 0.1], [-0.2, 0.0], [0.0, -0.1]])
    back = np.array([-30.0, 0.0])
    turn = (inner[::-1] if reversed_ways & 1 else inner, outer[::-1] if reversed_ways & 2 else outer)
    before = (np.stack((inner[0] + back, inner[0])), np.stack((outer[0] + back, outer[0])))
    after = (np.stack((inner[-1], inner[-1] + back)), np.stack((outer[-1], outer[-1] + back)))
    lane_map = load(local_lanelets({1: before, 2: turn, 3: after}))
    assert [row.tolist() for row in lane_map.successors] == [[2], [3], []]
    np.testing.assert_allclose(lane_map.left_boundary[1], inner)
    np.testing.assert_allclose(lane_map.right_boundary[1], outer)


@pytest.mark.parametrize("reversed_ways", range(4))
def test_turns_without_neighbours_have_an_outline_that_does_not_cross_itself(
    reversed_ways: int, load: Load
) -> None:
    """The ends of the outer bound are nearer to the opposite ends of the inner one."""
    inner = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    outer = np.array([[-1.2, 1.6], [-1.2, -5.0], [9.0, -5.0], [9.0, 7.0], [-1.0, 7.0], [-1.0, 1.5]])
    sides = (inner[::-1] if reversed_ways & 1 else inner, outer[::-1] if reversed_ways & 2 else outer)
    lane_map = load(local_lanelets({1: sides}))
    assert norm(inner[[0, -1]] - outer[[0, -1]]).sum() > norm(inner[[0, -1]] - outer[[-1, 0]]).sum()
    np.testing.assert_allclose(lane_map.left_boundary[0], inner)
    np.testing.assert_allclose(lane_map.right_boundary[0], outer)


@pytest.mark.parametrize("reversed_ways", range(4))
def test_bounds_may_share_the_nodes_at_their_ends(reversed_ways: int, load: Load) -> None:
    """Between a fork and the next merge, a lanelet begins and ends at a point."""
    left = np.array([[0.0, 0.0], [10.0, 2.0], [20.0, 0.0]])
    right = left * [1.0, -1.0]
    sides = (left[::-1] if reversed_ways & 1 else left, right[::-1] if reversed_ways & 2 else right)
    lane_map = load(local_lanelets({1: sides}))
    np.testing.assert_allclose(lane_map.left_boundary[0], left)
    np.testing.assert_allclose(lane_map.right_boundary[0], right)
