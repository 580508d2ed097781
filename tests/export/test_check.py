"""The check finds what is wrong with a bundle, and cuts scenarios to the model's lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.onboard.test_runtime import alone
from trajpred.errors import DataError
from trajpred.export.check import Case, Check, _judge, check, window, within_tolerance
from trajpred.export.precision import PRECISIONS
from trajpred.lane_map import LaneMap
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.scenario import Scenario

RULE = PRECISIONS["fp32"]


@pytest.fixture
def other(checkpoint: Path) -> CheckpointPredictor:
    """The model with one matrix of its refinement changed."""
    predictor = CheckpointPredictor(checkpoint)
    with torch.no_grad():
        next(iter(predictor.model.decoder.refine_head.parameters())).mul_(1.5)
    return predictor


def test_holds_the_bundle_equal(bundle: Path, predictor: CheckpointPredictor, scenes: list[Scenario]) -> None:
    found = check(bundle, predictor, scenes[:2], RULE, fused=True)
    assert 0 < found.usual_m <= found.largest_m < 1e-3 and found.scored == 2 + 3


def test_errors_are_those_of_the_focal_agent(
    bundle: Path, predictor: CheckpointPredictor, scenes: list[Scenario]
) -> None:
    """Of the first scene, of its focal agent alone, without a map, and both."""
    scene, nothing = scenes[0], LaneMap()
    single = alone(scene)
    every = [scene, single, replace(scene, map=nothing), replace(single, map=nothing)]
    ends = [f.trajectory[f.rows(np.array([scene.focal_id]))[0], :, -1] for f in predictor(every)]
    truth = scene.tracks.position[scene.focal, -1]
    expected = np.mean([np.linalg.norm(end - truth, axis=-1).min() for end in ends])
    np.testing.assert_allclose(check(bundle, predictor, [scene], RULE).min_fde, expected, atol=1e-3)


def test_another_model_is_noticed(bundle: Path, other: CheckpointPredictor, scenes: list[Scenario]) -> None:
    with pytest.raises(DataError, match="does not do what the model does"):
        check(bundle, other, scenes[:1], RULE)
    with pytest.raises(DataError, match="does not do what the model does"):
        check(bundle, other, scenes[:1], PRECISIONS["fp16"], tolerance_m=1e-3)
    found = check(bundle, other, scenes[:1], RULE._replace(largest_m=None, metric=9.0), tolerance_m=1e3)
    assert found.usual_m > 1e-3


def judged(usual_m: float, largest_m: float, probability: float, tolerance_m: float | None) -> None:
    """What a check with these differences comes to."""
    case = Case("scene", 1, 1, usual_m, largest_m, probability)
    rule = RULE if tolerance_m is None else within_tolerance(RULE, tolerance_m)
    result = Check(rule.usual_m, (case,), usual_m, largest_m, 0, (float("nan"),) * 2)
    _judge(result, rule, Path("bundle"))


@pytest.mark.parametrize(
    ("differences", "told"),
    [
        ((0.005, 0.006, 0.0, None), "99 % of the agents lie within 0.005 m, allowed are 0.001"),
        ((0.0005, 0.02, 0.0, None), "farthest point lies 0.02 m away, allowed are 0.01 for any"),
        ((0.0005, 0.02, 0.002, 0.1), "a probability differs by 0.002, allowed are 0.001"),
        ((0.05, 1.5, 0.0, 0.1), "farthest point lies 1.5 m away, allowed are 1 for any"),
    ],
)
def test_the_limit_that_was_broken_is_named(
    differences: tuple[float, float, float, float | None], told: str
) -> None:
    with pytest.raises(DataError, match=told):
        judged(*differences)


def test_a_tolerance_is_not_capped() -> None:
    judged(0.0005, 0.009, 0.0, None)
    judged(0.05, 0.9, 0.0, 0.1)
    judged(1e-9, 0.009, 0.0, 1e-6)


def test_no_scenarios(bundle: Path, predictor: CheckpointPredictor) -> None:
    with pytest.raises(DataError, match="scenarios"):
        check(bundle, predictor, [], RULE)


def test_windows(scenes: list[Scenario]) -> None:
    scenario = scenes[1]
    assert window(scenario, 50, 60) is scenario
    part = window(scenario, 20, 30)
    part.tracks.validate()
    assert (part.num_observed, part.num_steps, part.focal_id) == (20, 50, scenario.focal_id)
    rows = np.isin(scenario.tracks.track_id, part.tracks.track_id)
    assert scenario.tracks.valid[rows, 30:80].any(axis=1).all()
    assert not scenario.tracks.valid[~rows, 30:80].any()
    np.testing.assert_array_equal(part.tracks.position, scenario.tracks.position[rows, 30:80])
    np.testing.assert_array_equal(part.timestamps_ns, scenario.timestamps_ns[30:80])
    assert window(scenario, 40, 90).num_steps == 40 + 60
    with pytest.raises(DataError, match="history"):
        window(scenario, 51, 60)


def test_what_is_not_known_is_told_as_none(scenes: list[Scenario]) -> None:
    nothing = Check(1e-3, (), 0.0, 0.0, 0, (float("nan"),) * 2)
    assert nothing.to_json()["min_fde"] is None and "minFDE" not in nothing.summary()
    known = replace(nothing, min_fde=(1.0, 1.5))
    assert known.to_json()["min_fde"] == (1.0, 1.5) and "1.5000" in known.summary()
