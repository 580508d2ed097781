"""Maps as converters and editors write them: broken parts are left out and named, odd ones are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import equal
from tests.integrations.map_files import (
    LINE,
    STRAIGHT,
    commonroad,
    connection,
    lane,
    lanelet2,
    linked,
    node,
    opendrive,
    relation,
    road,
    town,
    way,
)
from trajpred import LaneMap, read_map
from trajpred.cli.info import describe
from trajpred.data.geometry import norm
from trajpred.integrations.maps import MapFile, read_map_file
from trajpred.integrations.maps.segments import Line, faults

#: Bounds of a CommonRoad lanelet of no length, with two and three points.
POINT = "<point><x>5</x><y>5</y></point>"
POINTS = f"<leftBound>{2 * POINT}</leftBound><rightBound>{3 * POINT}</rightBound>"
LANELET_9 = '<lanelet id="9">{}</lanelet>'
ROAD_WITHOUT_SECTIONS = re.sub("<laneSection.*</laneSection>", "", road("9"), flags=re.DOTALL)


def inserted(content: bytes, before: bytes, part: str) -> bytes:
    """Return ``content`` with another part in front of the first ``before``."""
    return content.replace(before, part.encode() + before, 1)


UNUSED_NODE = '<node id="999" lat="0" lon="0"/>'
OTHER_PLACE = '<node id="900" lat="48" lon="9"/><node id="900" lat="48.1" lon="9"/>'
HUGE = 'a="1e308" b="1e308" c="1e308" d="1e308"'
CROSSWALK = '<object type="crosswalk" id="c" s="{}" t="0"/>'
CONNECTION = '<connection id="c" incomingRoad="1" connectingRoad="99"/>'
#: In front of what a broken part is inserted into a file, the part, how it is reported, and why it is broken.
BROKEN_LANELET2 = [
    (b"</osm>", relation(9, 10, 99), "lanelet left out: 9", "right bound"),
    (b"</osm>", relation(9, 10, 11).replace("left", "middle"), "lanelet left out: 9", "0 left bounds"),
    (b"</osm>", relation("x", 10, 11), "lanelet left out: x", "integer"),
    (b"</osm>", relation(2**63, 10, 11), "lanelet left out: 9", "at most"),
    (b"</osm>", relation(1, 13, 14), "lanelet left out: 1", "occurs twice"),
    (b"<relation", way(77, (3, 3)) + relation(9, 77, 77), "lanelet left out: 9", "no length"),
    (
        b"<relation",
        way(77, (0, 1)) + way(77, (0, 2)) + relation(9, 77, 11),
        "lanelet left out: 9",
        "not one way",
    ),
    (
        b"<relation",
        OTHER_PLACE + way(77, (0, 900)) + relation(9, 77, 11),
        "lanelet left out: 9",
        "not one way",
    ),
]
BROKEN_OPENDRIVE = [
    (b"<junction", road("9", right=lane(1)), "road left out: 9", "must be below 0 on the right"),
    (b"<junction", road("9", right=lane(-1, width='a="?"')), "road left out: 9", "width.a"),
    (b"<junction", road("9", right=lane(-1, width=HUGE)), "lane left out: -1 of section 0 of road 9", ""),
    (b"<junction", road("9", length=0), "road left out: 9", "road.length"),
    (b"<junction", road("9", geometry=""), "road left out: 9", "planView.geometry"),
    (b"<junction", road("9", STRAIGHT.replace('"40"', '"x"')), "road left out: 9", "length"),
    (b"<junction", road("9", STRAIGHT.replace(LINE, "")), "road left out: 9", "paramPoly3"),
    (b"<junction", ROAD_WITHOUT_SECTIONS, "road left out: 9", "laneSection"),
    (b"<object ", CROSSWALK.format(20), "crossing left out: c of road 1", "no area"),
    (b"<object ", CROSSWALK.format("x"), "crossing left out: c of road 1", "object.s"),
    (b'<predecessor id="-1"/>', "<predecessor/>", "link left out: predecessor of lane -1 of", "integer"),
    (b'<successor id="-1"/>', '<successor id="-7"/>', "link left out: successor of lane -1", "no lane -7"),
    (b"<connection", CONNECTION, "link left out: connection c of junction J", "not in the file"),
    (b"<laneLink", '<laneLink from="-1" to=""/>', "link left out: lane -1 to  of connection", "integer"),
]
BROKEN_COMMONROAD = [
    (b"<lanelet ", LANELET_9.format(POINTS.replace("5", "?", 1)), "lanelet left out: 9", "point.x"),
    (b"<lanelet ", LANELET_9.format(""), "lanelet left out: 9", "fewer than 2 points"),
    (b"<lanelet ", LANELET_9.format(POINTS), "lanelet left out: 9", "no length"),
    (b"<successor ", '<successor ref="99"/>', "link left out: successor 99 of lanelet 1", "not in the file"),
    (b"<successor ", "<successor/>", "link left out: successor", "integer"),
    (b"<successorsLeft", "<successorsRight/>", "link left out: successorsRight", "integer"),
]


def read(folder: Path, content: bytes) -> MapFile:
    path = folder / "map.xml"
    path.write_bytes(content)
    return read_map_file(path)


@pytest.mark.parametrize(
    ("whole", "cases"),
    [(lanelet2(), BROKEN_LANELET2), (town(), BROKEN_OPENDRIVE), (commonroad(), BROKEN_COMMONROAD)],
    ids=["Lanelet2", "OpenDRIVE", "CommonRoad"],
)
def test_one_broken_part_is_left_out_and_the_rest_is_as_without_it(
    whole: bytes, cases: list[tuple[bytes, str, str, str]], tmp_path: Path
) -> None:
    expected = read(tmp_path, whole)
    assert not expected.problems.left_out
    for before, part, start, reason in cases:
        file = read(tmp_path, inserted(whole, before, part))
        assert len(file.lanes) == len(expected.lanes)
        np.testing.assert_array_equal(file.lanes.centerline.values, expected.lanes.centerline.values)
        np.testing.assert_array_equal(file.lanes.successors.lengths, expected.lanes.successors.lengths)
        np.testing.assert_array_equal(file.lanes.crossing_edge1.values, expected.lanes.crossing_edge1.values)
        [summary] = file.problems.summaries()
        assert summary.startswith(f"1 {start}")
        assert reason in summary
        assert len(summary) < 300


def test_what_is_left_out_is_warned_of_and_described(tmp_path: Path) -> None:
    path = tmp_path / "town.xodr"
    path.write_bytes(inserted(town(), b"<junction", road("9", length=0)))
    with pytest.warns(UserWarning, match="1 road left out: 9 .*road.length") as caught:
        read_map(path)
    assert str(path) in str(caught[0].message)
    rows = describe(str(path))[1]
    assert rows["faults"].startswith("1 road left out: 9 ")
    assert rows["lanes"].startswith("11 segments")


def test_many_broken_parts_are_counted_and_the_first_ones_named(tmp_path: Path) -> None:
    roads = [road(str(i), length=0) for i in range(40)]
    [summary] = read(tmp_path, opendrive(road("good"), *roads)).problems.summaries()
    assert summary.startswith("40 roads left out: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … (0: ")


@pytest.mark.parametrize(
    ("local", "unused"), [(False, UNUSED_NODE), (True, UNUSED_NODE), (False, 2 * way(77, (3, 103)))]
)
def test_nodes_of_no_way_and_copies_of_ways_do_not_matter(local: bool, unused: str, tmp_path: Path) -> None:
    """Also where they have no local coordinates."""
    expected = read(tmp_path, lanelet2(local))
    file = read(tmp_path, inserted(lanelet2(local), b"<way", unused))
    assert (file.frame, file.problems.summaries()) == (expected.frame, [])
    assert (file.frame == "local_x and local_y") == local
    np.testing.assert_array_equal(file.lanes.centerline.values, expected.lanes.centerline.values)


@pytest.mark.parametrize("damaged", ["", '<tag k="local_x" v="?"/><tag k="local_y" v="9"/>'])
def test_lanelets_at_nodes_without_local_coordinates_are_left_out(damaged: str, tmp_path: Path) -> None:
    """Node 3 is the first one of way 10, which bounds lanelets 1 and 5 (a crosswalk)."""
    tags = b'<tag k="local_x" v="0"/><tag k="local_y" v="9"/>'
    file = read(tmp_path, lanelet2(local=True).replace(tags, damaged.encode(), 1))
    [summary] = file.problems.summaries()
    assert summary.startswith("2 lanelets left out: 1, 5 (1: ")
    assert "node 3 of way 10 has no valid local_x and local_y" in summary
    assert file.frame == "local_x and local_y"
    assert len(file.lanes) == 4


def test_local_coordinates_of_few_nodes_are_not_used_but_mentioned(tmp_path: Path) -> None:
    content = re.sub(rb'<tag k="local_x" v="[36]0"/>', b"", lanelet2(local=True))
    file = read(tmp_path, content)
    assert "+proj=utm +zone=32" in file.frame
    assert "of 4 of 12 nodes, are not used" in file.frame
    path = tmp_path / "map.osm"
    path.write_bytes(content)
    assert describe(str(path))[1]["frame"] == file.frame


def test_numbers_of_parts_that_are_left_out_are_given_to_no_lane(tmp_path: Path) -> None:
    """A long lanelet is cut in two; the numbers of a sidewalk and of a broken lanelet are taken."""
    far = re.sub(rb"<x>20</x>", b"<x>60</x>", commonroad(), count=2)
    sidewalk = commonroad().split(b'<lanelet id="1">')[1].split(b"</lanelet>")[0]
    sidewalk = sidewalk.replace(b"urban", b"sidewalk")
    taken = f'<lanelet id="4">{sidewalk.decode()}</lanelet><lanelet id="5"></lanelet>'
    file = read(tmp_path, inserted(far, b"<lanelet ", taken))
    assert file.lanes.lane_id.tolist() == [1, 6, 2]


Load = Callable[..., LaneMap]
#: The namespace of OpenDRIVE 1.8.
NAMESPACE = b"http://code.asam.net/simulation/standard/opendrive_schema"


def test_elements_may_be_in_the_namespace_of_the_standard_alone(load: Load) -> None:
    expected = load(town())
    default = re.sub(rb"<(\w+)", rb'<\1 xmlns="%s"' % NAMESPACE, town())
    prefixed = re.sub(rb"<(\w+)", rb'<odr:\1 xmlns:odr="%s"' % NAMESPACE, town()).replace(b"</", b"</odr:")
    foreign = b'<right><lane xmlns="http://vendor.example" id="-2" type="driving"/>'
    for content in (default, prefixed, town().replace(b"<right>", foreign)):
        assert equal(load(content), expected)


#: A road along x from 40 m on.
FROM_40 = STRAIGHT.replace('x="0"', 'x="40"')


def straight_roads(attributes: str = "", first: str = "start", second: str = "end") -> bytes:
    """Return road 1 along x to (40, 0), and road 2 from there on, linked at the named contact points."""
    to_2 = lane(-1, link='<successor id="-1"/>')
    from_1 = lane(-1, link='<predecessor id="-1"/>')
    roads = road("1", right=to_2, link=linked("successor", 2, first))
    roads += road("2", FROM_40, right=from_1, link=linked("predecessor", 1, second))
    return opendrive(roads.replace('type="driving"', f'type="driving" {attributes}'))


@pytest.mark.parametrize("first", ["start", "end"])
@pytest.mark.parametrize("second", ["start", "end"])
@pytest.mark.parametrize("direction", ["standard", "both"])
def test_lanes_are_linked_where_they_touch(first: str, second: str, direction: str, load: Load) -> None:
    """Converters write contact points that contradict the positions of the roads."""
    lane_map = load(straight_roads(f'direction="{direction}"', first, second))
    successors = [row.tolist() for row in lane_map.successors]
    starts = [line[0, 0] for line in lane_map.centerline if line[-1, 0] > line[0, 0]]
    assert np.allclose(starts, [0, 40]), "lanes along x are in the order of their roads"
    assert faults(lane_map) == []
    if direction == "standard":
        assert successors == [[1], []]
    else:  # the other lanes lead back
        assert successors == [[2], [], [], [1]]


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
    link = linked("predecessor", 1, "end") + linked("successor", 2, "start")
    content = opendrive(
        road("1"),
        road("2", STRAIGHT.replace('x="0"', 'x="80"')),
        road("3", FROM_40, right=right, link=link, attributes='junction="J"'),
        junctions=f'<junction id="J">{connection(1, 3, contact)}{connection(2, 3, contact)}</junction>',
    )
    lane_map = load(content.replace(b'type="driving"', b'type="driving" direction="both"'))
    assert [row.tolist() for row in lane_map.successors] == [[4], [], [], [5], [2], [1]]
    assert faults(lane_map) == []


def test_ramps_of_virtual_junctions_are_not_linked_to_the_ends_of_their_road(load: Load) -> None:
    """Road 2 leaves road 1 at 20 m of 40: there is no end of a lane to be linked."""
    ramp = road(
        "2",
        STRAIGHT.replace('x="0"', 'x="20"'),
        right=lane(-1, link='<predecessor id="-1"/>'),
        link='<predecessor elementType="road" elementId="1" elementS="20" elementDir="+"/>',
    )
    virtual = (
        f'<junction id="J" type="virtual" mainRoad="1" sStart="20" sEnd="25">{connection(1, 2)}</junction>'
    )
    with pytest.warns(UserWarning, match="between its ends"):
        lane_map = load(opendrive(road("1"), ramp, junctions=virtual))
    assert [row.tolist() for row in lane_map.successors] == [[], []]


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
    middle = np.sort(edges[..., 0].mean(axis=1))
    np.testing.assert_allclose(middle, [20 - along / 2, 20 + along / 2], atol=1e-9)


def some_reversed(bits: int, left: Line, right: Line) -> tuple[Line, Line]:
    """Return the bounds of a lanelet, the left one reversed with bit 0, the right one with bit 1."""
    if bits & 1:
        left = left[::-1]
    if bits & 2:
        right = right[::-1]
    return left, right


def local_lanelets(bounds: dict[int, tuple[Line, Line]]) -> bytes:
    """Return lanelets by their numbers; points at the same place are one node."""
    names: dict[tuple[float, ...], int] = {}
    ways = []
    for number, sides in bounds.items():
        for side, line in enumerate(sides):
            nodes = [names.setdefault(tuple(point), 1000 + len(names)) for point in line.round(9).tolist()]
            ways.append(way(10 * number + side, nodes))
    relations = [relation(number, 10 * number, 10 * number + 1) for number in bounds]
    nodes = [node(name, *point) for point, name in names.items()]
    return "".join(["<osm>", *nodes, *ways, *relations, "</osm>"]).encode()


#: Left and right bounds.
ANGLE = np.linspace(-np.pi / 2, np.pi / 2, 9)
ROUND = 4 * np.stack((np.cos(ANGLE), np.sin(ANGLE)), -1).round(9)
U_TURN = (np.array([[0, 0.1], [-0.2, 0.0], [0.0, -0.1]]), ROUND)
SHARP_TURN = (
    np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 2.0]]),
    np.array([[-1.2, 1.6], [-1.2, -5.0], [9.0, -5.0], [9.0, 7.0], [-1.0, 7.0], [-1.0, 1.5]]),
)
ISLAND = np.array([[0.0, 0.0], [10.0, 2.0], [20.0, 0.0]])


@pytest.mark.parametrize("reversed_ways", range(4))
def test_sharp_turns_are_oriented_by_the_nodes_they_share(reversed_ways: int, load: Load) -> None:
    """A U-turn to the left about an inner bound whose ends are nearest crosswise, between two lanes."""
    inner, outer = U_TURN
    back = np.array([-30.0, 0.0])
    turn = some_reversed(reversed_ways, inner, outer)
    before = (np.stack((inner[0] + back, inner[0])), np.stack((outer[0] + back, outer[0])))
    after = (np.stack((inner[-1], inner[-1] + back)), np.stack((outer[-1], outer[-1] + back)))
    lane_map = load(local_lanelets({1: before, 2: turn, 3: after}))
    assert [row.tolist() for row in lane_map.successors] == [[2], [3], []]
    np.testing.assert_allclose(lane_map.left_boundary[1], inner)
    np.testing.assert_allclose(lane_map.right_boundary[1], outer)


@pytest.mark.parametrize("reversed_ways", range(4))
@pytest.mark.parametrize(("left", "right"), [SHARP_TURN, (ISLAND, ISLAND * [1.0, -1.0])])
def test_lanelets_without_neighbours_have_an_outline_that_does_not_cross_itself(
    left: Line, right: Line, reversed_ways: int, load: Load
) -> None:
    """A turn whose outer ends are nearest crosswise, and a lanelet that begins and ends at a point."""
    apart = norm(left[[0, -1]] - right[[0, -1]])
    crosswise = norm(left[[0, -1]] - right[[-1, 0]])
    assert (apart.sum() > crosswise.sum()) == (left is SHARP_TURN[0])
    lane_map = load(local_lanelets({1: some_reversed(reversed_ways, left, right)}))
    np.testing.assert_allclose(lane_map.left_boundary[0], left)
    np.testing.assert_allclose(lane_map.right_boundary[0], right)
