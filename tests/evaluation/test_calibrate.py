"""calibrate: the fit is stored with the weights and applied when they are loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.predictors.saved import saved
from trajpred.errors import DataError
from trajpred.evaluation import evaluate
from trajpred.evaluation.calibrate import calibrate
from trajpred.metrics.calibration import apply_temperature
from trajpred.model.checkpoint import CALIBRATION, TRAINING, read_checkpoint
from trajpred.predictors import CheckpointPredictor
from trajpred.scenario import Scenario
from trajpred.store import ScenarioStore


def test_fit_is_stored_with_the_weights_and_applied(store: ScenarioStore, tmp_path: Path) -> None:
    before, out, twice = saved(tmp_path), tmp_path / "new" / "calibrated.ckpt", tmp_path / "2.ckpt"
    found = calibrate(before, store, out, group="all", progress=False)
    assert sum(found.agents) > 200 and min(found.agents) > 20
    assert found.temperature > 0 and found.regions.horizons_s.tolist() == [1, 2, 3, 4, 5, 6]
    plain, fitted = CheckpointPredictor(before), CheckpointPredictor(out)
    assert plain.regions is None and fitted.regions is not None
    assert np.array_equal(fitted.regions.radius, found.regions.radius)
    [a], [b] = plain([store[0]]), fitted([store[0]])
    assert np.array_equal(a.trajectory, b.trajectory)
    np.testing.assert_allclose(b.probability, apply_temperature(a.probability, found.temperature), atol=1e-12)
    state = [read_checkpoint(path)["state_dict"] for path in (before, out)]
    assert all(torch.equal(state[0][name], state[1][name]) for name in state[0])
    again = calibrate(out, store, twice, group="all", progress=False)
    assert again.temperature == pytest.approx(found.temperature), "a second calibration starts anew"


def test_temperature_that_degrades_the_other_half_is_not_kept(
    store: ScenarioStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajpred.evaluation.calibrate.fit_temperature", lambda *_: 1e-3)
    found = calibrate(saved(tmp_path), store, tmp_path / "out.ckpt", group="all", progress=False)
    assert found.temperature == 1.0 and found.nll[0] == found.nll[1] and found.ece[0] == found.ece[1]
    assert read_checkpoint(tmp_path / "out.ckpt")[CALIBRATION]["temperature"] == 1.0


def test_too_few_agents_are_rejected(store: ScenarioStore, tmp_path: Path) -> None:
    class One(list[Scenario]):
        split, path, lengths = store.split, store.path, store.lengths

    with pytest.raises(DataError, match="too few to fit and to measure on"):
        calibrate(saved(tmp_path), One([store[0]]), tmp_path / "x.ckpt", progress=False)  # type: ignore[arg-type]
    assert not (tmp_path / "x.ckpt").exists()


def test_of_the_training_split_only_what_was_held_out_is_used(store_path: Path, tmp_path: Path) -> None:
    checkpoint, train = saved(tmp_path), ScenarioStore(store_path, "train")
    with pytest.raises(DataError, match="has been trained on: train with --data"):
        calibrate(checkpoint, train, tmp_path / "x.ckpt", group="all", progress=False)
    content = {**read_checkpoint(checkpoint), TRAINING: {"hold_out": 0.8}}
    torch.save(content, checkpoint)
    found = calibrate(checkpoint, train, tmp_path / "x.ckpt", group="all", progress=False)
    part = train.subset(train.held_out(0.8))
    assert 0 < len(part) < len(train)
    counted = evaluate(CheckpointPredictor(checkpoint), part, progress=False).metrics["all"]["count"]
    assert sum(found.agents) == counted
