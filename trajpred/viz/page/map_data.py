"""The map of a scene as the JSON that the page reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trajpred.geometry import arc_length
from trajpred.lane_map import LaneMap
from trajpred.viz.map_layer import boundaries, crossings, lane_tints, middle_pose, offset_line, polylines
from trajpred.viz.page.units import CENTIMETRE, MILLIRADIAN, pack_points, to_integers
from trajpred.viz.style import PAINT, mark_strokes, paint_of
from trajpred.viz.view import View

#: Half the distance between the two lines of a double mark (metres), a little wider than painted.
DOUBLE_GAP_M = 0.14
#: Paint of strokes by index, unpainted first.
PAINTS = ("UNPAINTED", *PAINT)


def pack_map(lanes: LaneMap, origin: np.ndarray) -> dict[str, Any]:
    """Return lines and polygons of the map, and arrows ``[L][4]``: x, y, heading, length of the lane."""
    everywhere = View(origin, 1e9, 1.0)
    outlines, bars = crossings(everywhere, lanes)
    centerlines = polylines(lanes.centerline)
    tints: list[dict[str, Any]] = []
    for outline, tint in lane_tints(everywhere, lanes):
        area = _pack_polygon(outline, origin)
        area["tint"] = tint
        tints.append(area)
    return {
        "ground": [_pack_polygon(polygon, origin) for polygon in polylines(lanes.drivable_area)],
        "tint": tints,
        "crossing": [_pack_polygon(outline, origin) for outline in outlines],
        "bar": [_pack_polygon(bar, origin) for bar in bars],
        "centerline": [pack_points(line, origin) for line in centerlines],
        "stroke": _pack_strokes(everywhere, lanes, origin),
        "arrow": _pack_arrows(centerlines, origin),
    }


def _pack_strokes(view: View, lanes: LaneMap, origin: np.ndarray) -> list[dict[str, Any]]:
    """Return the lines of the marks of all lane boundaries."""
    strokes: list[dict[str, Any]] = []
    lines, marks = boundaries(view, lanes)
    for line, mark in zip(lines, marks.tolist(), strict=True):
        paint = 0
        if paint_of(mark) in PAINTS:
            paint = PAINTS.index(paint_of(mark))
        for side, dashed in mark_strokes(mark):
            moved = line
            if side != 0:
                moved = offset_line(line, DOUBLE_GAP_M * side)
            stroke = pack_points(moved, origin)
            stroke["paint"] = paint
            stroke["dashed"] = int(dashed)
            strokes.append(stroke)
    return strokes


def _pack_arrows(centerlines: Sequence[np.ndarray], origin: np.ndarray) -> list[list[int]]:
    """Return the pose halfway along each centreline and its length, ``[L][4]``."""
    poses = [middle_pose(line) for line in centerlines]
    lengths = [arc_length(line)[-1] for line in centerlines]
    pose = np.array(poses).reshape(-1, 3)
    position = to_integers(pose[:, :2] - origin, CENTIMETRE)
    heading = to_integers(pose[:, 2:], MILLIRADIAN)
    length = to_integers(np.array(lengths), CENTIMETRE)
    arrows: list[list[int]] = np.concatenate((position, heading, length[:, None]), axis=1).tolist()
    return arrows


def _pack_polygon(polygon: np.ndarray, origin: np.ndarray) -> dict[str, Any]:
    """Pack ``[P, 2]`` counter-clockwise: filled together, polygons of opposite orientation would cancel."""
    x, y = (polygon - polygon[0]).T  # relative, because city coordinates are too large to multiply
    is_counter_clockwise = x @ np.roll(y, -1) >= y @ np.roll(x, -1)
    if not is_counter_clockwise:
        polygon = polygon[::-1]
    return pack_points(polygon, origin)
