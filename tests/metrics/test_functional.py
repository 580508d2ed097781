"""Each agent's metrics against av2's own, a plain loop, and cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from av2.datasets.motion_forecasting.eval import metrics as av2
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from trajpred.metrics import agent_metrics
from trajpred.metrics.displacement import final_error, missed, with_brier
from trajpred.predictors.predictor import BASELINES
from trajpred.scenario import Scenario

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
    """minADE, minFDE, missed, ADE of the best endpoint, brier-minFDE and -minADE of one agent, by av2."""
    ade, fde = av2.compute_ade(trajectory, target), av2.compute_fde(trajectory, target)
    missed = av2.compute_is_missed_prediction(trajectory, target)
    brier = av2.compute_brier_fde(trajectory, target, probability)[fde.argmin()]
    brier_ade = av2.compute_brier_ade(trajectory, target, probability)[ade.argmin()]
    return [ade.min(), fde.min(), float(missed.all()), ade[fde.argmin()], brier, brier_ade]


def by_us(
    trajectory: Tensor, probability: Tensor, target: Tensor, valid: Tensor, *, k: int | None = None
) -> Tensor:
    """``[A, 6]``: the same, all agents at once; of the ``k`` most probable modes, or of all."""
    k = trajectory.shape[1] if k is None else k
    found = agent_metrics(trajectory, probability, target, valid, ks=[k], names=NAMES)
    return torch.stack([found[f"{name}{k}"] for name in NAMES], dim=1)


def one_right_mode(probability: Tensor) -> dict[str, Tensor]:
    """Final errors, without and with Brier's, of K agents with the same probabilities ``[K]``: ``[K]`` each.

    Only mode i of agent i is right: for each k those agents are right whose mode is among the k that count.
    """
    K = len(probability)
    trajectory = (1 - torch.eye(K))[..., None, None].expand(K, K, 1, 2)
    target = torch.zeros(K, 1, 2)
    arguments = trajectory, probability.expand(K, K), target, all_valid(target)
    return agent_metrics(*arguments, ks=range(1, K + 1), names=("minFDE", "brier-minFDE"))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 8), st.integers(1, 9))
def test_equals_av2(seed: int, A: int, K: int, F: int) -> None:
    trajectory, probability, target = random_case(seed, A, K, F)
    expected = [by_av2(*(x[i].numpy() for x in (trajectory, probability, target))) for i in range(A)]
    found = by_us(trajectory, probability, target, all_valid(target))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("baseline", BASELINES)
def test_equals_av2_on_real_focal_tracks(sample_scenarios: list[Scenario], baseline: str) -> None:
    judged = [scenario for scenario in sample_scenarios if scenario.has_future]
    assert len(judged) > 1
    for scenario in judged:
        forecast = BASELINES[baseline](scenario)
        row = forecast.rows(np.array([scenario.focal_id]))[0]
        target = scenario.tracks.position[scenario.focal, scenario.num_observed :]
        arrays = forecast.trajectory[row], forecast.probability[row], target
        modes, p, truth = (torch.from_numpy(x)[None] for x in arrays)
        found = by_us(modes, p, truth, all_valid(truth))
        np.testing.assert_allclose(found[0].numpy(), by_av2(*arrays), rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_partially_valid_futures_equal_a_plain_loop(seed: int) -> None:
    trajectory, probability, target = random_case(seed, A=12)
    valid = torch.from_numpy(np.random.default_rng(seed).random((12, 7)) < 0.3)
    valid[0] = False
    target[~valid] = torch.nan  # padding must not matter, whatever it is
    found = by_us(trajectory, probability, target, valid)
    for i, steps in enumerate(valid.numpy()):
        if not steps.any():
            assert found[i].isnan().all()
            continue
        # With the invalid steps cut out, av2's mean and last step are the ones we promise.
        arrays = trajectory[i][:, steps].numpy(), probability[i].numpy(), target[i][steps].numpy()
        np.testing.assert_allclose(found[i].numpy(), by_av2(*arrays), rtol=1e-12)


def test_min_ade_is_the_true_minimum_not_that_of_the_best_endpoint() -> None:
    # Mode 0 is near all the way and ends 1 m off; mode 1 strays by 5 m and ends exactly right.
    trajectory = torch.tensor([[[[0.0, 0.0], [0.0, 1.0]], [[5.0, 0.0], [0.0, 0.0]]]])
    target = torch.zeros(1, 2, 2)
    found = agent_metrics(trajectory, torch.full((1, 2), 0.5), target, all_valid(target), ks=[2])
    assert found["minADE2"].tolist() == [0.5]
    assert found["minFDE2"].tolist() == [0.0]


def test_missed_means_strictly_farther_than_the_threshold() -> None:
    trajectory = torch.tensor([2.0, 2.0000002, 1.0])[:, None, None, None] * torch.tensor([1.0, 0.0])
    target = torch.zeros(3, 1, 2)
    found = agent_metrics(trajectory, torch.ones(3, 1), target, all_valid(target), ks=[1])
    assert found["MR1"].tolist() == [0, 1, 0]
    least = final_error(trajectory, target, all_valid(target)).amin(1)
    assert missed(least, threshold=0.5).tolist() == [1, 1, 1]


def test_brier_takes_the_probability_of_the_best_mode_as_given() -> None:
    trajectory = torch.tensor([3.0, 1.0])[None, :, None, None] * torch.tensor([1.0, 0.0])
    target = torch.zeros(1, 1, 2)
    probability = torch.tensor([[0.7, 0.2]])  # does not sum to 1 and is not made to
    found = agent_metrics(trajectory, probability, target, all_valid(target), ks=[2])
    assert found["brier-minFDE2"].item() == pytest.approx(1.0 + 0.8**2)


@pytest.mark.parametrize("probability", [[0.3, 0.7], [0.7, 0.3]])
def test_brier_of_equally_good_modes_takes_the_most_probable(probability: list[float]) -> None:
    trajectory, target = torch.ones(1, 2, 1, 2), torch.ones(1, 1, 2)
    found = agent_metrics(trajectory, torch.tensor([probability]), target, all_valid(target), ks=[2])
    assert found["brier-minFDE2"].item() == pytest.approx(0.3**2)
    # Above the modes are sorted first; their order must not matter either.
    assert with_brier(torch.zeros(1, 2), torch.tensor([probability])).item() == pytest.approx(0.3**2)


@pytest.mark.parametrize(
    ("probability", "order"),
    [
        ([0.1, 0.4, 0.1, 0.4], [1, 3, 0, 2]),
        ([0.25] * 4, [0, 1, 2, 3]),
        # Many equal values: an unstable sort passes by luck with four.
        ([1 / 300] * 300, list(range(300))),
    ],
)
def test_the_most_probable_modes_count_and_of_equals_the_lower_index(
    probability: list[float], order: list[int]
) -> None:
    found = one_right_mode(torch.tensor(probability))
    for k in range(1, len(order) + 1):
        assert (found[f"minFDE{k}"] == 0).nonzero()[:, 0].tolist() == sorted(order[:k])


def test_fewer_modes_keep_their_own_probabilities() -> None:
    found = one_right_mode(torch.tensor([0.1, 0.4, 0.1, 0.4]))["brier-minFDE3"]
    torch.testing.assert_close(found[[1, 3, 0]], (1 - torch.tensor([0.4, 0.4, 0.1])) ** 2)
    found = one_right_mode(torch.full((4,), 0.25))["brier-minFDE3"]
    torch.testing.assert_close(found[:3], torch.full((3,), 0.75**2))


def test_all_modes_count_where_there_are_fewer_than_k() -> None:
    trajectory, probability, target = random_case(0, K=3)
    found = by_us(trajectory, probability, target, all_valid(target), k=6)
    assert found.shape == (5, 6)
    torch.testing.assert_close(found, by_us(trajectory, probability, target, all_valid(target), k=3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_the_dtype(dtype: torch.dtype) -> None:
    trajectory, probability, target = (x.to(dtype) for x in random_case(1))
    assert by_us(trajectory, probability, target, all_valid(target)).dtype == dtype


def test_no_agents() -> None:
    trajectory, probability, target = random_case(2, A=0)
    assert by_us(trajectory, probability, target, all_valid(target), k=1).shape == (0, 6)
