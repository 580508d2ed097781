"""The road: drivable area, lanes, marks, crossings."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from numpy.typing import NDArray

from trajpred.lane_map import LANE_TYPES, LaneMap, Ragged
from trajpred.viz.shapes import (
    CHEVRON,
    Floats,
    arc_length,
    middle_pose,
    offset_line,
    place,
    same_direction,
    zebra_bars,
)
from trajpred.viz.style import DASH, PAINT, SOLID, TINTS, Layer, mark_strokes, paint_of
from trajpred.viz.view import View

#: Half the distance between the two lines of a double mark, in points: real ones would merge on paper.
DOUBLE_GAP = 0.85
#: Lanes shorter than this on paper (points) get no arrow.
SHORT_LANE = 22.0


def draw_map(axes: Axes, view: View, lanes: LaneMap) -> None:
    """Draw what of ``lanes`` touches the view, from the ground up; an empty map draws nothing."""
    _draw_drivable_area(axes, view, lanes)
    _draw_lane_tints(axes, view, lanes)
    _draw_crossings(axes, view, lanes)
    _draw_centerlines(axes, view, lanes)
    _draw_marks(axes, view, lanes)


def _rows(ragged: Ragged) -> list[Floats]:
    """The polylines without their heights."""
    return [row[:, :2] for row in ragged]


def _fill(axes: Axes, polygons: list[Floats], color: str, layer: Layer, edge: str = "none") -> None:
    if polygons:
        artist = PolyCollection(polygons, facecolors=color, edgecolors=edge, linewidths=0.7, zorder=layer)
        axes.add_collection(artist, autolim=False)


def _draw_drivable_area(axes: Axes, view: View, lanes: LaneMap) -> None:
    polygons = view.seen(_rows(lanes.drivable_area))
    # Edges first: where two areas abut, the second's ground hides the line between them.
    edges = LineCollection(
        [np.concatenate((polygon, polygon[:1])) for polygon in polygons],
        colors=view.theme.ground_edge,
        linewidths=1.6,
        zorder=Layer.GROUND - 0.5,
    )
    axes.add_collection(edges, autolim=False)
    _fill(axes, polygons, view.theme.ground, Layer.GROUND)


def _draw_lane_tints(axes: Axes, view: View, lanes: LaneMap) -> None:
    found = lane_tints(view, lanes)
    for tint, color in enumerate(view.theme.tints):
        _fill(axes, [outline for outline, kind in found if kind == tint], color, Layer.LANE_TINT)


def lane_tints(view: View, lanes: LaneMap) -> list[tuple[Floats, int]]:
    """Intersections, bus and bicycle lanes in view: the area between the boundaries, which of ``TINTS``."""
    found = []
    sides = zip(_rows(lanes.left_boundary), _rows(lanes.right_boundary), strict=True)
    for i, (left, right) in enumerate(sides):
        kind = "INTERSECTION" if lanes.is_intersection[i] else LANE_TYPES[lanes.lane_type[i]]
        if kind in TINTS and len(left) and len(right):
            found.append((np.concatenate((left, right[::-1])), TINTS.index(kind)))
    return [each for each in found if view.touches(each[0])]


def _draw_crossings(axes: Axes, view: View, lanes: LaneMap) -> None:
    outlines, bars = crossings(view, lanes)
    _fill(axes, outlines, view.theme.crossing, Layer.CROSSING)
    _fill(axes, bars, view.theme.crossing_bar, Layer.CROSSING)


def crossings(view: View, lanes: LaneMap) -> tuple[list[Floats], list[Floats]]:
    """Outlines of the crossings in view, and the bars of all of them."""
    outlines: list[Floats] = []
    bars: list[Floats] = []
    for one, two in zip(_rows(lanes.crossing_edge1), _rows(lanes.crossing_edge2), strict=True):
        outline = np.concatenate((one, same_direction(one, two)[::-1]))
        if view.touches(outline):
            outlines.append(outline)
            bars.extend(zebra_bars(one, two))
    return outlines, bars


def _draw_centerlines(axes: Axes, view: View, lanes: LaneMap) -> None:
    lines = view.seen(_rows(lanes.centerline))
    if not lines:
        return
    # Without boundaries the centrelines are all there is of the map, so they may be stronger.
    bare = not lanes.left_boundary.lengths.any()
    color = view.theme.centerline_bare if bare else view.theme.centerline
    width = 1.0 if bare else 0.6
    axes.add_collection(
        LineCollection(lines, colors=color, linewidths=width, zorder=Layer.CENTERLINE), autolim=False
    )
    poses = [middle_pose(line) for line in lines if arc_length(line)[-1] > view.metres(SHORT_LANE)]
    if poses:
        pose = np.stack(poses)
        size = np.full((len(pose), 2), [view.metres(5.0), view.metres(3.6)])
        arrows = place(CHEVRON, pose[:, :2], pose[:, 2], size)
        _fill(axes, list(arrows), view.theme.centerline_bare, Layer.CENTERLINE)


def _draw_marks(axes: Axes, view: View, lanes: LaneMap) -> None:
    """Boundaries as painted: one collection for each line of each mark type."""
    lines, marks = boundaries(view, lanes)
    for mark in np.unique(marks).tolist():
        chosen = [lines[i] for i in np.flatnonzero(marks == mark).tolist()]
        painted = paint_of(mark) in PAINT
        for side, dashed in mark_strokes(mark):
            shift = view.metres(DOUBLE_GAP) * side
            strokes = LineCollection(
                [offset_line(line, shift) for line in chosen] if side else chosen,
                colors=view.theme.mark_color(mark),
                linewidths=0.9 if painted else 0.6,
                linestyles=[DASH if dashed else SOLID],
                capstyle="butt",
                zorder=Layer.MARK if painted else Layer.CENTERLINE,
            )
            axes.add_collection(strokes, autolim=False)


def boundaries(view: View, lanes: LaneMap) -> tuple[list[Floats], NDArray[np.int64]]:
    """Every boundary in view once, its own lane to the right of it, and its mark ``[M]``.

    Neighbouring lanes both list the boundary they share; drawn twice, its dashes would fill up. In
    intersections only paint is kept: the edges of crossing paths are no edges of anything.
    """
    right = [line[::-1] for line in _rows(lanes.right_boundary)]
    lines = _rows(lanes.left_boundary) + right
    marks = np.concatenate((lanes.left_mark, lanes.right_mark)).astype(np.int64)
    painted = np.array([paint_of(mark) in PAINT for mark in marks.tolist()], np.bool_)
    kept = painted | ~np.tile(lanes.is_intersection, 2)
    rows = [i for i in np.flatnonzero(kept).tolist() if view.touches(lines[i])]
    # Painted first, so that paint wins where the two lanes disagree.
    rows.sort(key=lambda i: not painted[i])
    first: dict[tuple[float, ...], int] = {}
    for i in rows:
        first.setdefault(_ends(lines[i]), i)
    chosen = list(first.values())
    return [lines[i] for i in chosen], marks[chosen]


def _ends(line: Floats) -> tuple[float, ...]:
    """The two end points of ``line`` to 0.1 m, in an order that does not depend on its direction."""
    one, two = np.round(line[[0, -1]], 1).tolist()
    return (*one, *two) if one < two else (*two, *one)
