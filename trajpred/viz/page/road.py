"""The map of a scene as whole numbers: strokes, polygons and arrows, ready to be drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trajpred.lane_map import LaneMap
from trajpred.viz.map_layer import boundaries, crossings, lane_tints
from trajpred.viz.page.codec import to_int
from trajpred.viz.shapes import Floats, arc_length, middle_pose, offset_line
from trajpred.viz.style import PAINT, mark_strokes, paint_of
from trajpred.viz.view import View

#: What coordinates are multiples of, in metres and in radians.
CENTIMETRE, MILLIRADIAN = 0.01, 0.001
#: Half the distance between the two lines of a double mark, in metres: a little wider than painted.
DOUBLE_GAP_M = 0.14
#: Kinds of paint, as ``static/draw_map.js`` numbers them; of tints it takes those of ``style.TINTS``.
PAINTS = ("UNPAINTED", *PAINT)


def road_arrays(lanes: LaneMap, origin: Floats) -> dict[str, NDArray[np.int32]]:
    """What :func:`trajpred.viz.page.codec.encode` takes; coordinates in centimetres from ``origin`` ``[2]``.

    ``NAME`` ``[N, 2]`` are points, ``NAME_rows`` ``[M, …]`` the number of points of each line or polygon and
    what it is: ``tint_rows`` (points, tint), ``stroke_rows`` (points, paint, dashed). ``arrow`` ``[M, 4]``:
    x, y, heading in milliradians and length of the lane in centimetres.
    """
    everywhere = View(origin, 1e9, 1.0)
    tints = lane_tints(everywhere, lanes)
    strokes, looks = _strokes(everywhere, lanes)
    outlines, bars = crossings(everywhere, lanes)
    centerlines = [row[:, :2] for row in lanes.centerline]
    return {
        **_lines("ground", _wound([row[:, :2] for row in lanes.drivable_area]), origin),
        **_lines("tint", _wound([line for line, _ in tints]), origin, [(tint,) for _, tint in tints]),
        **_lines("crossing", _wound(outlines), origin),
        **_lines("bar", _wound(bars), origin),
        **_lines("centerline", centerlines, origin),
        **_lines("stroke", strokes, origin, looks),
        "arrow": _arrows(centerlines, origin),
    }


def _lines(
    name: str, lines: Sequence[Floats], origin: Floats, facts: Sequence[Sequence[int]] | None = None
) -> dict[str, NDArray[np.int32]]:
    """Points and rows of ``lines`` ``[P, 2]`` each; ``facts`` say more of each."""
    told: Sequence[Sequence[int]] = [()] * len(lines) if facts is None else facts
    rows = [(len(line), *fact) for line, fact in zip(lines, told, strict=True)]
    points = np.concatenate([np.zeros((0, 2)), *[line - origin for line in lines]])
    columns = len(rows[0]) if rows else 1
    return {
        name: to_int(points, CENTIMETRE, 2),
        f"{name}_rows": np.array(rows, np.int32).reshape(-1, columns),
    }


def _wound(polygons: Sequence[Floats]) -> list[Floats]:
    """All counter-clockwise: filled together, two that overlap would else cancel each other."""
    return [polygon if _area(polygon) >= 0 else polygon[::-1] for polygon in polygons]


def _area(polygon: Floats) -> float:
    """Of ``[P, 2]``, positive if counter-clockwise."""
    # From its first point: city coordinates are too large to multiply.
    x, y = (polygon - polygon[0]).T
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def _strokes(view: View, lanes: LaneMap) -> tuple[list[Floats], list[tuple[int, int]]]:
    """Lane boundaries as painted, double ones as two lines: their points, and (paint, dashed) of each."""
    lines, marks = boundaries(view, lanes)
    strokes, looks = [], []
    for line, mark in zip(lines, marks.tolist(), strict=True):
        paint = paint_of(mark)
        for side, dashed in mark_strokes(mark):
            strokes.append(offset_line(line, DOUBLE_GAP_M * side) if side else line)
            looks.append((PAINTS.index(paint) if paint in PAINTS else 0, int(dashed)))
    return strokes, looks


def _arrows(centerlines: Sequence[Floats], origin: Floats) -> NDArray[np.int32]:
    """``[L, 4]``: where each lane's direction is shown, and how long the lane is."""
    poses = np.array([middle_pose(line) for line in centerlines]).reshape(-1, 3)
    length = np.array([arc_length(line)[-1] for line in centerlines])
    parts = (
        to_int(poses[:, :2] - origin, CENTIMETRE, 2),
        to_int(poses[:, 2], MILLIRADIAN, 1),
        to_int(length, CENTIMETRE, 1),
    )
    return np.concatenate(parts, axis=1)
