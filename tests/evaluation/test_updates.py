"""Other times of a forecast: successive updates against closed forms; the same states, observed earlier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from av2.datasets.motion_forecasting.eval import metrics as av2
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from tests.conftest import error_of, output_of, rejects, run
from tests.evaluation.predictors import ChangedStore
from tests.scenes import hidden
from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.evaluation import evaluate
from trajpred.evaluation.agents import ScoredAgents
from trajpred.evaluation.recipes import change_tables
from trajpred.evaluation.report import tables
from trajpred.evaluation.table import columns_in, members
from trajpred.evaluation.updates import ObservedStore, score_streams
from trajpred.metrics import metrics_of
from trajpred.predictors import Predictor, load_predictor
from trajpred.predictors.derived import StreamedForecast, StreamedPredictor
from trajpred.store import ScenarioStore

ERRORS = ("minADE6", "minFDE6")

#: Metrics of the change from one update to the next.
CHANGES = tuple(metric.name for metric in metrics_of("streaming"))


def steady() -> Scenario:
    """Three cars at constant velocity; the last one appears after the first update."""
    time = np.arange(50) * 0.1
    position = np.stack([np.stack((speed * time, 5.0 + 0 * time), -1) for speed in (5.0, 10.0, -3.0)])
    position[2, :12] = np.nan
    return Scenario.from_arrays(position, num_observed=20)


class Fan(Predictor):
    """Six straight modes that diverge from the true path, moved by 0.5 m less at each update."""

    name = "fan"

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return [self.one(scenario) for scenario in scenarios]

    def one(self, scenario: Scenario) -> Forecast:
        [truth] = load_predictor("constant_velocity")([scenario])
        steps = round(-scenario.timestamps_ns[0] / 1e8)  # before the present
        aside = np.arange(6.0)[:, None, None] * [0.0, 2.0] + steps / 5 * np.array([0.3, 0.4])
        modes = {"probability": np.tile(np.arange(1.0, 7.0) / 21, (len(truth.track_id), 1))}
        modes |= {name: np.repeat(getattr(truth, name), 6, 1) for name in ("heading", "speed")}
        return replace(truth, trajectory=truth.trajectory + aside, **modes)


def streamed(scenarios: Sequence[Scenario]) -> dict[str, NDArray[np.floating]]:
    """The scores of the updates of the fan, by column."""
    forecasts = StreamedPredictor(Fan())(scenarios)
    found = score_streams(scenarios, forecasts, ScoredAgents.of(scenarios, forecasts), 0.1)
    return {column.name: values for column, values in found.items()}


def test_known_changes_of_the_agents_visible_at_every_update() -> None:
    found = streamed([steady()])
    seen = [True, True, False]  # without the third car
    for update, error in {"1s": 1.0, "1.5s": 0.5, "2s": 0.0}.items():
        errors = found[f"minADE6_after_{update}"]
        assert np.isfinite(errors).tolist() == seen
        assert errors[:2] == pytest.approx([error, error], abs=1e-6)
    for suffix in ("", "_after_1.5s", "_after_2s"):
        for name, change in zip(CHANGES, (0.5, 0.5, 0.0, 0.0), strict=True):
            assert found[name + suffix][:2] == pytest.approx([change, change], abs=1e-6), name
    assert np.isnan(found["switches_after_1s"]).all(), "no update precedes the first"


def test_real_scenarios_by_a_plain_program(store_path: Path) -> None:
    store, model = ScenarioStore(store_path, "val"), StreamedPredictor(load_predictor("lane_following"))
    result = evaluate(model, store, batch_size=2, workers=2, progress=False)
    plain: dict[str, list[float]] = {name: [] for name in (*ERRORS, *CHANGES)}
    for scenario in store:
        [now] = model([scenario])
        assert isinstance(now, StreamedForecast)
        row = scenario.focal
        earliest = now.earlier[10]
        own = earliest.track_id.tolist().index(scenario.focal_id)
        truth = scenario.tracks.position[row, 40:100]
        plain["minADE6"].append(av2.compute_ade(earliest.trajectory[own], truth).min())
        plain["minFDE6"].append(av2.compute_fde(earliest.trajectory[own], truth).min())
        pairs = [one_change(scenario, *pair) for pair in ((earliest, now.earlier[5]), (now.earlier[5], now))]
        for name, values in zip(CHANGES, np.mean(pairs, axis=0), strict=True):
            plain[name].append(float(values))
    for name in CHANGES:
        assert result.per_scenario["focal"][name].to_pylist() == pytest.approx(plain[name], abs=1e-4), name
        assert result.metrics["focal"][name] == pytest.approx(np.mean(plain[name]), abs=1e-5), name
    focal = members(result.agents, "focal")
    for name in ERRORS:
        assert pc.mean(focal[f"{name}_after_4s"]).as_py() == pytest.approx(np.mean(plain[name]), abs=1e-5)
        whole = result.metrics["focal"][name]
        assert pc.mean(focal[f"{name}_after_5s"]).as_py() == pytest.approx(whole, abs=1e-5)
    once = next(table for table in tables(result) if "every update" in table.title)
    assert [row[0] for row in once.rows] == ["4 s", "4.5 s", "5 s"]
    assert once.rows[0][-1] == "-"
    paired = change_tables([result], [result], ("a", "b"))[0]
    changes = {f"focal {name}" for name in CHANGES}
    assert not changes.isdisjoint(row[0] for row in paired.rows)


def one_change(scenario: Scenario, old: Forecast, new: Forecast) -> list[float]:
    """Return the changes of the focal agent's forecast within 5 steps, one mode after the other."""
    a = old.track_id.tolist().index(scenario.focal_id)
    b = new.track_id.tolist().index(scenario.focal_id)
    gap = old.trajectory[a][:, None, 5:] - new.trajectory[b][None, :, :-5]
    cost = np.hypot(gap[..., 0], gap[..., 1]).mean(-1)
    rows, partner = linear_sum_assignment(cost)
    apart = cost[rows, partner]
    p = old.probability[a]
    q = new.probability[b][partner]
    weighted = ((p + q) / 2 * apart).sum()
    return [apart.mean(), weighted, float(q[p.argmax()] < q.max()), np.abs(p - q).sum() / 2]


def test_clocks_that_differ_a_little_have_the_same_updates() -> None:
    usual = steady()
    faster = replace(usual, scenario_id="faster", timestamps_ns=usual.timestamps_ns * 998 // 1000)
    found = streamed([usual, faster])
    assert [name for name in found if name.startswith("minADE6")] == [
        f"minADE6_after_{update}" for update in ("1s", "1.5s", "2s")
    ]
    for name, change in zip(CHANGES, (0.5, 0.5, 0.0, 0.0), strict=True):
        assert np.nanmean(found[name]) == pytest.approx(change, abs=1e-2)


@pytest.mark.parametrize(("seconds", "observed"), [(0.5, 5), (2.0, 20), (8.0, 80)])
def test_every_state_is_history_or_future(store: ScenarioStore, seconds: float, observed: int) -> None:
    before = store[0].tracks
    moved = ObservedStore(store, seconds)
    after = moved[0]
    assert moved.lengths == (max(observed, 50), 110 - observed)
    assert (after.num_observed, after.num_future) == moved.lengths
    unknown = after.num_observed - observed
    assert not after.tracks.valid[:, :unknown].any()
    for name in ("valid", "position", "heading", "velocity"):
        assert np.array_equal(getattr(after.tracks, name)[:, unknown:], getattr(before, name)), name
    assert np.array_equal(after.timestamps_ns[unknown:], store[0].timestamps_ns)
    assert (np.diff(after.timestamps_ns) > 0).all()
    assert after.step_s == pytest.approx(store[0].step_s, rel=1e-3)
    coarse = moved.resampled(0.5)[0]
    assert (coarse.num_future, coarse.step_s) == (22 - observed // 5, pytest.approx(0.5))
    assert coarse.timestamps_ns[coarse.num_observed - 1] == after.timestamps_ns[after.num_observed - 1]


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
    seconds = {column.ahead for column in columns_in(result.agents)}
    assert seconds == {None, *range(1, 9)}


def test_scenarios_without_a_focal_track_by_then_are_not_evaluated(store: ScenarioStore) -> None:
    """The focal track of the first scenario is seen from the eleventh step on."""

    def late(scenario: Scenario) -> Scenario:
        is_first = scenario.scenario_id == store.scenario_ids[0]
        return hidden(scenario, np.s_[scenario.focal, :10]) if is_first else scenario

    for seconds, count in ((1.0, len(store) - 1), (1.1, len(store))):
        observed = ObservedStore(ChangedStore(store, late), seconds)
        assert evaluate(load_predictor("constant_velocity"), observed, progress=False).scenarios == count


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.04, 11.0, 10.97, float("nan")])
def test_impossible_times_are_one_sentence(store: ScenarioStore, seconds: float) -> None:
    rejects(r"must be 0.1 s or more, and less than the 11 s of the scenarios", ObservedStore, store, seconds)


def test_several_times_give_several_tables(
    store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    options = ["--store", store_path, "--split", "train", "--half", "deciding", "--observe-s", "0.5", "2"]
    options += ["--perturb", "noise", "--group", "moving"]
    printed = output_of(capsys, "stress", *options, "--out", out)
    for seconds in ("0.5", "2"):
        part = f"deciding half, after {seconds} s"
        assert f"scenarios, {part}, K = 6" in printed
        assert f"moving agents, perturbed scenarios, {part}" in printed
    results = json.loads(out.read_text())
    assert [one["observed_s"] for one in results] == [0.5] * 2 + [2.0] * 2
    assert {one["half"] for one in results} == {"deciding"}
    names = ScenarioStore(store_path, "train").halved("deciding").scenario_ids
    assert {*results[0]["per_scenario"]["focal"]["scenario_id"]} <= {*names}
    assert "deciding half, after 2 s" in error_of(capsys, "compare", "--results", out)


def test_a_file_of_the_whole_split_has_no_faults_in_a_half(store_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.parquet"
    options = ("--store", store_path, "--split", "train")
    assert run("predict", *options, "--checkpoint", "constant_velocity", "--out", out) == 0
    for half in ("deciding", "reporting"):
        assert run("evaluate", *options, "--checkpoint", out, "--half", half, "--check-with-av2") == 0
