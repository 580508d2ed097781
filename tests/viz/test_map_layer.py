"""Lane marks, crossings and tints against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from tests.viz.scenes import ORIGIN, artists, make_map, text
from trajpred.data.lane_map import MARK_TYPES, LaneMap
from trajpred.viz import draw_lane_map, legend_alone
from trajpred.viz.map_layer import boundaries, crossings, lane_line, offset_line, zebra_bars
from trajpred.viz.view import View


def area(polygon: np.ndarray) -> float:
    local = polygon - polygon[0]
    x = local[:, 0]
    y = local[:, 1]
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def test_shared_boundary_is_drawn_once_and_paint_wins() -> None:
    """Drawn twice and out of step, a dashed line would look solid; intersections have no unpainted edges.

    Double lines are offset away from their lane.
    """
    lanes = make_map()
    lines, marks = boundaries(View(ORIGIN, 100.0, 1.0), lanes)
    names = np.array(MARK_TYPES)[marks].tolist()
    assert sorted(names) == ["DASHED_WHITE", "DOUBLE_SOLID_YELLOW"]
    dashed = lines[names.index("DASHED_WHITE")]
    double = lines[names.index("DOUBLE_SOLID_YELLOW")]
    assert (dashed[:, 1] - ORIGIN[1] == 0.0).all()
    assert (double[:, 1] - ORIGIN[1] == -4.0).all()
    # The lane lies at -2, to the right of its boundary at -4 as returned; side +1 is away from it.
    np.testing.assert_allclose(offset_line(double, 0.5)[:, 1] - ORIGIN[1], -4.5)
    assert not boundaries(View(ORIGIN + 500.0, 100.0, 1.0), lanes)[0], "out of view"


def test_bars_cover_half_of_a_crossing_whose_sides_run_in_opposite_directions() -> None:
    lanes = make_map()
    edge1 = np.array([[0.0, 0.0], [12.0, 0.0]])
    edge2 = np.array([[12.0, 4.0], [0.0, 4.0]])
    painted = sum(abs(area(bar)) for bar in zebra_bars(edge1, edge2))
    assert painted == pytest.approx(0.5 * 12 * 4)
    [outline], bars = crossings(View(ORIGIN, 100.0, 1.0), lanes)
    assert abs(area(outline)) == pytest.approx(40.0)
    assert len(bars) == 8
    np.testing.assert_allclose(lane_line(lanes, 2) - ORIGIN, [[12.0, -5.0], [12.0, 5.0]])


def test_a_map_alone_shows_links_ends_and_its_largest_part() -> None:
    """Two lanes that follow each other, and a single one 2 km away; a figure has the width of a column."""
    lines = [[[0, 0], [50, 0]], [[50, 0], [90, 0]], [[2000, 0], [2050, 0]]]
    lanes = LaneMap.from_centerlines(lines, successors=[[1], [], []])
    figure = draw_lane_map(lanes, title="town", frame="UTM zone 32N")
    [link] = artists(figure, "link to a successor")
    [end] = artists(figure, "end without successor")
    np.testing.assert_array_equal(link.get_xydata(), [[50, 0]])
    np.testing.assert_array_equal(end.get_xydata(), [[90, 0]])
    assert text(figure, "title") == "town · the largest of 2 parts"
    assert text(figure, "subtitle") == "UTM zone 32N · middle at x = 45.0 m, y = 0.0 m"
    legend = legend_alone(figure)
    assert legend.get_figheight() < 1
    assert not artists(legend, "title")[0].get_visible()
    far = draw_lane_map(lanes, center=(2025.0, 0.0), radius_m=60.0)
    np.testing.assert_array_equal(artists(far, "end without successor")[0].get_xydata(), [[2050, 0]])
    column = draw_lane_map(lanes, title="town", width_mm=85.0)
    assert column.get_figwidth() * 25.4 == pytest.approx(85.0)
    assert artists(column, "title")[0].get_fontsize() == artists(figure, "title")[0].get_fontsize()
    plain = draw_lane_map(lanes, title="town", width_mm=85.0, plain=True)
    assert plain.get_figheight() == pytest.approx(plain.get_figwidth())
    assert not artists(plain, "title")
    assert plain.axes[0].get_legend() is None
