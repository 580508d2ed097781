"""Predictors: mirror images and ensembles of models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.graph.scenes import in_a_mirror
from tests.model.small import small_model
from tests.training.test_lit_forecaster import trainer
from trajpred.errors import DataError
from trajpred.predictors import load_predictor
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.predictors.ensemble import EnsemblePredictor
from trajpred.scenario import Scenario


def saved(folder: Path, seed: int = 0, joint: bool = True) -> Path:
    model = small_model(seed)
    model.config["decoder"]["init_args"]["joint"] = joint
    model = type(model).build(model.config)
    saver, path = trainer(folder, enable_checkpointing=False), folder / f"{seed}{joint}.ckpt"
    saver.strategy.connect(model)
    saver.save_checkpoint(path, weights_only=True)
    return path


@pytest.fixture
def model(tmp_path: Path) -> CheckpointPredictor:
    predictor = load_predictor(saved(tmp_path))
    assert isinstance(predictor, CheckpointPredictor)
    return predictor


def test_a_mirrored_model_says_of_a_scene_what_it_says_of_the_scene_in_a_mirror(
    model: CheckpointPredictor, sample_scenarios: list[Scenario]
) -> None:
    scenes = sample_scenarios[:2]
    straight_on, found = model(scenes), model.mirrored()(scenes)
    expected = model([in_a_mirror(scene) for scene in scenes])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.trajectory, other.trajectory * [1, -1], atol=5e-3)
        turned = np.exp(1j * one.heading) * np.exp(1j * other.heading)
        np.testing.assert_allclose(turned, 1, atol=5e-2)
        np.testing.assert_allclose(one.probability, other.probability, atol=1e-4)
    assert np.abs(found[0].trajectory - straight_on[0].trajectory).max() > 0.1, "another opinion"
    assert model.mirrored().name != model.name and not model.mirror


def test_an_ensemble_has_the_modes_of_all_its_members(
    model: CheckpointPredictor, sample_scenarios: list[Scenario]
) -> None:
    members = [model, model.mirrored(), load_predictor("constant_velocity")]
    both = EnsemblePredictor(members, modes=100)(sample_scenarios[:1])[0]
    alone = [member(sample_scenarios[:1])[0] for member in members]
    assert both.trajectory.shape[1] == 13  # all of them, there are fewer than a hundred
    for one in alone:
        rows = one.rows(both.track_id)
        ends = one.trajectory[rows][:, :, -1]
        near = np.linalg.norm(both.trajectory[:, None, :, -1] - ends[:, :, None], axis=-1).min(2)
        assert near.max() < 1.0, "every mode is one of the merged ones, or beside one"
    six = EnsemblePredictor(members)(sample_scenarios[:1])[0]
    assert six.trajectory.shape[1] == 6
    np.testing.assert_allclose(six.probability.sum(1), 1)


def test_joint_futures_are_worlds(model: CheckpointPredictor, sample_scenarios: list[Scenario]) -> None:
    joint = CheckpointPredictor.__new__(CheckpointPredictor)
    vars(joint).update(vars(model), joint=True)
    [found] = joint(sample_scenarios[:1])
    np.testing.assert_allclose(found.probability, found.probability[:1].repeat(len(found.track_id), 0))


def test_a_model_without_joint_modes_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no joint modes"):
        load_predictor(saved(tmp_path, joint=False), joint=True)
