"""Merging of modes: clusters, probabilities, and forecasts that cannot be merged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.conftest import rejects
from tests.evaluation.predictors import Scattered
from tests.scenes import straight
from trajpred.data.forecast import cluster_modes, join_modes
from trajpred.data.scenario import Scenario
from trajpred.predictors import load_ensemble, load_predictor
from trajpred.predictors.derived import merge
from trajpred.predictors.predictions_file import no_forecast


def test_distant_clusters_are_found() -> None:
    """Three clusters of four modes, in another order for each of five agents."""
    random = np.random.default_rng(0)
    centre = np.array([[0.0, 0], [50, 0], [0, 50]])
    order = np.stack([random.permutation(12) for _ in range(5)])
    end = (np.repeat(centre, 4, 0) + random.normal(0, 0.5, (12, 2)))[order]
    path = end[:, :, None] * np.linspace(0.1, 1, 10)[:, None]
    probability = random.dirichlet(np.ones(12), 5)
    share, weight = cluster_modes(path, probability, 3)
    for agent in range(5):
        bunch = order[agent] // 4
        expected = {tuple(np.flatnonzero(bunch == b)) for b in range(3)}
        assert {tuple(np.flatnonzero(row)) for row in share[agent]} == expected
        for row, p in zip(share[agent], weight[agent], strict=True):
            members = row > 0
            assert p == pytest.approx(probability[agent, members].sum())
            np.testing.assert_allclose(row[members], probability[agent, members] / p)


def test_paths_that_meet_at_the_end_are_told_apart_by_their_middle() -> None:
    """Two ways around an obstacle, to places that are nearer to each other than the ways are."""
    middle = np.array([[0.0, 4], [0, 4], [0, -4], [0, -4]])
    path = np.stack((middle / 2, middle, middle / 2, [[20.0, 1], [20, -1], [20, 1], [20, -1]]), 1)[None]
    share, _ = cluster_modes(path, np.full((1, 4), 0.25), 2)
    assert sorted((share[0] > 0).tolist()) == [[False, False, True, True], [True, True, False, False]]


@pytest.mark.parametrize("spread", [0.0, 10.0])
@pytest.mark.parametrize("modes", [1, 6])
def test_shares_and_probabilities_sum_to_one(modes: int, spread: float) -> None:
    random = np.random.default_rng(1)
    path, probability = random.normal(0, spread, (30, 12, 4, 2)), random.dirichlet(np.full(12, 0.2), 30)
    share, weight = cluster_modes(path, probability, modes)
    np.testing.assert_allclose(share.sum(2), 1)
    np.testing.assert_allclose(weight.sum(1), 1)


def test_distant_modes_join_the_nearest_of_the_last_ones() -> None:
    """Three modes that both groups found, kilometres apart: shares fall with the square of the distance."""
    end = torch.tensor([[4000.0, 0], [0, 0], [2000, 3000]])
    path = torch.cat((end, end[[2, 0, 1]]))[None, :, None] * torch.linspace(0.1, 1, 10)[:, None]
    probability = torch.tensor([[0.1, 0.2, 0.2, 0.1, 0.3, 0.1]])
    share, weight = join_modes(path, probability, 3)
    torch.testing.assert_close(weight, torch.tensor([[0.3, 0.4, 0.3]]), atol=1e-4, rtol=0)
    expected = torch.tensor(
        [[0, 0, 2 / 3, 1 / 3, 0, 0], [1 / 4, 0, 0, 0, 3 / 4, 0], [0, 2 / 3, 0, 0, 0, 1 / 3]]
    )
    torch.testing.assert_close(share[0], expected, atol=1e-3, rtol=0)


def test_joined_modes_are_smooth_where_clusters_jump() -> None:
    """A mode halfway between two others: a micrometre decides to which cluster it belongs."""
    end = np.array([[0.0, 0], [8, 0], [4, 0]])[[2, 0, 1]]
    path = np.repeat(end[None, :, None], 4, 2)
    moved = path + np.array([1e-6, 0]) * (np.arange(3) == 0)[None, :, None, None]
    p = np.array([[0.2, 0.4, 0.4]])
    assert np.abs(cluster_modes(moved, p, 2)[1] - cluster_modes(path, p, 2)[1]).max() > 0.1
    a, _ = join_modes(torch.from_numpy(path), torch.from_numpy(p), 2)
    b, _ = join_modes(torch.from_numpy(moved), torch.from_numpy(p), 2)
    torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    inputs = torch.randn(2, 5, 3, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: join_modes(x, w, 2), (inputs, weights))


def test_forecast_merged_with_itself_is_unchanged(sample_scenarios: list[Scenario]) -> None:
    one = Scattered().one(next(s for s in sample_scenarios if s.has_future))
    both = merge([one, one])
    for agent in range(len(one.track_id)):
        order = [np.lexsort(f.trajectory[agent, :, -1].T) for f in (one, both)]
        for name in ("trajectory", "probability", "speed"):
            a = getattr(one, name)[agent][order[0]]
            b = getattr(both, name)[agent][order[1]]
            np.testing.assert_allclose(a, b, atol=1e-6, err_msg=name)


def test_one_mode_is_the_mean_future(sample_scenarios: list[Scenario]) -> None:
    scenario = next(s for s in sample_scenarios if s.has_future)
    alone = load_predictor("lane_following")([scenario])[0]
    predictor = load_ensemble(["lane_following"], modes=1)
    [one] = predictor([scenario])
    mean = np.einsum("akft,ak->aft", alone.trajectory, alone.probability)
    np.testing.assert_allclose(one.trajectory[:, 0], mean, atol=1e-9)
    assert one.probability == pytest.approx(1)
    assert predictor.how == "modes merged to 1"
    for name, joint, modes in (("lane_following", False, 0), ("constant_velocity", True, 1)):
        rejects("", load_ensemble, [name], joint, modes=modes)


def test_only_common_tracks_of_one_scenario_and_horizon_are_merged() -> None:
    scenario = straight(3)
    one, omitted = Scattered().one(scenario), frozenset({str(scenario.tracks.track_id[1])})
    found = merge([one, Scattered(omitted).one(scenario)])
    assert found.track_id.tolist() == scenario.tracks.track_id[[0, 2]].tolist()
    assert merge([one, no_forecast(scenario)]).trajectory.shape == (0, 6, 60, 2)
    short = {name: getattr(one, name)[:, :, :30] for name in ("trajectory", "heading", "speed")}
    rejects("cannot be merged", merge, [one, replace(one, scenario_id="x")])
    rejects("60 and 30", merge, [one, replace(one, **short)])


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.1])
def test_modes_without_a_probability_are_not_clustered(value: float) -> None:
    path = np.random.default_rng(0).normal(size=(2, 4, 6, 2))
    probability = np.full((2, 4), 0.25)
    probability[1, 2] = value
    rejects(r"'probability'.*row 1$", cluster_modes, path, probability, 2)
