"""The road: drivable area, lanes, lane marks and pedestrian crossings."""

from __future__ import annotations

from typing import Any

import numpy as np
import shapely
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.path import Path

from trajpred.data.geometry import arc_length, direction, norm, points_along, to_global
from trajpred.data.lane_map import LANE_TYPES, LaneMap
from trajpred.data.ragged import Ragged
from trajpred.viz.agent_layer import CHEVRON
from trajpred.viz.style import DASH, PAINT, SOLID, TINTS, Layer, mark_strokes, paint_of
from trajpred.viz.view import View, add_lines, add_polygons, legend_marker

#: Half the distance between the lines of a double mark (points): to scale they would merge.
DOUBLE_GAP = 0.85
#: Lanes shorter than this on paper (points) get no arrow.
MIN_ARROW_LANE = 22.0
#: Length and width of the arrow on a lane (points).
ARROW_LENGTH = 5.0
ARROW_WIDTH = 3.6
#: Names of ``TINTS`` in the legend.
TINT_NAMES = ("bus lane", "bicycle lane", "intersection")
#: Lanes farther from all others than this (metres) are a separate part of a map.
PART_GAP_M = 200.0
#: Distance between the bars of a crossing (metres); half of it is paint.
BAR_PITCH_M = 1.2


def draw_map(axes: Axes, view: View, lanes: LaneMap) -> None:
    """Draw the elements of ``lanes`` that touch the view, bottom layer first; nothing for an empty map."""
    areas = view.visible(polylines(lanes.drivable_area))
    # Edges first: where two areas abut, the fill of the second hides the line between them.
    edges = [np.concatenate((area, area[:1])) for area in areas]
    add_lines(axes, edges, Layer.GROUND - 0.5, colors=view.theme.ground_edge, linewidths=1.6)
    _fill(axes, ground_areas(view, lanes), view.theme.ground, Layer.GROUND)
    tinted: list[list[np.ndarray]] = [[] for _ in TINTS]
    for outline, tint in lane_tints(view, lanes):
        tinted[tint].append(outline)
    for polygons, color in zip(tinted, view.theme.tints, strict=True):
        _fill(axes, polygons, color, Layer.LANE_TINT)
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
    """Draw the centrelines in view, with an arrow on each that is long enough."""
    lines = view.visible(polylines(lanes.centerline))
    # Without boundaries, centrelines are the whole map and are drawn stronger.
    if lanes.left_boundary.lengths.any():
        color = view.theme.centerline
        width = 0.6
    else:
        color = view.theme.centerline_bare
        width = 1.0
    add_lines(axes, lines, Layer.CENTERLINE, colors=color, linewidths=width)
    shortest = view.metres(MIN_ARROW_LANE)
    poses = [middle_pose(line) for line in lines if arc_length(line)[-1] > shortest]
    if not poses:
        return
    pose = np.stack(poses)
    length = view.metres(ARROW_LENGTH)
    width = view.metres(ARROW_WIDTH)
    arrows = to_global(CHEVRON * np.array([length, width]), pose[:, None, :2], pose[:, 2:])
    _fill(axes, list(arrows), view.theme.centerline_bare, Layer.CENTERLINE)


def _draw_marks(axes: Axes, view: View, lanes: LaneMap) -> None:
    """Draw lane boundaries as painted: one collection per line of each mark type."""
    lines, marks = boundaries(view, lanes)
    for mark in np.unique(marks).tolist():
        rows = np.flatnonzero(marks == mark).tolist()
        marked = [lines[row] for row in rows]
        layer = Layer.CENTERLINE
        width = 0.6
        if paint_of(mark) in PAINT:
            layer = Layer.MARK
            width = 0.9
        for side, dashed in mark_strokes(mark):
            strokes = marked
            if side != 0:
                shift = view.metres(DOUBLE_GAP) * side
                strokes = [offset_line(line, shift) for line in marked]
            add_lines(
                axes,
                strokes,
                layer,
                linestyles=[DASH if dashed else SOLID],
                capstyle="butt",
                colors=view.theme.mark_color(mark),
                linewidths=width,
            )


def draw_links(axes: Axes, view: View, lanes: LaneMap) -> list[Line2D]:
    """Mark links between lane segments, and lanes that end without a successor.

    Returns: entries for the legend.
    """
    ends = np.array([line[-1] for line in polylines(lanes.centerline)])
    has_next = lanes.successors.lengths > 0
    in_view = view.contains(ends)
    entries: list[Line2D] = []
    for label, rows, marker, size, color in (
        ("link to a successor", has_next, "o", 2.4, view.theme.ink),
        ("end without successor", ~has_next, "s", 3.6, view.theme.attention),
    ):
        x, y = ends[rows & in_view].T
        if len(x):
            look: dict[str, Any] = {"marker": marker, "markersize": size, "color": color}
            axes.plot(x, y, linestyle="none", markeredgewidth=0.0, zorder=Layer.HISTORY, gid=label, **look)
            entries.append(legend_marker(label, marker, size, color, markeredgewidth=0.0))
    return entries


def map_entries(view: View, lanes: LaneMap) -> list[Line2D]:
    """Return entries for the legend of a map alone: lanes, their types and directions, crossings."""
    theme = view.theme
    areas: list[tuple[str, str]] = []
    if ground_areas(view, lanes):
        areas.append(("lane", theme.ground))
    tints = {tint for _, tint in lane_tints(view, lanes)}
    areas += [(TINT_NAMES[tint], theme.tints[tint]) for tint in sorted(tints)]
    outlines, _ = crossings(view, lanes)
    if outlines:
        areas.append(("pedestrian crossing", theme.crossing))
    entries = [legend_marker(label, "s", 6.5, color) for label, color in areas]
    entries.append(legend_marker("direction", Path(CHEVRON), 6.0, theme.centerline_bare))
    return entries


def map_parts(lanes: LaneMap) -> list[np.ndarray]:
    """Return the extents ``[2, 2]`` (low, high) of the parts of a map, the one with most lanes first.

    Parts are more than :data:`PART_GAP_M` apart.
    """
    lines = [shapely.LineString(line) for line in polylines(lanes.centerline)]
    bounds = shapely.bounds(lines)
    left, bottom, right, top = (bounds + PART_GAP_M / 2 * np.array([-1, -1, 1, 1])).T
    parts = shapely.get_parts(shapely.union_all(shapely.box(left, bottom, right, top)))
    part_of_line = np.array([shapely.intersects(parts, line).argmax() for line in lines])
    counts = np.bincount(part_of_line, minlength=len(parts))
    extents: list[np.ndarray] = []
    for part in np.argsort(-counts, kind="stable").tolist():
        inside = bounds[part_of_line == part]
        extents.append(np.stack((inside[:, :2].min(axis=0), inside[:, 2:].max(axis=0))))
    return extents


def ground_areas(view: View, lanes: LaneMap) -> list[np.ndarray]:
    """Return the outlines of the road in view: the drivable areas, or else the lanes.

    Maps of vehicles have no drivable areas.
    """
    areas = view.visible(polylines(lanes.drivable_area))
    if areas:
        return areas
    return [outline for outline, _ in lane_outlines(view, lanes)]


def lane_tints(view: View, lanes: LaneMap) -> list[tuple[np.ndarray, int]]:
    """Return the outlines of intersections, bus and bicycle lanes in view with their index in ``TINTS``."""
    tinted: list[tuple[np.ndarray, int]] = []
    for outline, row in lane_outlines(view, lanes):
        name = LANE_TYPES[lanes.lane_type[row]]
        if lanes.is_intersection[row]:
            name = "INTERSECTION"
        if name in TINTS:
            tinted.append((outline, TINTS.index(name)))
    return tinted


def lane_outlines(view: View, lanes: LaneMap) -> list[tuple[np.ndarray, int]]:
    """Return the outlines of the lanes in view that have both boundaries, with their rows."""
    has_left = lanes.left_boundary.lengths > 0
    has_right = lanes.right_boundary.lengths > 0
    outlines: list[tuple[np.ndarray, int]] = []
    for row in np.flatnonzero(has_left & has_right).tolist():
        left = lanes.left_boundary[row][:, :2]
        right = lanes.right_boundary[row][:, :2]
        outline = np.concatenate((left, right[::-1]))
        if view.touches(outline):
            outlines.append((outline, row))
    return outlines


def crossings(view: View, lanes: LaneMap) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the outlines of the crossings in view, and the painted bars of all of them."""
    outlines: list[np.ndarray] = []
    bars: list[np.ndarray] = []
    first_edges = polylines(lanes.crossing_edge1)
    second_edges = polylines(lanes.crossing_edge2)
    for edge1, edge2 in zip(first_edges, second_edges, strict=True):
        outline = np.concatenate((edge1, same_direction(edge1, edge2)[::-1]))
        if view.touches(outline):
            outlines.append(outline)
            bars.extend(zebra_bars(edge1, edge2))
    return outlines, bars


def boundaries(view: View, lanes: LaneMap) -> tuple[list[np.ndarray], np.ndarray]:
    """Return every lane boundary in view once, with its lane on the right, and its mark ``[M]``.

    Neighbouring lanes both list the boundary they share; drawn twice, its dashes would fill up. Inside
    intersections only painted boundaries are kept.
    """
    right = [line[::-1] for line in polylines(lanes.right_boundary)]
    lines = polylines(lanes.left_boundary) + right
    marks = np.concatenate((lanes.left_mark, lanes.right_mark)).astype(np.int64)
    has_paint = [paint_of(mark) in PAINT for mark in marks.tolist()]
    painted = np.array(has_paint, np.bool_)
    unpainted = ~painted & ~np.tile(lanes.is_intersection, 2)
    first_of_ends: dict[tuple[Any, ...], int] = {}
    # Painted boundaries first, so that paint wins if the two lanes disagree.
    for row in (*np.flatnonzero(painted), *np.flatnonzero(unpainted)):
        if view.touches(lines[row]):
            first_of_ends.setdefault(_rounded_ends(lines[row]), int(row))
    unique = list(first_of_ends.values())
    return [lines[row] for row in unique], marks[unique]


def _rounded_ends(line: np.ndarray) -> tuple[Any, ...]:
    """Return the end points of ``line`` to 0.1 m, independent of its direction."""
    ends = np.round(line[[0, -1]], 1).tolist()
    low, high = sorted(ends)
    return tuple(low), tuple(high)


def lane_line(lanes: LaneMap, row: int) -> np.ndarray:
    """Return the middle line ``[P, 2]`` of a lane segment or, for rows from ``len(lanes)``, of a crossing."""
    if row < len(lanes):
        return lanes.centerline[row][:, :2]
    crossing = row - len(lanes)
    edge1 = lanes.crossing_edge1[crossing][:, :2]
    edge2 = lanes.crossing_edge2[crossing][:, :2]
    return (edge1[[0, -1]] + same_direction(edge1, edge2)[[0, -1]]) / 2


def offset_line(line: np.ndarray, distance: float) -> np.ndarray:
    """Return ``line`` ``[P, 2]`` moved ``distance`` metres to its left."""
    along = np.gradient(line, axis=0)
    unit = along / np.maximum(norm(along), 1e-9)[:, None]
    left = np.stack((-unit[:, 1], unit[:, 0]), -1)
    return line + distance * left


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
    on_first = points_along(edge1, share.ravel() * arc_length(edge1)[-1]).reshape(bars, 2, 2)
    on_second = points_along(second, share.ravel() * arc_length(second)[-1]).reshape(bars, 2, 2)
    return np.concatenate((on_first, on_second[:, ::-1]), axis=1)


def same_direction(edge1: np.ndarray, edge2: np.ndarray) -> np.ndarray:
    """Return ``edge2`` ``[Q, 2]``, reversed if it runs against ``edge1``."""
    along1 = edge1[-1] - edge1[0]
    along2 = edge2[-1] - edge2[0]
    if float(along1 @ along2) < 0:
        return edge2[::-1]
    return edge2
