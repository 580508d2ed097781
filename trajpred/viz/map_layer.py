"""The road: drivable area, lanes, lane marks and pedestrian crossings."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from trajpred.geometry import arc_length, direction, norm, points_along
from trajpred.lane_map import LANE_TYPES, LaneMap
from trajpred.ragged import Ragged
from trajpred.viz.agent_layer import CHEVRON, place
from trajpred.viz.style import DASH, PAINT, SOLID, TINTS, Layer, mark_strokes, paint_of
from trajpred.viz.view import View, add_lines, add_polygons

#: Half the distance between the two lines of a double mark (points): to scale they would merge.
DOUBLE_GAP = 0.85
#: Lanes shorter than this on paper (points) get no arrow.
MIN_ARROW_LANE = 22.0
#: Distance between the bars of a crossing (metres); half of it is paint.
BAR_PITCH_M = 1.2


def draw_map(axes: Axes, view: View, lanes: LaneMap) -> None:
    """Draw the elements of ``lanes`` that touch the view, bottom layer first; an empty map draws nothing."""
    areas = view.visible(polylines(lanes.drivable_area))
    # Edges first: where two areas abut, the fill of the second hides the line between them.
    edges = [np.concatenate((area, area[:1])) for area in areas]
    add_lines(axes, edges, Layer.GROUND - 0.5, colors=view.theme.ground_edge, linewidths=1.6)
    # Maps of vehicles have no drivable areas: their lanes are the road.
    _fill(axes, areas or [one for one, _ in lane_outlines(view, lanes)], view.theme.ground, Layer.GROUND)
    tinted = lane_tints(view, lanes)
    for tint, color in enumerate(view.theme.tints):
        _fill(axes, [outline for outline, index in tinted if index == tint], color, Layer.LANE_TINT)
    outlines, bars = crossings(view, lanes)
    _fill(axes, outlines, view.theme.crossing, Layer.CROSSING)
    _fill(axes, bars, view.theme.crossing_bar, Layer.CROSSING)
    _draw_centerlines(axes, view, lanes)
    _draw_marks(axes, view, lanes)


def polylines(ragged: Ragged) -> list[np.ndarray]:
    """Return the rows of ``ragged`` without heights, ``[P, 2]`` each."""
    return [row[:, :2] for row in ragged]


def _fill(axes: Axes, polygons: list[np.ndarray], color: str, layer: float) -> None:
    if polygons:
        add_polygons(axes, polygons, layer, facecolors=color, edgecolors="none", linewidths=0.7)


def _draw_centerlines(axes: Axes, view: View, lanes: LaneMap) -> None:
    lines = view.visible(polylines(lanes.centerline))
    # Without boundaries the centrelines are the whole map and are drawn stronger.
    bare = not lanes.left_boundary.lengths.any()
    color = view.theme.centerline_bare if bare else view.theme.centerline
    add_lines(axes, lines, Layer.CENTERLINE, colors=color, linewidths=1.0 if bare else 0.6)
    poses = [middle_pose(line) for line in lines if arc_length(line)[-1] > view.metres(MIN_ARROW_LANE)]
    if poses:
        pose = np.stack(poses)
        size = np.full((len(pose), 2), [view.metres(5.0), view.metres(3.6)])
        arrows = place(CHEVRON, pose[:, :2], pose[:, 2], size)
        _fill(axes, list(arrows), view.theme.centerline_bare, Layer.CENTERLINE)


def _draw_marks(axes: Axes, view: View, lanes: LaneMap) -> None:
    """Draw lane boundaries as painted: one collection for each line of each mark type."""
    lines, marks = boundaries(view, lanes)
    for mark in np.unique(marks).tolist():
        chosen = [lines[i] for i in np.flatnonzero(marks == mark).tolist()]
        painted = paint_of(mark) in PAINT
        look = {"colors": view.theme.mark_color(mark), "linewidths": 0.9 if painted else 0.6}
        for side, dashed in mark_strokes(mark):
            shift = view.metres(DOUBLE_GAP) * side
            strokes = [offset_line(line, shift) for line in chosen] if side else chosen
            layer, style = Layer.MARK if painted else Layer.CENTERLINE, [DASH if dashed else SOLID]
            add_lines(axes, strokes, layer, linestyles=style, capstyle="butt", **look)


def lane_tints(view: View, lanes: LaneMap) -> list[tuple[np.ndarray, int]]:
    """Return the outlines of intersections, bus and bicycle lanes in view with their index in ``TINTS``."""
    names = [
        "INTERSECTION" if inside else LANE_TYPES[kind]
        for inside, kind in zip(lanes.is_intersection, lanes.lane_type, strict=True)
    ]
    return [
        (outline, TINTS.index(names[row]))
        for outline, row in lane_outlines(view, lanes)
        if names[row] in TINTS
    ]


def lane_outlines(view: View, lanes: LaneMap) -> list[tuple[np.ndarray, int]]:
    """Return the outlines of the lanes in view that have both boundaries, with their rows."""
    sides = zip(polylines(lanes.left_boundary), polylines(lanes.right_boundary), strict=True)
    outlines = [np.concatenate((left, right[::-1])) for left, right in sides if len(left) and len(right)]
    rows = np.flatnonzero((lanes.left_boundary.lengths > 0) & (lanes.right_boundary.lengths > 0)).tolist()
    return [(line, row) for line, row in zip(outlines, rows, strict=True) if view.touches(line)]


def crossings(view: View, lanes: LaneMap) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the outlines of the crossings in view, and the painted bars of all of them."""
    outlines: list[np.ndarray] = []
    bars: list[np.ndarray] = []
    for one, two in zip(polylines(lanes.crossing_edge1), polylines(lanes.crossing_edge2), strict=True):
        outline = np.concatenate((one, same_direction(one, two)[::-1]))
        if view.touches(outline):
            outlines.append(outline)
            bars.extend(zebra_bars(one, two))
    return outlines, bars


def boundaries(view: View, lanes: LaneMap) -> tuple[list[np.ndarray], np.ndarray]:
    """Return every lane boundary in view once, with its own lane on the right, and its mark ``[M]``.

    Neighbouring lanes both list the boundary they share; drawn twice, its dashes would fill up. Inside
    intersections only painted boundaries are kept.
    """
    right = [line[::-1] for line in polylines(lanes.right_boundary)]
    lines = polylines(lanes.left_boundary) + right
    marks = np.concatenate((lanes.left_mark, lanes.right_mark)).astype(np.int64)
    painted = np.array([paint_of(mark) in PAINT for mark in marks.tolist()], np.bool_)
    kept = painted | ~np.tile(lanes.is_intersection, 2)
    rows = [i for i in np.flatnonzero(kept).tolist() if view.touches(lines[i])]
    # Painted boundaries first, so that paint wins where the two lanes disagree.
    rows.sort(key=lambda i: not painted[i])
    # Two lines are the same if their end points are to 0.1 m, in either direction.
    first: dict[tuple[Any, ...], int] = {}
    for i in rows:
        first.setdefault(tuple(map(tuple, sorted(np.round(lines[i][[0, -1]], 1).tolist()))), i)
    chosen = list(first.values())
    return [lines[i] for i in chosen], marks[chosen]


def lane_line(lanes: LaneMap, row: int) -> np.ndarray:
    """Return the middle line ``[P, 2]`` of a lane segment or, for rows from ``len(lanes)``, of a crossing."""
    if row < len(lanes):
        return lanes.centerline[row][:, :2]
    one, two = (edge[row - len(lanes)][:, :2] for edge in (lanes.crossing_edge1, lanes.crossing_edge2))
    return (one[[0, -1]] + same_direction(one, two)[[0, -1]]) / 2


def offset_line(line: np.ndarray, distance: float) -> np.ndarray:
    """Return ``line`` ``[P, 2]`` moved ``distance`` metres to its left."""
    along = np.gradient(line, axis=0)
    unit = along / np.maximum(norm(along), 1e-9)[:, None]
    return line + distance * np.stack((-unit[:, 1], unit[:, 0]), -1)


def middle_pose(line: np.ndarray) -> np.ndarray:
    """Return x, y and heading ``[3]`` halfway along ``line`` ``[P, 2]``."""
    half = arc_length(line)[-1] / 2
    before, centre, after = points_along(line, np.array([half - 0.5, half, half + 0.5]))
    return np.append(centre, direction(after - before))


def zebra_bars(edge1: np.ndarray, edge2: np.ndarray) -> np.ndarray:
    """Return the corners ``[bars, 4, 2]`` of the bars between the long sides ``[P, 2]`` of a crossing."""
    second = same_direction(edge1, edge2)
    bars = max(1, round(arc_length(edge1)[-1] / BAR_PITCH_M))
    share = (np.arange(bars)[:, None] + np.array([0.25, 0.75])) / bars
    sides = [points_along(e, share.ravel() * arc_length(e)[-1]).reshape(bars, 2, 2) for e in (edge1, second)]
    return np.concatenate((sides[0], sides[1][:, ::-1]), axis=1)


def same_direction(edge1: np.ndarray, edge2: np.ndarray) -> np.ndarray:
    """Return ``edge2`` ``[Q, 2]``, reversed if it runs against ``edge1``."""
    against = float((edge1[-1] - edge1[0]) @ (edge2[-1] - edge2[0])) < 0
    return edge2[::-1] if against else edge2
