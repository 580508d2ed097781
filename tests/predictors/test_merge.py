"""Merging futures: what belongs together becomes one, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.evaluation.predictors import Scattered
from tests.graph.scenes import straight
from trajpred.errors import DataError
from trajpred.predictors.ensemble import cluster, merge
from trajpred.predictors.predictions_file import no_forecast
from trajpred.scenario import Scenario

RANDOM = np.random.default_rng(0)


def test_clusters_far_apart_are_found() -> None:
    """Three bunches of four, each of one agent in another order."""
    centre = np.array([[0.0, 0], [50, 0], [0, 50]])
    order = np.stack([RANDOM.permutation(12) for _ in range(5)])
    end = (np.repeat(centre, 4, 0) + RANDOM.normal(0, 0.5, (12, 2)))[order]
    probability = RANDOM.dirichlet(np.ones(12), 5)
    share, weight = cluster(end, probability, 3)
    for agent in range(5):
        bunch = order[agent] // 4
        expected = {tuple(np.flatnonzero(bunch == b)) for b in range(3)}
        assert {tuple(np.flatnonzero(row)) for row in share[agent]} == expected
        for row, p in zip(share[agent], weight[agent], strict=True):
            members = row > 0
            assert p == pytest.approx(probability[agent, members].sum())
            np.testing.assert_allclose(row[members], probability[agent, members] / p)


@pytest.mark.parametrize("modes", [1, 4, 6])
def test_shares_and_probabilities_sum_to_one(modes: int) -> None:
    end, probability = RANDOM.normal(0, 10, (30, 12, 2)), RANDOM.dirichlet(np.full(12, 0.2), 30)
    share, weight = cluster(end, probability, modes)
    np.testing.assert_allclose(share.sum(2), 1)
    np.testing.assert_allclose(weight.sum(1), 1)


def test_as_many_clusters_as_places_are_those_places() -> None:
    """Twelve modes at six places: no cluster mixes two of them, whatever the probabilities."""
    place = 20 * RANDOM.permutation(60).reshape(10, 6, 1) * np.ones(2)
    share, _ = cluster(np.concatenate((place, place), 1), RANDOM.dirichlet(np.ones(12), 10), 6)
    found = np.sort((share @ np.concatenate((place, place), 1))[..., 0], 1)
    np.testing.assert_allclose(found, np.sort(place[..., 0], 1))


def test_all_modes_at_one_place_stay_there() -> None:
    share, weight = cluster(np.ones((2, 12, 2)), np.full((2, 12), 1 / 12), 6)
    np.testing.assert_allclose(share.sum(2), 1)
    np.testing.assert_allclose(weight.sum(1), 1)


def test_a_forecast_merged_with_itself_is_itself(sample_scenarios: list[Scenario]) -> None:
    one = Scattered().one(next(s for s in sample_scenarios if s.has_future))
    both = merge([one, one])
    for agent in range(len(one.track_id)):
        order = np.lexsort(one.trajectory[agent, :, -1].T), np.lexsort(both.trajectory[agent, :, -1].T)
        for name in ("trajectory", "probability", "speed"):
            a, b = (getattr(f, name)[agent][o] for f, o in zip((one, both), order, strict=True))
            np.testing.assert_allclose(a, b, atol=1e-6, err_msg=name)


def test_tracks_that_one_does_not_know_are_left_out() -> None:
    scenario = straight(3)
    some, all_of_them = Scattered(frozenset({scenario.tracks.track_id[1]})), Scattered()
    found = merge([all_of_them.one(scenario), some.one(scenario)])
    assert found.track_id.tolist() == scenario.tracks.track_id[[0, 2]].tolist()


def test_other_scenarios_and_horizons_do_not_merge() -> None:
    one = Scattered().one(straight(2))
    with pytest.raises(DataError, match="do not merge"):
        merge([one, replace(one, scenario_id="other")])
    short = {name: getattr(one, name)[:, :, :30] for name in ("trajectory", "heading", "speed")}
    with pytest.raises(DataError, match="60 and 30 steps"):
        merge([one, replace(one, **short)])


def test_forecasts_without_a_common_track_merge_to_none() -> None:
    scenario = straight(2)
    found = merge([Scattered().one(scenario), no_forecast(scenario)])
    assert found.track_id.tolist() == [] and found.trajectory.shape == (0, 6, 60, 2)
