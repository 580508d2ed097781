"""Maps with broken parts: these are left out, named and counted, and the rest is as without them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.integrations.map_files import LINE, STRAIGHT, commonroad, lane, lanelet2, opendrive, road, town
from trajpred import read_map
from trajpred.cli.info import describe
from trajpred.integrations.maps import MapFile, read_map_file

#: Bounds of a CommonRoad lanelet of no length, with two and three points.
POINT = "<point><x>5</x><y>5</y></point>"
POINTS = f"<leftBound>{2 * POINT}</leftBound><rightBound>{3 * POINT}</rightBound>"
LANELET_9 = '<lanelet id="9">{}</lanelet>'
ROAD_WITHOUT_SECTIONS = re.sub("<laneSection.*</laneSection>", "", road("9"), flags=re.DOTALL)


def inserted(content: bytes, before: bytes, part: str) -> bytes:
    """Return ``content`` with another part in front of the first ``before``."""
    return content.replace(before, part.encode() + before, 1)


def relation(number: object, left: int, right: int) -> str:
    members = f'<member type="way" ref="{left}" role="left"/><member type="way" ref="{right}" role="right"/>'
    return f'<relation id="{number}">{members}<tag k="type" v="lanelet"/></relation>'


def way(*nodes: int) -> str:
    """Return way 77."""
    references = [f'<nd ref="{node}"/>' for node in nodes]
    return f'<way id="77">{"".join(references)}</way>'


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
    (b"<relation", way(3, 3) + relation(9, 77, 77), "lanelet left out: 9", "no length"),
    (b"<relation", way(0, 1) + way(0, 2) + relation(9, 77, 11), "lanelet left out: 9", "not one way"),
    (b"<relation", OTHER_PLACE + way(0, 900) + relation(9, 77, 11), "lanelet left out: 9", "not one way"),
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
    (
        b'<predecessor id="-1"/>',
        "<predecessor/>",
        "link left out: predecessor of lane -1 of road 2",
        "integer",
    ),
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
    assert not expected.problems
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
    ("local", "unused"),
    [
        (False, '<node id="999" lat="0" lon="0"/>'),
        (True, '<node id="999" lat="0" lon="0"/>'),
        (False, 2 * way(3, 103)),
    ],
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
