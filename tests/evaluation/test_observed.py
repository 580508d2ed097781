"""Another last observed step: the same states, of which more or fewer are the future."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import run
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.evaluation import evaluate
from trajpred.evaluation.table import columns_in
from trajpred.evaluation.updates import ObservedStore
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore


@pytest.mark.parametrize(("seconds", "observed"), [(0.5, 5), (2.0, 20), (8.0, 80)])
def test_every_recorded_state_is_history_or_future(
    store: ScenarioStore, seconds: float, observed: int
) -> None:
    before = store[0].tracks
    moved = ObservedStore(store, seconds)
    after = moved[0]
    assert moved.lengths == (max(observed, 50), 110 - observed)
    assert (after.num_observed, after.num_steps - after.num_observed) == moved.lengths
    unknown = after.num_observed - observed
    assert not after.tracks.valid[:, :unknown].any()
    for name in ("valid", "position", "heading", "velocity"):
        assert np.array_equal(getattr(after.tracks, name)[:, unknown:], getattr(before, name)), name
    assert np.array_equal(after.timestamps_ns[unknown:], store[0].timestamps_ns)
    assert (np.diff(after.timestamps_ns) > 0).all()
    assert after.step_s == pytest.approx(store[0].step_s, rel=1e-3)


def test_errors_are_those_of_the_definition(store: ScenarioStore) -> None:
    """Constant velocity from the state at 3 s, over the 8 s that were recorded after it."""
    result = evaluate(load_predictor("constant_velocity"), ObservedStore(store, 3.0), progress=False)
    errors = []
    for scenario in store:
        tracks = scenario.tracks
        focal = tracks.index(scenario.focal_id)
        ahead = tracks.velocity[focal, 29] * 80 * scenario.step_s
        missed = tracks.position[focal, 29] + ahead - tracks.position[focal, -1]
        errors.append(np.hypot(*missed))
    assert result.metrics["focal"]["minFDE6"] == pytest.approx(np.mean(errors), rel=1e-6)
    assert result.seconds == [8.0, 8.0]
    assert result.observed_s == 3.0
    assert result.agents is not None
    seconds = {column.ahead for column in columns_in(result.agents)}
    assert seconds == {None, *range(1, 9)}


@pytest.mark.parametrize("name", ["argoverse-nano", "lane_following", "constant_turn_rate"])
def test_predictors_see_nothing_that_came_later(store: ScenarioStore, name: str) -> None:
    predictor = load_predictor(name)
    scenario = ObservedStore(store, 1.0)[0]
    now = scenario.num_observed
    position = scenario.tracks.position.copy()
    position[:, now:] += 50.0
    other = replace(scenario, tracks=replace(scenario.tracks, position=position))
    [first], [second] = predictor([scenario]), predictor([other])
    assert np.array_equal(first.trajectory, second.trajectory)
    assert first.trajectory.shape[2] >= 60


class LateFocal(ScenarioStore):
    """The focal track of the first scenario is seen from the eleventh step on."""

    def __init__(self, store: ScenarioStore) -> None:
        self.__dict__.update(store.__dict__)

    def __getitem__(self, index: int) -> Scenario:
        scenario = super().__getitem__(index)
        if index > 0:
            return scenario
        valid = scenario.tracks.valid.copy()
        valid[scenario.focal, :10] = False
        return replace(scenario, tracks=replace(scenario.tracks, valid=valid))


def test_scenarios_without_a_focal_track_by_then_are_not_evaluated(store: ScenarioStore) -> None:
    late = LateFocal(store)
    for seconds, count in ((1.0, len(store) - 1), (1.1, len(store))):
        observed = ObservedStore(late, seconds)
        assert evaluate(load_predictor("constant_velocity"), observed, progress=False).scenarios == count


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.04, 11.0, 10.97, float("nan")])
def test_impossible_times_are_one_sentence(store: ScenarioStore, seconds: float) -> None:
    with pytest.raises(DataError, match=r"must be 0.1 s or more, and less than the 11 s of the scenarios"):
        ObservedStore(store, seconds)


def test_several_times_give_several_tables(
    store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    options = ["--store", store_path, "--split", "train", "--half", "deciding", "--observe-s", "0.5", "2"]
    options += ["--perturb", "noise", "--group", "moving"]
    assert run("stress", *options, "--out", out) == 0
    printed = capsys.readouterr().out
    for seconds in ("0.5", "2"):
        part = f"deciding half, after {seconds} s"
        assert f"scenarios, {part}, K = 6" in printed
        assert f"moving agents, perturbed scenarios, {part}" in printed
    results = json.loads(out.read_text())
    assert [one["observed_s"] for one in results] == [0.5] * 2 + [2.0] * 2
    assert {one["half"] for one in results} == {"deciding"}
    names = ScenarioStore(store_path, "train").halved("deciding").scenario_ids
    assert {*results[0]["per_scenario"]["focal"]["scenario_id"]} <= {*names}
    assert run("compare", "--results", out) == 2
    assert "deciding half, after 2 s" in capsys.readouterr().err


def test_a_predictions_file_of_the_whole_split_has_no_faults_in_a_half(
    store_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "p.parquet"
    options = ("--store", store_path, "--split", "train")
    assert run("predict", *options, "--checkpoint", "constant_velocity", "--out", out) == 0
    for half in ("deciding", "reporting"):
        assert run("evaluate", *options, "--checkpoint", out, "--half", half, "--check-with-av2") == 0


def test_predictions_files_are_fixed(
    store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "p.parquet"
    assert run("predict", "--store", store_path, "--out", out) == 0
    assert run("stress", "--store", store_path, "--checkpoint", out, "--observe-s", "1") == 2
    assert "--observe-s: scenarios cannot be changed for predictions files" in capsys.readouterr().err
