"""calibrate: the fit is stored with the weights and applied when they are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.model.small import saved
from trajpred.errors import DataError
from trajpred.evaluation import evaluate
from trajpred.evaluation.calibrate import Sample, _fit, calibrate
from trajpred.metrics.calibration import apply_temperature
from trajpred.model.checkpoint import CALIBRATION, TRAINING, read_checkpoint
from trajpred.predictors import CheckpointPredictor
from trajpred.store import ScenarioStore


def test_fit_is_stored_with_the_weights_and_applied(store: ScenarioStore, tmp_path: Path) -> None:
    before, out, twice = saved(tmp_path), tmp_path / "new" / "calibrated.ckpt", tmp_path / "2.ckpt"
    found = calibrate(before, store, out, group="all", progress=False)
    assert sum(found.agents) > 200
    assert min(found.agents) > 20
    assert len(found.agents) == 3
    assert found.temperature > 0
    assert found.regions.horizons_s.tolist() == [1, 2, 3, 4, 5, 6]
    plain, fitted = CheckpointPredictor(before), CheckpointPredictor(out)
    assert plain.regions is None
    assert np.array_equal(fitted.regions.radius, found.regions.radius)
    [a], [b] = plain([store[0]]), fitted([store[0]])
    assert np.array_equal(a.trajectory, b.trajectory)
    np.testing.assert_allclose(b.probability, apply_temperature(a.probability, found.temperature), atol=1e-12)
    state = [read_checkpoint(path)["state_dict"] for path in (before, out)]
    assert all(torch.equal(state[0][name], state[1][name]) for name in state[0])
    again = calibrate(out, store, twice, group="all", progress=False)
    assert again.temperature == pytest.approx(found.temperature), "a second calibration starts anew"


@pytest.mark.parametrize(
    ("flattened", "kept"),
    [((True, True, False), True), ((True, False, True), False)],
    ids=["accepted although the reported part gets worse", "rejected although it would get better"],
)
def test_the_reported_part_decides_nothing(flattened: Sequence[bool], kept: bool) -> None:
    """Two modes of 0.9 and 0.1; the second is the best in half of a flattened part, elsewhere never.

    Even odds make the fitted temperature the largest; the reported likelihood is that of the choice.
    """
    part = np.repeat(np.arange(3), 200)
    best = np.where(np.array(flattened)[part], np.arange(600) % 2, 0)
    probability = np.tile([0.9, 0.1], (600, 1))
    sample = Sample(probability, best, 1.0 + part[:, None].astype(float), np.zeros(600, np.int64))
    found = _fit(sample, part, np.array([1.0]), 0.9)
    assert (found.temperature > 100) == kept
    assert (found.temperature == 1.0) == (not kept)
    hit = 0.5 if flattened[2] else 1.0
    as_predicted = -hit * np.log(0.9) - (1 - hit) * np.log(0.1)
    chosen = np.log(2) if kept else as_predicted
    assert found.nll == pytest.approx((as_predicted, chosen), abs=0.01)
    assert found.regions.radius[0, 0] == 2.0
    assert found.covered.tolist() == [0.0]
    assert found.agents == (200, 200, 200)


def test_temperature_that_degrades_the_accepting_part_is_not_kept(
    store: ScenarioStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajpred.evaluation.calibrate.fit_temperature", lambda *_: 1e-3)
    found = calibrate(saved(tmp_path), store, tmp_path / "out.ckpt", group="all", progress=False)
    assert found.temperature == 1.0
    assert found.nll[0] == found.nll[1]
    assert found.ece[0] == found.ece[1]
    assert read_checkpoint(tmp_path / "out.ckpt")[CALIBRATION]["temperature"] == 1.0


def test_too_few_agents_are_rejected(store: ScenarioStore, tmp_path: Path) -> None:
    one = store.halved("deciding").subset(np.array([0]))
    with pytest.raises(
        DataError,
        match=r"its deciding half has \d+ agents to fit, \d+ to accept and \d+ to report on, each needs 20",
    ):
        calibrate(saved(tmp_path), one, tmp_path / "x.ckpt", progress=False)
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
