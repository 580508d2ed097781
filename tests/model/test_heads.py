"""The curves of the heads."""

from __future__ import annotations

import numpy as np
import pytest
from torch import Tensor

from trajpred.model.heads import bernstein


@pytest.mark.parametrize(("degree", "steps"), [(1, 5), (8, 60)])
def test_bernstein_curves_equal_de_casteljau_s(degree: int, steps: int) -> None:
    def curve(points: np.ndarray, u: float) -> np.ndarray:
        while len(points) > 1:
            points = (1 - u) * points[:-1] + u * points[1:]
        return points[0]

    points: np.ndarray | Tensor = np.random.default_rng(0).normal(0, 5, (degree + 1, 2))
    expected = [curve(np.asarray(points), step / steps) for step in range(1, steps + 1)]
    np.testing.assert_allclose(bernstein(degree, steps).numpy() @ points, expected, atol=1e-5)
