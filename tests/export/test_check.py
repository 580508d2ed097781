"""The check finds bundles that differ from the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.features.scenes import alone
from trajpred import resample
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.export.check import TOLERANCE_M, Case, Check, check, require_limits
from trajpred.predictors.checkpoint import CheckpointPredictor


def test_equal_bundle_passes_with_the_focal_errors_of_all_cases(
    bundle: Path, predictor: CheckpointPredictor, scenes: list[Scenario]
) -> None:
    """Of the scene, its focal agent alone, without a map, and both."""
    scene = scenes[0]
    empty = LaneMap()
    cases = [scene, alone(scene), replace(scene, map=empty), replace(alone(scene), map=empty)]
    truth = scene.tracks.position[scene.focal, -1]
    errors = []
    for forecast in predictor(cases):
        [focal] = forecast.rows(np.array([scene.focal_id]))
        end = forecast.trajectory[focal, :, -1]
        errors.append(np.linalg.norm(end - truth, axis=-1).min())
    result = check(bundle, predictor, [scene], fused=True)
    assert 0 < result.usual <= result.largest < 1e-3
    assert result.scored == 4
    np.testing.assert_allclose(result.min_fde, np.mean(errors), atol=1e-3)
    assert f"minFDE {result.min_fde[0]:.4f} m in PyTorch" in result.summary()


def test_another_model_is_detected(bundle: Path, checkpoint: Path, scenes: list[Scenario]) -> None:
    other = CheckpointPredictor(checkpoint)
    with torch.no_grad():
        next(iter(other.model.decoder.refine_head.parameters())).mul_(1.5)
    with pytest.raises(DataError, match="differs from the model"):
        check(bundle, other, scenes[:1])
    with pytest.raises(DataError, match="scenarios"):
        check(bundle, other, [])


@pytest.mark.parametrize(
    ("usual", "largest", "probability", "min_fde", "tolerance_m", "message"),
    [
        (0.005, 0.006, 0.0, 1.0, TOLERANCE_M, "are within 0.005 m, the limit is 0.001; --tolerance-m sets"),
        (0.0005, 0.02, 0.0, 1.0, TOLERANCE_M, "distance is 0.02 m, the limit is 0.01; --tolerance-m"),
        (0.0005, 0.02, 0.002, 1.0, 0.1, "a probability differs by 0.002, the limit is 0.001$"),
        (0.0, 0.0, 0.0, 1.01, TOLERANCE_M, "focal minFDE increases to 1.01 m, the limit is 1.002"),
        (np.nan, 0.0, 0.0, 1.0, TOLERANCE_M, "within nan m"),
        (0.0, 0.0, np.nan, 1.0, TOLERANCE_M, "a probability differs by nan"),
        (0.0005, 0.009, 0.0005, 1.001, TOLERANCE_M, ""),
        (1e-9, 0.009, 0.0, 1.0, 1e-6, ""),
    ],
)
def test_exceeded_limit_is_named(
    usual: float, largest: float, probability: float, min_fde: float, tolerance_m: float, message: str
) -> None:
    """Whichever scene exceeds it."""
    cases = (Case("first", 1, 1, largest, 0.0), Case("second", 1, 1, largest, probability))
    result = Check(tolerance_m, "m", cases, usual, largest, 1, (1.0, min_fde))
    if message:
        with pytest.raises(DataError, match=message):
            require_limits(result, Path("bundle"))
    else:
        require_limits(result, Path("bundle"))
        require_limits(replace(result, scored=0, min_fde=None), Path("bundle"))


def test_scenes_of_any_window_and_rate_are_compared(
    bundle: Path, predictor: CheckpointPredictor, scenes: list[Scenario]
) -> None:
    slow = resample(scenes[0], 0.5)
    short = replace(scenes[0], num_observed=8)
    result = check(bundle, predictor, predictor.on_model_steps([slow, short]))
    assert len(result.cases) == 5
    assert result.scored == 4
