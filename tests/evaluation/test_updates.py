"""Scores of updates: closed forms in a world without acceleration, and a plain program on real scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from av2.datasets.motion_forecasting.eval import metrics as av2
from scipy.optimize import linear_sum_assignment

from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.evaluation import evaluate, read_results, write_results
from trajpred.evaluation.report import change_tables, tables
from trajpred.evaluation.scores import Scores
from trajpred.metrics import metric_names
from trajpred.predictors import Predictor, load_predictor
from trajpred.predictors.derived import StreamedForecast, StreamedPredictor
from trajpred.store import ScenarioStore

ERRORS = ("minADE6", "minFDE6")

#: Metrics of the change from one update to the next.
CHANGES = metric_names("streaming")


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


def test_known_changes_of_the_agents_visible_at_every_update() -> None:
    scores, scenario = Scores(), steady()
    scores.add([scenario], StreamedPredictor(Fan())([scenario]))
    found = scores.updates()
    for update, error in {"1 s": 1.0, "1.5 s": 0.5, "2 s": 0.0}.items():
        assert found[update]["all"]["minADE6"] == pytest.approx(error, abs=1e-6)
    for means in (scores.means(CHANGES), found["1.5 s"], found["2 s"]):
        assert [means["focal"][name] for name in CHANGES] == pytest.approx([0.5, 0.5, 0, 0], abs=1e-6)
    counts = {name: group["count"] for name, group in found["1 s"].items()}
    assert counts == {"focal": 1, "scored": 2, "moving": 2, "all": 2}, "without the third car"


def test_real_scenarios_by_a_plain_program(store_path: Path, tmp_path: Path) -> None:
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
        assert result.per_scenario[f"focal/{name}"] == pytest.approx(plain[name], abs=1e-4), name
        assert result.metrics["focal"][name] == pytest.approx(np.mean(plain[name]), abs=1e-5), name
        assert name in result.intervals["focal"]
    for name in ERRORS:
        assert result.updates["4 s"]["focal"][name] == pytest.approx(np.mean(plain[name]), abs=1e-5)
        assert result.updates["5 s"]["focal"][name] == pytest.approx(result.metrics["focal"][name], abs=1e-5)
    write_results(tmp_path / "new.json", result)
    assert read_results(tmp_path / "new.json")[0].updates == result.updates
    once = next(table for table in tables(result) if "every update" in table.title)
    assert [row[0] for row in once.rows] == ["4 s", "4.5 s", "5 s"]
    assert once.rows[0][-1] == "-"
    paired = change_tables([result], [result], 0, ("a", "b"))[0]
    assert [row[0] for row in paired.rows][5:9] == [f"focal {name}" for name in CHANGES]


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
    scores = Scores()
    scores.add([usual, faster], StreamedPredictor(Fan())([usual, faster]))
    assert [*scores.updates()] == ["1 s", "1.5 s", "2 s"]
    means = scores.means(CHANGES)["all"]
    assert [means[name] for name in CHANGES] == pytest.approx([0.5, 0.5, 0, 0], abs=1e-2)
