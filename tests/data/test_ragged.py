"""evenly_spaced equals one np.interp per polyline."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trajpred.data.ragged import Ragged, evenly_spaced


def interpolated(line: np.ndarray, points: int) -> np.ndarray:
    if not len(line):
        return np.zeros((points, 2))
    lengths = np.linalg.norm(np.diff(line, axis=0), axis=1)
    arc = np.concatenate(([0.0], np.cumsum(lengths)))
    at = np.linspace(0, arc[-1], points)
    x = np.interp(at, arc, line[:, 0])
    y = np.interp(at, arc, line[:, 1])
    return np.stack((x, y), -1)


point = st.tuples(st.integers(-100, 100), st.integers(-100, 100))


@given(st.lists(st.lists(point, max_size=6), max_size=6), st.integers(2, 12))
def test_resampling_equals_interpolation_per_polyline(
    lines: list[list[tuple[int, int]]], points: int
) -> None:
    resampled = evenly_spaced(Ragged.from_rows(lines, 2), points)
    expected = [interpolated(np.array(line, float).reshape(-1, 2), points) for line in lines]
    np.testing.assert_allclose(resampled, np.array(expected).reshape(-1, points, 2), atol=1e-8)
