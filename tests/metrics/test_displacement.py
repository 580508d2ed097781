"""Errors of modes, joint futures and changes between forecasts: against av2, plain programs, closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from av2.datasets.motion_forecasting.eval import metrics as av2
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from tests.conftest import rejects
from trajpred.metrics import METRICS, Column, agent_metrics, joint_metrics, metrics_of
from trajpred.metrics.displacement import assignment, match_modes, missed, with_brier

#: In the order of :func:`by_av2`.
NAMES = ("minADE", "minFDE", "MR", "ADE-of-best-FDE", "brier-minFDE", "brier-minADE")


def random_case(seed: int, A: int = 5, K: int = 6, F: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    """Trajectories a few metres off a target somewhere in a city, and probabilities."""
    draw = np.random.default_rng(seed)
    target = draw.normal(0, 30, (A, F, 2)) + draw.normal(0, 1000, 2)
    trajectory = target[:, None] + draw.normal(0, 2, (A, K, F, 2))
    probability = draw.dirichlet(np.ones(K), A)
    return torch.from_numpy(trajectory), torch.from_numpy(probability), torch.from_numpy(target)


def all_valid(target: Tensor) -> Tensor:
    return torch.ones(target.shape[:2], dtype=torch.bool)


def by_av2(
    trajectory: NDArray[np.float64], probability: NDArray[np.float64], target: NDArray[np.float64]
) -> list[float]:
    """The metrics :data:`NAMES` of one agent."""
    ade = av2.compute_ade(trajectory, target)
    fde = av2.compute_fde(trajectory, target)
    is_missed = av2.compute_is_missed_prediction(trajectory, target)
    brier = av2.compute_brier_fde(trajectory, target, probability)[fde.argmin()]
    brier_ade = av2.compute_brier_ade(trajectory, target, probability)[ade.argmin()]
    return [ade.min(), fde.min(), float(is_missed.all()), ade[fde.argmin()], brier, brier_ade]


def by_us(trajectory: Tensor, probability: Tensor, target: Tensor, valid: Tensor) -> NDArray[np.float64]:
    """``[A, 6]``: the same for all agents at once, over all modes."""
    k = trajectory.shape[1]
    columns = [Column(METRICS[name], k) for name in NAMES]
    metrics = agent_metrics(trajectory, probability, target, valid, columns=columns)
    return torch.stack([metrics[f"{name}{k}"] for name in NAMES], dim=1).numpy()


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.integers(1, 8), st.integers(1, 9))
def test_metrics_of_random_futures_equal_av2(seed: int, A: int, K: int, F: int) -> None:
    """Partly valid futures, too: with the invalid steps cut out, av2 computes what we define."""
    trajectory, probability, target = random_case(seed, A, K, F)
    valid = torch.from_numpy(np.random.default_rng(seed).random((A, F)) < 0.6)
    full = by_us(trajectory, probability, target, all_valid(target))
    partial = by_us(trajectory, probability, target.masked_fill(~valid[..., None], torch.nan), valid)
    assert full.shape == (A, 6)
    for i, steps in enumerate(valid.numpy()):
        path = trajectory[i].numpy()
        p = probability[i].numpy()
        truth = target[i].numpy()
        np.testing.assert_allclose(full[i], by_av2(path, p, truth), rtol=1e-12, atol=1e-12)
        if steps.any():
            expected = by_av2(path[:, steps], p, truth[steps])
            np.testing.assert_allclose(partial[i], expected, rtol=1e-12, atol=1e-12)
        else:
            assert np.isnan(partial[i]).all()


def test_missed_is_strictly_farther_than_the_threshold() -> None:
    fde = torch.tensor([2.0, 2.0000002, 1.0, torch.nan])
    assert missed(fde).tolist()[:3] == [0, 1, 0]
    assert missed(fde)[3].isnan()


@pytest.mark.parametrize("probability", [[0.3, 0.7], [0.7, 0.3], [0.1, 0.2]])
def test_brier_score_uses_the_most_probable_of_equal_modes_as_given(probability: list[float]) -> None:
    expected = (1 - max(probability)) ** 2  # probabilities need not sum to 1
    assert with_brier(torch.zeros(1, 2), torch.tensor([probability])).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("probability", "order"),
    [
        ([0.1, 0.4, 0.1, 0.4], [1, 3, 0, 2]),
        # Many equal values: an unstable sort passes by luck with four.
        ([1 / 300] * 300, list(range(300))),
    ],
)
def test_top_modes_are_the_likeliest_of_equals_the_first(probability: list[float], order: list[int]) -> None:
    """Only mode i of agent i is right: for each k those agents are right whose mode is among the top k."""
    K = len(order)
    p = torch.tensor(probability)
    trajectory = (1 - torch.eye(K))[..., None, None].expand(K, K, 1, 2)
    target = torch.zeros(K, 1, 2)
    metrics = agent_metrics(
        trajectory=trajectory,
        probability=p.expand(K, K),
        target=target,
        valid=all_valid(target),
        columns=[Column(METRICS[name], k) for k in range(1, K + 3) for name in ("minFDE", "brier-minFDE")],
    )
    for k in range(1, K + 3):  # with fewer than k modes, all of them
        right = (metrics[f"minFDE{k}"] == 0).nonzero()[:, 0]
        assert right.tolist() == sorted(order[:k])
    torch.testing.assert_close(metrics["brier-minFDE3"][order[:3]], (1 - p[order[:3]]) ** 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heading_errors_are_of_the_mode_with_the_best_endpoint(dtype: torch.dtype) -> None:
    trajectory, probability, target = random_case(1)
    trajectory = trajectory.to(dtype)
    target = target.to(dtype)
    draw = np.random.default_rng(1)
    heading = draw.uniform(-3, 3, (5, 6, 7))
    truth = draw.uniform(-3, 3, (5, 7))
    truth[draw.random((5, 7)) < 0.3] = np.nan
    valid = draw.random((5, 7)) < 0.7
    valid[0] = False
    inputs = (trajectory, probability.to(dtype), target, torch.from_numpy(valid), torch.from_numpy(heading))
    metrics = agent_metrics(*inputs, target_heading=torch.from_numpy(truth))
    assert "average heading error6" not in agent_metrics(*inputs), "the true headings are unknown"
    assert metrics["minADE1"].dtype == dtype
    assert metrics["average heading error6"][0].isnan()
    for i in range(1, 5):
        last = np.flatnonzero(valid[i])[-1]
        offset = (trajectory[i, :, last] - target[i, last]).double()
        best = int(offset.norm(dim=-1).argmin())
        turn = heading[i, best] - truth[i]
        error = np.abs(np.arctan2(np.sin(turn), np.cos(turn)))
        average = np.nanmean(error[valid[i]])
        assert metrics["average heading error6"][i].item() == pytest.approx(average, nan_ok=True)
        assert metrics["final heading error6"][i].item() == pytest.approx(error[last], nan_ok=True)


def joint_by_av2(trajectory: np.ndarray, probability: np.ndarray, target: np.ndarray) -> dict[str, float]:
    """The metrics of one scene."""
    fde = av2.compute_world_fde(trajectory, target)
    best = int(fde.argmin())
    return {
        "avgMinADE": av2.compute_world_ade(trajectory, target).min(),
        "avgMinFDE": fde.min(),
        "avgBrierMinFDE": av2.compute_world_brier_fde(trajectory, target, probability)[best],
        "actorMR": av2.compute_world_misses(trajectory, target)[:, best].mean(),
        "actorCR": av2.compute_world_collisions(trajectory)[:, best].mean(),
    }


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("apart", [1.0, 10.0])
def test_joint_metrics_equal_av2(seed: int, apart: float) -> None:
    """The six most probable joint modes count; ``apart`` determines how often agents collide and miss."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(1, 7, 5)
    K = int(draw.integers(1, 25))
    F = int(draw.integers(1, 9))
    target = draw.normal(0, apart, (sizes.sum(), F, 2))
    trajectory = target[:, None] + draw.normal(0, 1.5, (sizes.sum(), K, F, 2))
    probability = draw.dirichlet(np.ones(K), len(sizes))
    scene = np.repeat(np.arange(len(sizes)), sizes)
    metrics = joint_metrics(
        trajectory=torch.from_numpy(trajectory),
        probability=torch.from_numpy(probability),
        target=torch.from_numpy(target),
        valid=torch.ones(target.shape[:2], dtype=torch.bool),
        scene=torch.from_numpy(scene),
    )
    for i in range(len(sizes)):
        top = sorted(range(K), key=lambda mode: -probability[i, mode])[:6]
        expected = joint_by_av2(trajectory[scene == i][:, top], probability[i, top], target[scene == i])
        of_scene = {name: values[i].item() for name, values in metrics.items()}
        assert of_scene == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("probability, misses", [((0.2, 0.8), 0.0), ((0.8, 0.2), 0.5)])
def test_of_equal_joint_modes_the_likelier_counts(probability: tuple[float, float], misses: float) -> None:
    """Final errors of 3 and 1 m in the first joint mode, of 2 and 2 m in the second; 20 m apart."""
    path = torch.tensor([[3.0, 2.0], [21.0, 22.0]])[..., None, None] * torch.tensor([1.0, 0.0])
    target = torch.tensor([[[0.0, 0.0]], [[20.0, 0.0]]])
    scene = torch.zeros(2, dtype=torch.int64)
    metrics = joint_metrics(path, torch.tensor([probability]), target, all_valid(target), scene)
    assert metrics["actorMR"].item() == misses
    assert metrics["avgBrierMinFDE"].item() == pytest.approx(2.0 + 0.2**2)


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
    rejects("6 and 5 modes", match_modes, BEFORE, P, AFTER[:, :5], P[:, :5], STEPS)
    rejects("20 steps made 20 steps apart have none in common", match_modes, BEFORE, P, AFTER, P, F)
