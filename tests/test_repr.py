"""Public objects say what they are and how large, in one line."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import ROOT
from trajpred import load_predictor
from trajpred.evaluation import evaluate, read_results
from trajpred.graph.scene_graph import build_batch
from trajpred.predictors import EnsemblePredictor, PerturbedPredictor
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.scenario_batch import ScenarioBatch
from trajpred.store import ScenarioStore


def test_store_scenario_forecast_and_results(store_path: Path) -> None:
    rows = ScenarioStore(store_path, "val")
    assert repr(rows) == f"ScenarioStore({store_path}, val: 5 scenarios of 50 + 60 steps)"
    scenario, baseline = rows[0], load_predictor("constant_velocity")
    [forecast] = baseline([scenario])
    tracks, lanes = len(forecast.track_id), len(scenario.map)
    assert repr(forecast) == f"Forecast({scenario.scenario_id}: {tracks} tracks, 1 modes of 60 steps)"
    assert repr(scenario).startswith(f"Scenario({scenario.scenario_id}, ")
    assert repr(scenario.map).startswith(f"LaneMap({lanes} lane segments, ")
    assert repr(ScenarioBatch.of([scenario])).startswith("ScenarioBatch(1 scenarios: ")
    result = evaluate(baseline, rows, progress=False)
    expected = "Evaluation(constant_velocity: 5 scenarios of val, focal agents, minADE6 3.89, minFDE6 11.51)"
    assert repr(result) == expected
    [shipped] = read_results(ROOT / "datasets" / "argoverse1" / "results" / "constant_velocity.json")
    assert repr(shipped).startswith("Evaluation(constant_velocity: 4,007 scenarios of val")


def test_predictors() -> None:
    model, baseline = load_predictor("argoverse-nano"), load_predictor("lane_following")
    start = "CheckpointPredictor(argoverse-nano: 0.2 M parameters, 60 steps from 50, c"
    assert repr(model).startswith(start) and repr(baseline) == "BaselinePredictor(lane_following)"
    assert repr(PerturbedPredictor(baseline, "noise")) == "PerturbedPredictor(lane_following, noise)"
    merged = repr(EnsemblePredictor([baseline, baseline]))
    assert merged == "EnsemblePredictor(6 modes of 2 predictors: lane_following + lane_following)"


def test_batches(store_path: Path) -> None:
    scenario, model = ScenarioStore(store_path, "val")[0], load_predictor("argoverse-nano")
    assert isinstance(model, CheckpointPredictor)
    batch = build_batch([scenario, scenario], model.model.scene)
    agents, lanes = (len(batch[kind].batch) for kind in ("agent", "lane"))
    edges = sum(relation.edge_index.shape[1] for relation in batch.edge_stores)
    assert repr(batch) == f"SceneBatch(2 scenes: {agents} agents, {lanes} lanes, {edges:,} edges)"
