"""calibrate: what is fitted is kept with the weights, used by whoever loads them, and measured elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.graph.conftest import store_path  # noqa: F401
from tests.predictors.test_loading import saved
from trajpred.errors import DataError
from trajpred.evaluation import evaluate
from trajpred.evaluation.calibrate import calibrate
from trajpred.metrics.calibration import apply_temperature
from trajpred.model.checkpoint import CALIBRATION, read_checkpoint
from trajpred.predictors import load_predictor
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.scenario import Scenario
from trajpred.store import ScenarioStore


@pytest.fixture
def store(store_path: Path) -> ScenarioStore:  # noqa: F811
    return ScenarioStore(store_path, "val")


def test_what_is_fitted_stays_with_the_weights(store: ScenarioStore, tmp_path: Path) -> None:
    before, out = saved(tmp_path), tmp_path / "new" / "calibrated.ckpt"
    found = calibrate(before, store, out, group="all", progress=False)
    assert sum(found.agents) > 200 and min(found.agents) > 20
    assert found.temperature > 0 and found.regions.horizons_s.tolist() == [1, 2, 3, 4, 5, 6]
    cold, warm = load_predictor(before), load_predictor(out)
    assert isinstance(cold, CheckpointPredictor) and isinstance(warm, CheckpointPredictor)
    assert cold.regions is None and warm.regions is not None
    assert np.array_equal(warm.regions.radius, found.regions.radius)
    scenario = store[0]
    [plain], [fitted] = cold([scenario]), warm([scenario])
    assert np.array_equal(plain.trajectory, fitted.trajectory)
    expected = apply_temperature(plain.probability, found.temperature)
    np.testing.assert_allclose(fitted.probability, expected, atol=1e-12)
    state = [read_checkpoint(path)["state_dict"] for path in (before, out)]
    assert all(torch.equal(state[0][name], state[1][name]) for name in state[0])


def test_displacement_does_not_change(store: ScenarioStore, tmp_path: Path) -> None:
    before, out = saved(tmp_path), tmp_path / "calibrated.ckpt"
    calibrate(before, store, out, group="all", progress=False)
    a, b = (evaluate(load_predictor(path), store, progress=False).metrics["all"] for path in (before, out))
    assert a["minFDE6"] == b["minFDE6"] and a["minFDE1"] == b["minFDE1"], "T keeps the order of modes"


def test_a_second_calibration_starts_anew(store: ScenarioStore, tmp_path: Path) -> None:
    before, once, twice = saved(tmp_path), tmp_path / "1.ckpt", tmp_path / "2.ckpt"
    first = calibrate(before, store, once, group="all", progress=False)
    second = calibrate(once, store, twice, group="all", progress=False)
    assert second.temperature == pytest.approx(first.temperature)
    assert read_checkpoint(twice)[CALIBRATION]["temperature"] == pytest.approx(first.temperature)


def test_a_temperature_that_does_worse_on_the_other_half_is_not_kept(
    store: ScenarioStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajpred.evaluation.calibrate.fit_temperature", lambda *_: 1e-3)
    found = calibrate(saved(tmp_path), store, tmp_path / "out.ckpt", group="all", progress=False)
    assert found.temperature == 1.0 and found.nll[0] == found.nll[1] and found.ece[0] == found.ece[1]
    assert read_checkpoint(tmp_path / "out.ckpt")[CALIBRATION]["temperature"] == 1.0


def test_too_little_data_are_refused(store: ScenarioStore, tmp_path: Path) -> None:
    class One(list[Scenario]):
        split, path = store.split, store.path

    with pytest.raises(DataError, match="too few to fit and to measure on"):
        calibrate(saved(tmp_path), One([store[0]]), tmp_path / "x.ckpt", progress=False)  # type: ignore[arg-type]
    assert not (tmp_path / "x.ckpt").exists()
