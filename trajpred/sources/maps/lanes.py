"""The lanes of a map file, before they have ids and are cut to the length of lane segments."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import as_array, require
from trajpred.geometry import arc_length, direction, points_along, wrap_angle
from trajpred.lane_map import (
    LANE_TYPES,
    MARK_TYPES,
    NO_LANE,
    TURN_DIRECTIONS,
    LaneMap,
    Ragged,
)
from trajpred.sources.argoverse2_map import midlines

#: Longest lane segment (metres): models select lanes by their midpoints, Argoverse's are about this long.
MAX_LENGTH_M = 50.0
#: Maximum number of lane segments of a map, and the length of a lane (metres) beyond which it is an error.
MAX_LANES, MAX_LANE_M = 200_000, 1e5
#: A lane of an intersection turns if its direction changes by more than this (radians).
TURN = np.deg2rad(30)
#: Two ends of lanes are connected within this distance (metres).
CONNECTED_M = 0.1

Line = NDArray[np.float64]


@dataclass
class Lane:
    """A lane in driving direction; its neighbours and successors are given by the keys of other lanes.

    Attributes:
        left, right: ``[P, 2]`` metres.
        centerline: ``[P, 2]``; by default halfway between the boundaries.
        lane_type, left_mark, right_mark: of :data:`LANE_TYPES` and :data:`MARK_TYPES`.
        is_intersection: None if the file says nothing about any lane: then lanes that cross others are.
        turn_direction: of :data:`TURN_DIRECTIONS`; by default from the direction of its ends.
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


def mark_name(pattern: str, color: str | None = None) -> str:
    """Return the mark type of a pattern (``SOLID``, ``DOUBLE_DASH``, …) in a colour, white if unknown."""
    if pattern in MARK_TYPES:
        return pattern
    name = f"{pattern}_{(color or '').upper()}"
    return name if name in MARK_TYPES else f"{pattern}_WHITE"


def swapped(pattern: str) -> str:
    """Return the pattern of a double mark with its two lines exchanged."""
    return {"SOLID_DASH": "DASH_SOLID", "DASH_SOLID": "SOLID_DASH"}.get(pattern, pattern)


def lane_map_of(lanes: dict[Hashable, Lane], crossings: list[tuple[Line, Line]]) -> LaneMap:
    """Build a map: lanes longer than :data:`MAX_LENGTH_M` become segments of equal length.

    The first segment of a lane has the number of the file, the others the numbers after the largest.
    Links to lanes that are not in ``lanes`` are omitted; predecessors follow from successors.

    Args:
        crossings: the two long sides ``[P, 2]`` of each.

    Raises: DataError naming the field at fault.
    """
    rows = list(lanes.values())
    left, right = (_lines([getattr(one, side) for one in rows], side) for side in ("left", "right"))
    center = list(midlines(left, right)) if rows else []
    center = [line[:, :2] if one.centerline is None else one.centerline
              for one, line in zip(rows, center, strict=True)]  # fmt: skip
    parts = _numbers_of_parts(center)
    ids = dict(zip(lanes, _ids(rows, parts), strict=True))
    known = {
        key: [one for one in dict.fromkeys(lane.successors) if one in ids] for key, lane in lanes.items()
    }
    following = [[*([i] for i in ids[key][1:]), [ids[one][0] for one in known[key]]] for key in lanes]
    successors = [row for part in following for row in part]
    lane_id = as_array([i for part in ids.values() for i in part], np.int64, "lane_id")
    preceding = defaultdict(list)
    for one, row in zip(lane_id.tolist(), successors, strict=True):
        for other in row:
            preceding[other].append(one)
    sides = {f"{side}_neighbor": _neighbors(lanes, ids, f"{side}_neighbor") for side in ("left", "right")}
    crossed = _crossed(center) if all(one.is_intersection is None for one in rows) else None
    inside = [bool(one.is_intersection) for one in rows] if crossed is None else crossed
    turns = [_turn(*one) for one in zip(rows, center, inside, strict=True)]

    def codes(names: list[str], of: tuple[str, ...]) -> NDArray[np.int8]:
        return np.repeat(np.array([of.index(name) for name in names], np.int8), parts)

    def cut(lines: Iterable[Line]) -> Ragged:
        pieces = [piece for line, n in zip(lines, parts, strict=True) for piece in _pieces(line, n)]
        return Ragged.from_rows(pieces, 2)

    lane_map = LaneMap(
        lane_id=lane_id,
        lane_type=codes([one.lane_type for one in rows], LANE_TYPES),
        is_intersection=np.repeat(np.array(inside, np.bool_), parts),
        centerline=cut(center),
        left_boundary=cut(left),
        right_boundary=cut(right),
        left_mark=codes([one.left_mark for one in rows], MARK_TYPES),
        right_mark=codes([one.right_mark for one in rows], MARK_TYPES),
        **sides,
        predecessors=Ragged.from_rows([preceding[i] for i in lane_id.tolist()], dtype=np.int64),
        successors=Ragged.from_rows(successors, dtype=np.int64),
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


def _numbers_of_parts(lines: list[Line]) -> list[int]:
    parts = [max(1, math.ceil(arc_length(line)[-1] / MAX_LENGTH_M - 1e-9)) for line in lines]
    require(sum(parts) <= MAX_LANES, "lanes", f"{sum(parts)} lane segments are more than {MAX_LANES}")
    return parts


def _ids(lanes: list[Lane], parts: list[int]) -> list[list[int]]:
    """Return the ids of the segments of each lane."""
    given = [one.lane_id if one.lane_id is not None and one.lane_id >= 0 else None for one in lanes]
    fresh = count(max((i for i in given if i is not None), default=-1) + 1)
    first = [next(fresh) if i is None else i for i in given]
    return [[i, *(next(fresh) for _ in range(n - 1))] for i, n in zip(first, parts, strict=True)]


def _neighbors(lanes: dict[Hashable, Lane], ids: dict[Hashable, list[int]], side: str) -> NDArray[np.int64]:
    """Return the id of the segment beside the middle of each segment."""
    found = []
    for key, lane in lanes.items():
        beside, n = ids.get(getattr(lane, side), [NO_LANE]), len(ids[key])
        found += [beside[(2 * i + 1) * len(beside) // (2 * n)] for i in range(n)]
    return np.array(found, np.int64)


def _pieces(line: Line, parts: int) -> list[Line]:
    """Cut a line into ``parts`` of equal length."""
    if parts == 1:
        return [line]
    arc = arc_length(line)
    at = np.linspace(0, arc[-1], parts + 1)
    ends = points_along(line, at)
    inside = [line[(arc > at[i] + 1e-6) & (arc < at[i + 1] - 1e-6)] for i in range(parts)]
    return [np.concatenate((ends[i : i + 1], inside[i], ends[i + 1 : i + 2])) for i in range(parts)]


def _crossed(lines: list[Line]) -> list[bool]:
    """Return for each line whether another one crosses it, other than at an end of both."""
    import shapely

    shapes = [shapely.LineString(line) for line in lines]
    pairs = shapely.STRtree(shapes).query(shapes, predicate="crosses")
    return np.isin(np.arange(len(lines)), pairs).tolist()


def _turn(lane: Lane, line: Line, inside: bool) -> str:
    if lane.turn_direction is not None or not inside:
        return lane.turn_direction or "NONE"
    first, last = direction(line[1] - line[0]), direction(line[-1] - line[-2])
    angle = float(wrap_angle(last - first))
    return "NONE" if abs(angle) < TURN else "LEFT" if angle > 0 else "RIGHT"


def faults(lane_map: LaneMap) -> list[str]:
    """Describe what is wrong with the links of a map, in a few words each; empty if nothing is."""
    row = {lane: i for i, lane in enumerate(lane_map.lane_id.tolist())}
    links = [(i, one) for i, ids in enumerate(lane_map.successors) for one in ids.tolist()]
    ends = [(lane_map.centerline[i][-1], lane_map.centerline[row[one]][0]) for i, one in links if one in row]
    gaps = np.array([np.hypot(*(a - b)[:2]) for a, b in ends])
    apart, outside = int((gaps > CONNECTED_M).sum()), len(links) - len(ends)
    found = []
    if apart:
        found.append(f"{apart} successors begin more than {CONNECTED_M} m away, up to {gaps.max():.1f} m")
    if outside:
        found.append(f"{outside} successors are not in the map")
    return found
