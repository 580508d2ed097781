"""Changes between successive forecasts: matching is optimal, and known changes are measured exactly."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from trajpred.errors import DataError
from trajpred.metrics import metrics_of
from trajpred.metrics.displacement import assignment, match_modes

RANDOM = np.random.default_rng(0)
#: Number of agents.
A = 4
#: Number of modes.
K = 6
#: Number of steps of a forecast.
F = 20
#: Number of steps between two forecasts.
STEPS = 5
#: Paths in absolute time: an earlier forecast covers the first F steps, one made STEPS later the last F.
PATHS = RANDOM.normal(size=(A, K, F + STEPS, 2)).cumsum(axis=2) * 10
P = RANDOM.dirichlet(np.ones(K), A)
BEFORE = PATHS[:, :, :F]
AFTER = PATHS[:, :, STEPS:]


def changes(
    after: NDArray[np.float64], p: NDArray[np.float64], p_before: NDArray[np.float64] = P
) -> dict[str, NDArray[np.float64]]:
    matched = match_modes(BEFORE, p_before, after, p, STEPS)
    return {metric.name: metric.compute(matched) for metric in metrics_of("streaming")}


@pytest.mark.parametrize("size", [1, 3, 6])
def test_assignments_have_the_least_sum(size: int) -> None:
    costs = RANDOM.exponential(size=(50, size, size))
    for cost, columns in zip(costs, assignment(costs), strict=True):
        rows, best = linear_sum_assignment(cost)
        assert sorted(columns) == list(range(size))
        assert cost[rows, columns].sum() == pytest.approx(cost[rows, best].sum())


def test_the_same_future_has_no_change_in_any_order_of_the_modes() -> None:
    order = np.stack([RANDOM.permutation(K) for _ in range(A)])
    shuffled = np.take_along_axis(AFTER, order[..., None, None], 1)
    for name, values in changes(shuffled, np.take_along_axis(P, order, 1)).items():
        assert values == pytest.approx(np.zeros(A)), name
    tied = np.full((A, K), 1 / K)
    assert not changes(shuffled, tied, tied)["switches"].any(), "of equal probabilities each is the largest"


def test_known_changes_are_measured() -> None:
    shift = np.array([[3.0, 4.0]]) * (np.arange(K) == 2)[:, None, None]  # one mode moves by 5 m
    measured = changes(AFTER + shift, P)
    assert measured["mode displacement"] == pytest.approx(np.full(A, 5 / K))
    assert measured["weighted displacement"] == pytest.approx(5 * P[:, 2])
    before = np.array([[0.5, 0.3, 0.2]] * A)
    after = np.array([[0.3, 0.4, 0.3]] * A)
    matched = match_modes(BEFORE[:, :3], before, AFTER[:, :3], after, STEPS)
    assert matched.switched().tolist() == [1] * A
    assert matched.probability_change() == pytest.approx(np.full(A, 0.2))


def test_only_the_six_most_probable_modes_count() -> None:
    far = np.concatenate((AFTER, AFTER[:, :1] + 1e3), axis=1)
    p = np.concatenate((P, np.zeros((A, 1))), axis=1)
    matched = match_modes(np.concatenate((BEFORE, BEFORE[:, :1]), axis=1), p, far, p, STEPS)
    assert matched.displacement() == pytest.approx(np.zeros(A))


def test_forecasts_that_cannot_be_matched_are_rejected() -> None:
    with pytest.raises(DataError, match="6 and 5 modes"):
        match_modes(BEFORE, P, AFTER[:, :5], P[:, :5], STEPS)
    with pytest.raises(DataError, match="20 steps made 20 steps apart have none in common"):
        match_modes(BEFORE, P, AFTER, P, F)
