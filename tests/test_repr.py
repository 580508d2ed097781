"""Public objects say what they are and how large, in one line."""

from __future__ import annotations

from pathlib import Path

from trajpred import load_predictor
from trajpred.data.batch import ScenarioBatch
from trajpred.evaluation import evaluate
from trajpred.features.scene_graph import build_batch
from trajpred.predictors import CheckpointPredictor, EnsemblePredictor, PerturbedPredictor
from trajpred.store import ScenarioStore


def test_public_objects_say_what_they_are(store_path: Path) -> None:
    rows, baseline = ScenarioStore(store_path, "val"), load_predictor("constant_velocity")
    scenario, model = rows[0], load_predictor("argoverse-nano")
    assert isinstance(model, CheckpointPredictor)
    forecast = baseline([scenario])[0]
    batch = build_batch([scenario, scenario], model.model.scene)
    agents = len(batch["agent"].batch)
    lanes = len(batch["lane"].batch)
    edges = sum(relation.edge_index.shape[1] for relation in batch.edge_stores)
    tracks, means = len(forecast.track_id), ", focal agents, minADE6 3.89, minFDE6 11.51)"
    found = evaluate(baseline, rows, progress=False)
    for one, start in (
        (rows, f"ScenarioStore({store_path}, val: 5 scenarios of 50 + 60 steps)"),
        (forecast, f"Forecast({scenario.scenario_id}: {tracks} tracks, 1 modes of 60 steps)"),
        (scenario, f"Scenario({scenario.scenario_id}, "),
        (scenario.map, f"LaneMap({len(scenario.map)} lane segments, "),
        (ScenarioBatch.of([scenario]), "ScenarioBatch(1 scenarios: "),
        (batch, f"SceneBatch(2 scenes: {agents} agents, {lanes} lanes, {edges:,} edges)"),
        (found, f"Evaluation(constant_velocity: 5 scenarios of val{means}"),
        (baseline, "BaselinePredictor(constant_velocity)"),
        (model, "CheckpointPredictor(argoverse-nano: 0.2 M parameters, 60 steps from 50, c"),
        (PerturbedPredictor(baseline, "noise"), "PerturbedPredictor(constant_velocity, noise)"),
        (EnsemblePredictor([baseline, model]), "EnsemblePredictor(6 modes of 2 predictors: constant_"),
    ):
        assert repr(one).startswith(start)
