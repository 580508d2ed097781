"""Outlines and polylines against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from trajpred.viz.shapes import RECTANGLE, place, zebra_bars


def test_box_corners_closed_form() -> None:
    corners = place(RECTANGLE, np.array([[10.0, 20.0]]), np.array([np.pi / 6]), np.array([[4.0, 2.0]]))
    c, s = np.sqrt(3) / 2, 0.5
    expected = [
        [2 * c - s, 2 * s + c],
        [-2 * c - s, -2 * s + c],
        [-2 * c + s, -2 * s - c],
        [2 * c + s, 2 * s - c],
    ]
    np.testing.assert_allclose(corners[0] - [10.0, 20.0], expected)


def test_zebra_bars_cover_half_of_the_crossing() -> None:
    """Also where the second side runs against the first: bars must not twist."""
    edge1, edge2 = np.array([[0.0, 0.0], [12.0, 0.0]]), np.array([[12.0, 4.0], [0.0, 4.0]])
    bars = zebra_bars(edge1, edge2)
    x, y = bars[..., 0], bars[..., 1]
    area = np.abs((x * np.roll(y, -1, 1) - y * np.roll(x, -1, 1)).sum(1)) / 2
    assert area.sum() == pytest.approx(0.5 * 12 * 4)
