"""Maps with broken parts: these are left out, named and counted, and the rest is as without them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.integrations.map_files import (
    LINE,
    STRAIGHT,
    commonroad,
    lane,
    lanelet2,
    opendrive,
    road,
    town,
)
from trajpred import read_map
from trajpred.cli.info import describe
from trajpred.errors import DataError
from trajpred.integrations.maps import MapFile, read_map_file

#: Bounds of a CommonRoad lanelet of no length, with two and three points.
POINT = b"<point><x>5</x><y>5</y></point>"
POINTS = b"<leftBound>%s</leftBound><rightBound>%s</rightBound>" % (2 * POINT, 3 * POINT)
ROAD_WITHOUT_SECTIONS = re.sub("<laneSection.*</laneSection>", "", road("9"), flags=re.DOTALL)


def inserted(content: bytes, before: bytes, part: str | bytes) -> bytes:
    """Return ``content`` with another part in front of the first ``before``."""
    text = part.encode() if isinstance(part, str) else part
    return content.replace(before, text + before, 1)


def relation(number: object, left: int, right: int) -> str:
    members = f'<member type="way" ref="{left}" role="left"/><member type="way" ref="{right}" role="right"/>'
    return f'<relation id="{number}">{members}<tag k="type" v="lanelet"/></relation>'


def with_lanelet(way: str, right: int) -> bytes:
    """Return the map with lanelet 9 between way 77, which ``way`` adds, and the way ``right``."""
    return inserted(inserted(lanelet2(), b"<way", way), b"</osm>", relation(9, 77, right))


def broken_road(**changes: object) -> bytes:
    """Return the town with another road "9", which is broken."""
    return inserted(town(), b"<junction", road("9", **changes))  # type: ignore[arg-type]


#: Ways and nodes with the same id and other content.
WAY_TWICE = '<way id="77"><nd ref="0"/><nd ref="1"/></way><way id="77"><nd ref="0"/><nd ref="2"/></way>'
NODE_TWICE = (
    '<node id="900" lat="48" lon="9"/><node id="900" lat="48.1" lon="9"/>'
    '<way id="77"><nd ref="0"/><nd ref="900"/></way>'
)
#: A valid file, the same with a broken part, how that is reported, and why it is broken.
BROKEN = {
    "way": (
        lanelet2(),
        inserted(lanelet2(), b"</osm>", relation(9, 10, 99)),
        "1 lanelet left out: 9",
        "right bound",
    ),
    "role": (
        lanelet2(),
        inserted(lanelet2(), b"</osm>", relation(9, 10, 11).replace("left", "middle")),
        "1 lanelet left out: 9",
        "0 left bounds",
    ),
    "number": (
        lanelet2(),
        inserted(lanelet2(), b"</osm>", relation("x", 10, 11)),
        "1 lanelet left out: x",
        "integer",
    ),
    "too large": (
        lanelet2(),
        inserted(lanelet2(), b"</osm>", relation(2**63, 10, 11)),
        "1 lanelet left out: 9",
        "at most",
    ),
    "twice": (
        lanelet2(),
        inserted(lanelet2(), b"</osm>", relation(1, 13, 14)),
        "1 lanelet left out: 1",
        "occurs twice",
    ),
    "no extent": (
        lanelet2(),
        with_lanelet('<way id="77"><nd ref="3"/><nd ref="3"/></way>', 77),
        "1 lanelet left out: 9",
        "no length",
    ),
    "way twice": (
        lanelet2(),
        with_lanelet(WAY_TWICE, 11),
        "1 lanelet left out: 9",
        "not one way",
    ),
    "node twice": (
        lanelet2(),
        with_lanelet(NODE_TWICE, 11),
        "1 lanelet left out: 9",
        "not one way",
    ),
    "side of a lane": (
        town(),
        broken_road(right=lane(1)),
        "1 road left out: 9",
        "must be below 0 on the right",
    ),
    "road length": (town(), broken_road(length=0), "1 road left out: 9", "road.length"),
    "no geometry": (town(), broken_road(geometry=""), "1 road left out: 9", "planView.geometry"),
    "damaged geometry": (
        town(),
        broken_road(geometry=STRAIGHT.replace('"40"', '"x"')),
        "1 road left out: 9",
        "length",
    ),
    "unknown geometry": (
        town(),
        broken_road(geometry=STRAIGHT.replace(LINE, "")),
        "1 road left out: 9",
        "paramPoly3",
    ),
    "no sections": (
        town(),
        inserted(town(), b"<junction", ROAD_WITHOUT_SECTIONS),
        "1 road left out: 9",
        "laneSection",
    ),
    "width": (town(), broken_road(right=lane(-1, width='a="?"')), "1 road left out: 9", "width.a"),
    "infinite width": (
        town(),
        broken_road(right=lane(-1, width='a="1e308" b="1e308" c="1e308" d="1e308"')),
        "1 lane left out: -1 of section 0 of road 9",
        "",
    ),
    "crosswalk": (
        town(),
        inserted(town(), b"<object ", '<object type="crosswalk" id="c" s="20" t="0"/>'),
        "1 crossing left out: c of road 1",
        "no area",
    ),
    "position of a crosswalk": (
        town(),
        inserted(town(), b"<object ", '<object type="crosswalk" id="c" s="x" t="0"/>'),
        "1 crossing left out: c of road 1",
        "object.s",
    ),
    "predecessor": (
        town(),
        inserted(town(), b'<predecessor id="-1"/>', "<predecessor/>"),
        "1 link left out: predecessor of lane -1 of road 2",
        "integer",
    ),
    "successor": (
        town(),
        inserted(town(), b'<successor id="-1"/>', '<successor id="-7"/>'),
        "1 link left out: successor of lane -1 of road 2",
        "no lane -7",
    ),
    "connection": (
        town(),
        inserted(town(), b"<connection", '<connection id="c" incomingRoad="1" connectingRoad="99"/>'),
        "1 link left out: connection c of junction J",
        "not in the file",
    ),
    "lane link": (
        town(),
        inserted(town(), b"<laneLink", '<laneLink from="-1" to=""/>'),
        "1 link left out: lane -1 to  of connection",
        "integer",
    ),
    "point": (
        commonroad(),
        inserted(
            commonroad(),
            b"<lanelet ",
            b'<lanelet id="9">%s</lanelet>' % POINTS.replace(b"5", b"?", 1),
        ),
        "1 lanelet left out: 9",
        "point.x",
    ),
    "few points": (
        commonroad(),
        inserted(commonroad(), b"<lanelet ", b'<lanelet id="9"></lanelet>'),
        "1 lanelet left out: 9",
        "fewer than 2 points",
    ),
    "points without extent": (
        commonroad(),
        inserted(commonroad(), b"<lanelet ", b'<lanelet id="9">%s</lanelet>' % POINTS),
        "1 lanelet left out: 9",
        "no length",
    ),
    "reference": (
        commonroad(),
        inserted(commonroad(), b"<successor ", '<successor ref="99"/><successor/>'),
        "2 links left out: successor 99 of lanelet 1",
        "not in the file",
    ),
    "turn": (
        commonroad(),
        inserted(commonroad(), b"<successorsLeft", "<successorsRight/>"),
        "1 link left out: successorsRight",
        "integer",
    ),
}


def read(folder: Path, content: bytes) -> MapFile:
    path = folder / "map.xml"
    path.write_bytes(content)
    return read_map_file(path)


@pytest.mark.parametrize("case", BROKEN)
def test_one_broken_part_is_left_out_and_the_rest_is_as_without_it(case: str, tmp_path: Path) -> None:
    whole, broken, start, reason = BROKEN[case]
    expected = read(tmp_path, whole)
    assert not expected.problems
    file = read(tmp_path, broken)
    assert len(file.lanes) == len(expected.lanes)
    np.testing.assert_array_equal(file.lanes.centerline.values, expected.lanes.centerline.values)
    np.testing.assert_array_equal(file.lanes.successors.lengths, expected.lanes.successors.lengths)
    np.testing.assert_array_equal(file.lanes.crossing_edge1.values, expected.lanes.crossing_edge1.values)
    [summary] = file.problems.summaries()
    assert summary.startswith(start)
    assert reason in summary
    assert len(summary) < 300


def test_what_is_left_out_is_warned_of_and_described(tmp_path: Path) -> None:
    path = tmp_path / "town.xodr"
    path.write_bytes(broken_road(length=0))
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
    ("content", "problem"),
    [
        (opendrive(road("1", length=0)), "no lane that road users drive on: 1 road left out: 1 "),
        (
            re.sub(rb'<way id="1\d"', b'<way id="0"', lanelet2()),
            "no lane .*: 5 lanelets left out: 1, 2, 3, 4, 5",
        ),
        (
            re.sub(rb"<x>.*?</x>\n<y>.*?</y>", b"<x>1</x><y>1</y>", commonroad()),
            "3 lanelets left out: 1, 2, 3",
        ),
        (
            re.sub(rb' v="\d+"', b' v="1"', lanelet2(local=True)),
            "5 lanelets left out: 1, 2, 3, 4, 5",
        ),
    ],
)
def test_maps_without_a_lane_that_is_left_are_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        read(tmp_path, content)
    assert str(caught.value).count("map.xml") == 1


@pytest.mark.parametrize(
    "copied",
    ['<node id="999" lat="0" lon="0"/>', '<way id="77"><nd ref="3"/><nd ref="103"/></way>' * 2],
)
def test_nodes_of_no_way_and_copies_of_ways_do_not_matter(copied: str, tmp_path: Path) -> None:
    expected = read(tmp_path, lanelet2())
    file = read(tmp_path, inserted(lanelet2(), b"<way", copied))
    assert (file.frame, file.problems.summaries()) == (expected.frame, [])
    np.testing.assert_array_equal(file.lanes.centerline.values, expected.lanes.centerline.values)


def test_nodes_without_local_coordinates_that_bound_nothing_do_not_matter(tmp_path: Path) -> None:
    content = inserted(lanelet2(local=True), b"<way", '<node id="999" lat="0" lon="0"/>')
    file = read(tmp_path, content)
    assert file.frame == "local_x and local_y"
    assert not file.problems
    np.testing.assert_allclose(file.lanes.centerline[0][[0, -1]], [[0, 7.5], [30, 7.5]], atol=1e-9)


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
    taken = b'<lanelet id="4">%s</lanelet><lanelet id="5"></lanelet>' % sidewalk
    file = read(tmp_path, inserted(far, b"<lanelet ", taken))
    assert file.lanes.lane_id.tolist() == [1, 6, 2]
