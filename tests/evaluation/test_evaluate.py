"""evaluate: the same numbers as av2 and as in training."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
from av2.datasets.motion_forecasting.eval import metrics as av2
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from tests.evaluation.predictors import Scattered
from tests.features.scenes import with_tracks
from tests.model.small import small_model
from trajpred.data.batch import ScenarioBatch
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.evaluation import evaluate
from trajpred.predictors import load_predictor
from trajpred.sources import SOURCES, RawScenario, Source
from trajpred.store import ScenarioStore, prepare
from trajpred.training.data_module import SceneDataset


def test_values_per_scenario_are_those_of_the_focal_agents(store: ScenarioStore) -> None:
    """By av2; the means are compared with av2's in ``test_av2_check.py``."""
    predictor = Scattered()
    found = evaluate(predictor, store, batch_size=2, progress=False)
    expected = []
    for scenario in store:
        forecast = predictor.one(scenario).of(np.array([scenario.focal_id]))
        truth = scenario.tracks.position[scenario.focal, 50:]
        expected.append(av2.compute_fde(forecast.trajectory[0], truth).min())
    assert found.per_scenario["focal"]["minFDE6"].to_pylist() == pytest.approx(expected, abs=6e-5)
    for name in ("minADE6", "minFDE6", "MR6", "brier-minFDE6"):
        mean = np.mean(found.per_scenario["focal"][name])
        assert found.metrics["focal"][name] == pytest.approx(mean, abs=6e-5), name
    assert found.scenarios == found.metrics["focal"]["count"] == len(store) == 5
    assert found.missing == {"focal": 0, "scored": 0, "moving": 0, "all": 0, "scenarios": 0}
    assert found.per_scenario["focal"]["scenario_id"].to_pylist() == store.scenario_ids
    assert found.training == {"seed": 3}
    assert found.store["source"] == "argoverse2"
    assert {"trajpred", "torch", "cpu", "threads", "gpu", "wall_s"} <= found.environment.keys()


def test_agents_without_a_forecast_are_missing(store: ScenarioStore) -> None:
    omitted = frozenset(scenario.focal_id for scenario in store)
    found = evaluate(Scattered(omitted), store, progress=False)
    assert found.metrics["focal"] == {"count": 0}
    assert found.missing["focal"] == len(omitted) <= found.missing["scored"] <= found.missing["all"]
    assert len(found.per_scenario["focal"]) == 0
    whole = evaluate(Scattered(), store, progress=False).metrics["all"]["count"]
    assert found.metrics["all"]["count"] + found.missing["all"] == whole


def test_split_without_futures_is_rejected(store_path: Path) -> None:
    with pytest.raises(DataError, match="no scenario with a future"):
        evaluate(Scattered(), ScenarioStore(store_path, "test"), progress=False)


class ContinuedStore(ScenarioStore):
    """A split whose futures were all continued by a model."""

    def __init__(self, store: ScenarioStore) -> None:
        self.__dict__.update(store.__dict__)

    def __getitem__(self, index: int) -> Scenario:
        scenario = super().__getitem__(index)
        return replace(scenario, continued=scenario.num_steps - scenario.num_observed)


def test_futures_that_a_model_continued_are_not_scored(store: ScenarioStore) -> None:
    message = "no scenario of split 'val' has a recorded future.*continued is never scored: evaluate a split"
    with pytest.raises(DataError, match=message):
        evaluate(Scattered(), ContinuedStore(store), progress=False)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_windows_of_several_lengths_are_rejected(
    batch_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(one: RawScenario) -> Scenario:
        position = np.zeros((1, int(one.name), 2))
        return Scenario.from_arrays(position, num_observed=10, scenario_id=one.name)

    found = {"val": [RawScenario("40", tmp_path), RawScenario("70", tmp_path)]}
    monkeypatch.setitem(SOURCES, "made", Source(lambda _: found, read))
    prepare("made", tmp_path, tmp_path / "store", workers=1, progress=False)
    mixed = ScenarioStore(tmp_path / "store", "val")
    with pytest.raises(DataError, match="mixes window lengths"):
        evaluate(load_predictor("constant_velocity"), mixed, batch_size=batch_size, progress=False)


def test_a_data_set_that_lost_frames_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cars at 15 m/s, recorded at 10 Hz, for which constant velocity is exact whatever was lost."""
    lost = {"none": [], "past": [3, 30, 31], "future": [50, 80], "many": [*range(10, 20), *range(60, 70)]}

    def read(raw: RawScenario) -> Scenario:
        frames = np.delete(np.arange(110), lost[raw.name])
        position = np.stack((1.5 * frames, 0 * frames), -1)[None]
        made = Scenario.from_arrays(
            position,
            num_observed=int((frames < 50).sum()),
            velocity=np.broadcast_to([15.0, 0.0], position.shape),
            scenario_id=raw.name,
        )
        return replace(made, timestamps_ns=frames * 100_000_000)

    found = {"val": [RawScenario(name, tmp_path) for name in lost]}
    monkeypatch.setitem(SOURCES, "made", Source(lambda _: found, read))
    prepare("made", tmp_path, tmp_path / "store", workers=1, progress=False)
    store = ScenarioStore(tmp_path / "store", "val")
    scores = evaluate(load_predictor("constant_velocity"), store, progress=False)
    focal = scores.metrics["focal"]
    assert focal["count"] == 4
    assert focal["minFDE1"] == focal["minADE1"] == 0.0
    assert scores.agents is not None
    assert scores.agents["minFDE6_6s"].to_pylist() == [0.0] * 4


class Gappy(ScenarioStore):
    """A store in which every third track, unless focal, is invisible at the last observed step."""

    def __getitem__(self, index: int) -> Scenario:
        scenario = super().__getitem__(index)
        valid = scenario.tracks.valid.copy()
        valid[::3, 49] &= (np.arange(len(valid)) == scenario.focal)[::3]
        seen = np.flatnonzero(valid.any(axis=1))
        return with_tracks(replace(scenario, tracks=replace(scenario.tracks, valid=valid)), seen)

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> ScenarioBatch:
        return ScenarioBatch.of([self[int(row)] for row in rows])


def test_training_reports_the_metrics_of_evaluate(store_path: Path, tmp_path: Path) -> None:
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    model, store = small_model(scene={"features": {"max_agents": 200}}), Gappy(store_path, "val")
    off = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(accelerator="cpu", enable_checkpointing=False, **off)
    data = SceneDataset(store, model.forecaster.scene)
    loader = DataLoader(data, sampler=[[0, 1], [2, 3], [4]], batch_size=None)
    [logged] = trainer.validate(model, loader, verbose=False)
    trainer.save_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    found = evaluate(load_predictor(tmp_path / "model.ckpt"), store, batch_size=3, progress=False)
    for group in ("focal", "scored", "all"):
        curves = [name.split("/")[2] for name in logged if name.startswith(f"val/{group}/")]
        assert {"minADE1", "minFDE6", "MR6", "brier-minFDE6"} <= set(curves)
        for name in curves:
            value = found.metrics[group][name]
            assert logged[f"val/{group}/{name}"] == pytest.approx(value, abs=2e-3), (group, name)
    counts = [found.metrics[group]["count"] for group in ("focal", "scored", "all")]
    assert counts[0] < counts[1] < counts[2]
    assert model.val_metrics.count.sum() == 0, "reset for the next epoch"
