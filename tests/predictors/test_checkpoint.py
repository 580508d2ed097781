"""Predictors of models, and loading of any predictor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.features.scenes import in_a_mirror
from tests.predictors.saved import saved
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import TrackCategory
from trajpred.errors import DataError
from trajpred.predictors import CheckpointPredictor, EnsemblePredictor, load_ensemble, load_predictor


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> CheckpointPredictor:
    return CheckpointPredictor(checkpoint)


def test_mirrored_model_equals_the_model_on_mirrored_scenes(
    model: CheckpointPredictor, sample_scenarios: list[Scenario]
) -> None:
    scenes = sample_scenarios[:2]
    plain, found = model(scenes), model.mirrored()(scenes)
    expected = model([in_a_mirror(scene) for scene in scenes])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.trajectory, other.trajectory * [1, -1], atol=5e-3)
        turned = np.exp(1j * one.heading) * np.exp(1j * other.heading)
        np.testing.assert_allclose(turned, 1, atol=5e-2)
        np.testing.assert_allclose(one.probability, other.probability, atol=1e-4)
    assert np.abs(found[0].trajectory - plain[0].trajectory).max() > 0.1, "mirroring must matter"
    assert model.mirrored().name != model.name
    assert not model.mirror


def test_a_scene_in_which_nobody_was_seen_of_late_has_no_futures(sample_scenarios: list[Scenario]) -> None:
    """The model predicts who was seen within the last second, and the focal track within 2 s."""
    steps = np.arange(120)
    valid = np.stack((steps < 90, steps < 105))
    position = np.stack((np.stack((0.5 * steps, 0 * steps), -1), np.stack((0.5 * steps, 5 + 0 * steps), -1)))
    category = [TrackCategory.FOCAL, TrackCategory.UNSCORED]
    road = [np.array([[-50.0, 0.0], [150.0, 0.0]])]
    lost = Scenario.from_arrays(position, valid=valid, num_observed=120, category=category, map=road)
    predictor = load_predictor("argoverse-nano")
    other = sample_scenarios[0]
    for scenarios in ([lost], [other, lost], [lost, other]):
        sizes = [len(forecast.track_id) for forecast in predictor(scenarios)]
        assert [size == 0 for size in sizes] == [scenario is lost for scenario in scenarios]


def test_joint_forecasts_are_worlds(
    checkpoint: Path, sample_scenarios: list[Scenario], tmp_path: Path
) -> None:
    [found] = load_predictor(checkpoint, joint=True)(sample_scenarios[:1])
    assert found.is_joint
    assert len(found.track_id) > 1
    with pytest.raises(DataError, match="no joint modes: take argoverse-nano, or train"):
        load_predictor(saved(tmp_path, joint=False), joint=True)
    with pytest.raises(DataError, match="cannot be merged"):
        load_ensemble([checkpoint, checkpoint], joint=True)


def test_ensemble_contains_the_modes_of_all_members(
    model: CheckpointPredictor, sample_scenarios: list[Scenario]
) -> None:
    members = [model, model.mirrored(), load_predictor("constant_velocity")]
    [merged] = EnsemblePredictor(members, modes=100)(sample_scenarios[:1])
    assert merged.trajectory.shape[1] == 13
    for member in members:
        [one] = member(sample_scenarios[:1])
        ends = one.trajectory[one.rows(merged.track_id)][:, :, -1]
        near = np.linalg.norm(merged.trajectory[:, None, :, -1] - ends[:, :, None], axis=-1).min(2)
        assert near.max() < 1.0, "every mode is a merged one, or beside one"


def test_unknown_names_and_missing_joint_futures_are_rejected() -> None:
    with pytest.raises(DataError, match="constant_velocity"):
        load_predictor("nothing")
    with pytest.raises(DataError, match="no joint futures"):
        load_predictor("lane_following", joint=True)
