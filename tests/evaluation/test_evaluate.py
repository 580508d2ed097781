"""evaluate: one code path for models and baselines, the same numbers as av2 and as in training."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from av2.datasets.motion_forecasting.eval import metrics as av2
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from tests.graph.conftest import store_path  # noqa: F401
from tests.graph.scenes import straight, with_tracks
from tests.model.small import small_model
from trajpred.errors import DataError
from trajpred.evaluation import Evaluation, evaluate, format_table
from trajpred.evaluation.judged import judged
from trajpred.forecast import Forecast
from trajpred.graph.data_module import SceneDataset
from trajpred.model import Forecaster
from trajpred.predictors import load_predictor
from trajpred.scenario import Scenario, TrackCategory
from trajpred.scenario_batch import ScenarioBatch
from trajpred.store import ScenarioStore


class Scattered:
    """Six random futures around the truth; nothing about the tracks named in ``silent``."""

    name = "scattered"
    training: dict[str, Any] = {"seed": 3}  # noqa: RUF012

    def __init__(self, silent: frozenset[str] = frozenset()) -> None:
        self.silent = silent

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return [self.one(scenario) for scenario in scenarios]

    def one(self, scenario: Scenario) -> Forecast:
        tracks, now = scenario.tracks, scenario.num_observed
        rows = np.array([i for i, name in enumerate(tracks.track_id.tolist()) if name not in self.silent])
        random = np.random.default_rng(len(tracks))
        path = tracks.position[rows, None, now:] + random.normal(0, 2, (len(rows), 6, 1, 2))
        return Forecast.from_trajectories(
            scenario.scenario_id,
            tracks.track_id[rows],
            path,
            random.dirichlet(np.ones(6), len(rows)),
            origin=path[:, 0, 0],
            origin_heading=np.zeros(len(rows)),
            step_s=scenario.step_s,
        )


@pytest.fixture
def store(store_path: Path) -> ScenarioStore:  # noqa: F811
    return ScenarioStore(store_path, "val")


def test_groups_hold_those_seen_at_the_last_observed_step_that_have_a_future() -> None:
    valid = np.ones((5, 110), bool)
    valid[1, 49] = valid[2, 50:] = False
    scored, unscored = TrackCategory.SCORED, TrackCategory.UNSCORED
    groups = judged(straight(5, valid=valid, category=[3, scored, scored, scored, unscored]))
    found = {name: np.flatnonzero(member).tolist() for name, member in groups.items()}
    assert found == {"focal": [0], "scored": [0, 3], "all": [0, 3, 4]}


@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_numbers_are_those_of_av2(store: ScenarioStore, batch_size: int) -> None:
    predictor = Scattered()
    found = evaluate(predictor, store, batch_size=batch_size, progress=False)
    values: dict[str, list[float]] = {"minADE6": [], "minFDE6": [], "MR6": [], "brier-minFDE6": []}
    for scenario in store:
        forecast = predictor.one(scenario)
        row = forecast.track_id.tolist().index(scenario.focal_id)
        modes, p = forecast.trajectory[row], forecast.probability[row]
        truth = scenario.tracks.position[scenario.focal, 50:]
        fde = av2.compute_fde(modes, truth)
        values["minADE6"].append(av2.compute_ade(modes, truth).min())
        values["minFDE6"].append(fde.min())
        values["MR6"].append(float(av2.compute_is_missed_prediction(modes, truth)[fde.argmin()]))
        values["brier-minFDE6"].append(av2.compute_brier_fde(modes, truth, p)[fde.argmin()])
    assert found.scenarios == found.metrics["focal"]["count"] == len(store) == 5
    assert found.missing == {"focal": 0, "scored": 0, "all": 0}
    for name, each in values.items():
        assert found.metrics["focal"][name] == pytest.approx(np.mean(each), rel=1e-5), name
        if name in found.per_scenario:
            assert found.per_scenario[name] == pytest.approx(each, abs=6e-5), name
    assert found.per_scenario["scenario_id"] == store.scenario_ids
    assert found.per_scenario.keys() - values.keys() == {"scenario_id"}


def test_where_the_numbers_come_from_is_told(store: ScenarioStore) -> None:
    found = evaluate(Scattered(), store, progress=False)
    assert found.training == {"seed": 3}
    assert found.store["source"] == "argoverse2" and found.store["scenarios"]["val"] == len(store)
    assert {"trajpred", "torch", "cpu", "threads", "gpu", "wall_s"} <= found.environment.keys()


def test_tracks_left_out_are_counted_as_missing(store: ScenarioStore) -> None:
    silent = frozenset(scenario.focal_id for scenario in store)
    found = evaluate(Scattered(silent), store, progress=False)
    assert found.metrics["focal"] == {"count": 0} and found.intervals == {}
    assert found.missing["focal"] == len(silent) <= found.missing["scored"] <= found.missing["all"]
    assert found.per_scenario["minFDE6"] == []
    whole = evaluate(Scattered(), store, progress=False).metrics["all"]["count"]
    assert found.metrics["all"]["count"] + found.missing["all"] == whole


def test_a_split_without_futures_is_refused(store_path: Path) -> None:  # noqa: F811
    with pytest.raises(DataError, match="no scenario with a future"):
        evaluate(Scattered(), ScenarioStore(store_path, "test"), progress=False)


class Gappy(ScenarioStore):
    """A store whose every third track is out of sight at the last observed step, unless it is focal."""

    def __getitem__(self, index: int) -> Scenario:
        scenario = super().__getitem__(index)
        valid = scenario.tracks.valid.copy()
        valid[::3, 49] &= (np.arange(len(valid)) == scenario.focal)[::3]
        seen = np.flatnonzero(valid.any(axis=1))
        return with_tracks(replace(scenario, tracks=replace(scenario.tracks, valid=valid)), seen)

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> ScenarioBatch:
        return ScenarioBatch.of([self[int(row)] for row in rows])


def test_training_reports_what_evaluate_finds(store_path: Path, tmp_path: Path) -> None:  # noqa: F811
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    model, store = small_model(scene={"features": {"max_agents": 200}}), Gappy(store_path, "val")
    off = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(accelerator="cpu", enable_checkpointing=False, **off)
    loader = DataLoader(
        SceneDataset(store, model.forecaster.scene), sampler=[[0, 1], [2, 3], [4]], batch_size=None
    )
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
    assert model.val_metrics.count.sum() == 0, "left for the next epoch"


def test_a_checkpoint_refuses_scenarios_of_other_lengths(tmp_path: Path) -> None:
    model = small_model()
    content = {"state_dict": model.state_dict()}
    model.on_save_checkpoint(content)
    torch.save(content, tmp_path / "model.ckpt")
    with pytest.raises(DataError, match="predicts 60 steps from 50"):
        load_predictor(tmp_path / "model.ckpt")([replace(straight(1), num_observed=40)])
    assert isinstance(Forecaster.load(tmp_path / "model.ckpt"), Forecaster)


def test_what_is_neither_checkpoint_nor_baseline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="constant_velocity"):
        load_predictor(tmp_path / "nothing")


def test_the_table_has_a_line_for_each() -> None:
    full = {"count": 3, "minADE6": 1.234, "MR6": 0.5}
    lines = format_table(
        [
            Evaluation(name, "val", 3, {}, {"focal": metrics})
            for name, metrics in (("a", full), ("bb", {"count": 0}))
        ]
    ).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len(lines) == 4 and len({len(line) for line in lines}) == 1
    assert dict(zip(cells[0], cells[2], strict=True))["minADE6"] == "1.23"
    assert cells[3][:3] == ["bb", "0", "-"] and all(cell.endswith(":") for cell in cells[1])
