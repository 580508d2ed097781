"""The lanes of a map file, before they have ids and are cut to the length of lane segments."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, count, pairwise

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.geometry import arc_length, direction, norm, points_along, wrap_angle
from trajpred.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, TURN_DIRECTIONS, LaneMap, Ragged
from trajpred.sources.argoverse2_map import midlines

#: Longest lane segment (metres): models select lanes by their midpoints, and Argoverse's are about this long.
MAX_LENGTH_M = 50.0
#: Maximum number of lane segments of a map, and of metres of a lane.
MAX_LANES, MAX_LANE_M = 200_000, 1e5
#: A lane of an intersection turns if its direction changes by more than this (radians).
TURN = np.deg2rad(30)
#: Two ends of lanes are connected within this distance (metres).
CONNECTED_M = 0.1
#: The mark type, without its colour, of each name that formats give to marks.
_MARKS = {
    "solid": "SOLID", "dashed": "DASHED", "botts_dots": "DASHED", "solid_solid": "DOUBLE_SOLID",
    "dashed_dashed": "DOUBLE_DASH", "solid_dashed": "SOLID_DASH", "dashed_solid": "DASH_SOLID",
}  # fmt: skip
_NO_MARKS = ("none", "no_marking", "curb", "lowered_curb", "grass", "edge")

Line = NDArray[np.float64]


@dataclass
class Lane:
    """A lane in driving direction; its neighbours and successors are given by the keys of other lanes.

    Attributes:
        left, right: ``[P, 2]`` metres.
        centerline: ``[P, 2]``; by default halfway between the boundaries.
        lane_type, left_mark, right_mark: of ``LANE_TYPES`` and ``MARK_TYPES``.
        is_intersection: None where the file says nothing; if it never does, lanes that cross others are.
        turn_direction: of ``TURN_DIRECTIONS``; by default from the direction of its ends.
        lane_id: the number of the file; by default the next free one.
    """

    left: Line
    right: Line
    centerline: Line | None = None
    lane_type: str = "VEHICLE"
    left_mark: str = "UNKNOWN"
    right_mark: str = "UNKNOWN"
    left_neighbor: Hashable = None
    right_neighbor: Hashable = None
    successors: list[Hashable] = field(default_factory=list)
    is_intersection: bool | None = None
    turn_direction: str | None = None
    lane_id: int | None = None

    def backward(self) -> Lane:
        """Return the lane in the other direction, without number and successors."""
        center = None if self.centerline is None else self.centerline[::-1]
        return replace(
            self, left=self.right[::-1], right=self.left[::-1], centerline=center, lane_id=None,
            left_mark=self.right_mark, right_mark=self.left_mark, turn_direction=None, successors=[],
            left_neighbor=self.right_neighbor, right_neighbor=self.left_neighbor,
        )  # fmt: skip


def mark_type(name: str, color: str | None = None, near_first: bool = True) -> str:
    """Return the type of a mark that a format calls ``name``, such as ``solid_dashed``; white by default.

    Args:
        near_first: whether ``name`` begins with the line next to the lane, as types do.
    """
    if name in _NO_MARKS:
        return "NONE"
    lines = name.split("_") if near_first or name not in _MARKS else name.split("_")[::-1]
    pattern = _MARKS.get("_".join(lines))
    colored = f"{pattern}_{(color or '').upper()}"
    return "UNKNOWN" if pattern is None else colored if colored in MARK_TYPES else f"{pattern}_WHITE"


def lane_map_of(lanes: dict[Hashable, Lane], crossings: list[tuple[Line, Line]]) -> LaneMap:
    """Build a map: lanes longer than :data:`MAX_LENGTH_M` become segments of equal length.

    The first segment of a lane has the number of the file, the others the numbers after the largest.
    Links to lanes that are not in ``lanes`` are omitted; predecessors follow from successors.

    Args:
        crossings: the two long sides ``[P, 2]`` of each.

    Raises: DataError naming the field at fault.
    """
    rows = list(lanes.values())
    left, right = _lines([one.left for one in rows], "left"), _lines([one.right for one in rows], "right")
    middle = zip(rows, midlines(left, right), strict=True)
    center = [line[:, :2] if one.centerline is None else one.centerline for one, line in middle]
    parts = [max(1, math.ceil(arc_length(line)[-1] / MAX_LENGTH_M - 1e-9)) for line in center]
    require(0 < sum(parts) <= MAX_LANES, "lanes", f"must be 1 to {MAX_LANES} segments, are {sum(parts)}")
    ids = dict(zip(lanes, _ids(rows, parts), strict=True))
    onward = (_onward(ids, own, lanes[key].successors) for key, own in ids.items())
    unknown = all(one.is_intersection is None for one in rows)
    inside = _crossed(center) if unknown else np.array([bool(one.is_intersection) for one in rows])
    turns = [_turn(*one) for one in zip(rows, center, inside.tolist(), strict=True)]

    def codes(names: Iterable[str], known: tuple[str, ...]) -> NDArray[np.int8]:
        return np.repeat(np.array([known.index(name) for name in names], np.int8), parts)

    def cut(lines: Iterable[Line]) -> Ragged:
        return Ragged.from_rows([one for each in zip(lines, parts, strict=True) for one in _pieces(*each)], 2)

    lane_map = replace(
        LaneMap.from_centerlines(
            list(cut(center)), lane_id=[i for own in ids.values() for i in own], successors=[*chain(*onward)]
        ),
        lane_type=codes((one.lane_type for one in rows), LANE_TYPES),
        is_intersection=np.repeat(inside, parts),
        left_boundary=cut(left),
        right_boundary=cut(right),
        left_mark=codes((one.left_mark for one in rows), MARK_TYPES),
        right_mark=codes((one.right_mark for one in rows), MARK_TYPES),
        left_neighbor=_beside(ids, [one.left_neighbor for one in rows]),
        right_neighbor=_beside(ids, [one.right_neighbor for one in rows]),
        turn_direction=codes(turns, TURN_DIRECTIONS),
        crossing_id=np.arange(len(crossings)),
        crossing_edge1=_lines([one for one, _ in crossings], "crossing"),
        crossing_edge2=_lines([other for _, other in crossings], "crossing"),
    )
    lane_map.validate()
    return lane_map


def _lines(lines: list[Line], name: str) -> Ragged:
    ragged = Ragged.from_rows(lines, 2, name=name)
    ragged.validate(name, shortest=2)
    longest = max((float(np.ptp(line, axis=0).max()) for line in ragged), default=0.0)
    require(longest <= MAX_LANE_M, name, f"contains a line of {longest:.3g} m")
    return ragged


def _ids(lanes: list[Lane], parts: list[int]) -> list[list[int]]:
    """Return the ids of the segments of each lane; editors give negative numbers to unsaved elements."""
    given = [one.lane_id if one.lane_id is not None and one.lane_id >= 0 else None for one in lanes]
    fresh = count(max((i for i in given if i is not None), default=-1) + 1)
    first = [next(fresh) if i is None else i for i in given]
    return [[i, *(next(fresh) for _ in range(n - 1))] for i, n in zip(first, parts, strict=True)]


def _onward(ids: dict[Hashable, list[int]], own: list[int], keys: list[Hashable]) -> list[list[int]]:
    """Return the successors of each segment of a lane: the next one, and at its end the lanes ``keys``."""
    return [*([i] for i in own[1:]), [ids[key][0] for key in dict.fromkeys(keys) if key in ids]]


def _beside(ids: dict[Hashable, list[int]], keys: list[Hashable]) -> NDArray[np.int64]:
    """Return the id of the segment beside the middle of each segment; ``keys`` are the lanes' neighbours."""
    found = []
    for own, key in zip(ids.values(), keys, strict=True):
        other, n = ids.get(key, [NO_LANE]), len(own)
        found += [other[(2 * i + 1) * len(other) // (2 * n)] for i in range(n)]
    return np.array(found, np.int64)


def _pieces(line: Line, parts: int) -> list[Line]:
    """Cut a line into ``parts`` of equal length."""
    arc = arc_length(line)
    at = np.linspace(0, arc[-1], parts + 1)
    inside = [(arc > start + 1e-6) & (arc < end - 1e-6) for start, end in pairwise(at)]
    ends = points_along(line, at)
    pieces = [np.concatenate((ends[[i]], line[kept], ends[[i + 1]])) for i, kept in enumerate(inside)]
    return pieces if parts > 1 else [line]


def _crossed(lines: list[Line]) -> NDArray[np.bool_]:
    """Return for each line whether another one crosses it, other than at an end of both."""
    import shapely

    shapes = [shapely.LineString(line) for line in lines]
    return np.isin(np.arange(len(lines)), shapely.STRtree(shapes).query(shapes, predicate="crosses"))


def _turn(lane: Lane, line: Line, inside: bool) -> str:
    first, last = direction(line[[1, -1]] - line[[0, -2]])
    angle = float(wrap_angle(last - first)) if inside else 0.0
    return lane.turn_direction or ("NONE" if abs(angle) < TURN else "LEFT" if angle > 0 else "RIGHT")


def faults(lane_map: LaneMap) -> list[str]:
    """Describe what is wrong with the links of a map, in a few words each; empty if nothing is."""
    row = {lane: i for i, lane in enumerate(lane_map.lane_id.tolist())}
    links = [(i, row.get(one)) for i, ids in enumerate(lane_map.successors) for one in ids.tolist()]
    line = lane_map.centerline
    gaps = np.array([norm((line[i][-1] - line[j][0])[:2]) for i, j in links if j is not None])
    apart, outside = int((gaps > CONNECTED_M).sum()), len(links) - len(gaps)
    found = [f"{outside} successors are not in the map"] if outside else []
    if apart:
        found.append(f"{apart} successors begin more than {CONNECTED_M} m away, up to {gaps.max():.1f} m")
    return found
