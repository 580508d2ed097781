"""Perturbations: what they take away is gone, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.graph.conftest import store_path  # noqa: F401
from trajpred.errors import DataError
from trajpred.evaluation import evaluate
from trajpred.evaluation.report import degradation
from trajpred.predictors import load_predictor
from trajpred.predictors.perturbed import PERTURBATIONS, PerturbedPredictor, perturbed
from trajpred.scenario import Scenario, TrackCategory
from trajpred.store import ScenarioStore


@pytest.fixture
def scenario(sample_scenarios: list[Scenario]) -> Scenario:
    return next(s for s in sample_scenarios if s.has_future and len(s.tracks) > 20)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_what_is_worse_is_a_scenario_and_always_the_same(scenario: Scenario, name: str) -> None:
    one, other = (PERTURBATIONS[name](scenario).validate() for _ in range(2))
    for field in ("position", "valid", "velocity", "heading"):
        a, b, before = (getattr(s.tracks, field) for s in (one, other, scenario))
        assert np.array_equal(a, b)
        future, rows = scenario.num_observed, [scenario.tracks.index(n) for n in one.tracks.track_id]
        assert np.array_equal(a[:, future:], before[rows, future:]), "the future is not touched"
        assert set(scenario.tracks.track_id[scenario.tracks.valid[:, 50:].any(1)]) <= set(one.tracks.track_id)


def test_no_map_and_a_short_history(scenario: Scenario) -> None:
    assert len(PERTURBATIONS["no-map"](scenario).map) == 0 < len(scenario.map)
    after, before = PERTURBATIONS["short-history"](scenario).tracks, scenario.tracks
    late = before.valid[:, 40:].any(1)
    assert after.track_id.tolist() == before.track_id[late].tolist()
    assert not after.valid[:, :40].any() and np.array_equal(after.valid[:, 40:], before.valid[late, 40:])


def test_half_of_the_others_go_unseen(scenario: Scenario) -> None:
    tracks, after = scenario.tracks, PERTURBATIONS["fewer-agents"](scenario).tracks
    left = after.track_id[after.valid[:, :50].any(1)]
    gone = tracks.valid[:, :50].any(1) & ~np.isin(tracks.track_id, left)
    others = tracks.category < TrackCategory.SCORED
    assert not gone[~others].any() and 0.25 < gone[others].mean() < 0.75


def test_noise_is_as_large_as_said(scenario: Scenario) -> None:
    tracks, after = scenario.tracks, PERTURBATIONS["noise"](scenario).tracks
    off = (after.position - tracks.position)[:, :50][tracks.valid[:, :50]]
    assert off.std() == pytest.approx(0.2, rel=0.05) and abs(off.mean()) < 0.02
    assert (after.position[:, :50][~tracks.valid[:, :50]] == 0).all()


def test_what_does_not_look_at_the_map_does_not_miss_it(store_path: Path) -> None:  # noqa: F811
    store, steady = ScenarioStore(store_path, "val"), load_predictor("constant_velocity")
    before = evaluate(steady, store, progress=False)
    blind, noisy = (
        evaluate(PerturbedPredictor(steady, name), store, progress=False) for name in ("no-map", "noise")
    )
    assert blind.metrics == before.metrics and blind.predictor == "constant_velocity, no-map"
    assert noisy.metrics["all"]["minADE6"] > before.metrics["all"]["minADE6"]
    [table] = degradation([before, blind], "focal")
    assert [cell.split()[1] for cell in table.rows[1][2:]] == ["(+0%)"] * 4


def test_unknown_names_are_refused() -> None:
    steady = load_predictor("constant_velocity")
    assert len(perturbed(steady, "all")) == len(PERTURBATIONS) and perturbed(steady, None) == []
    with pytest.raises(DataError, match="'fog' is none of no-map"):
        perturbed(steady, ["noise", "fog"])
