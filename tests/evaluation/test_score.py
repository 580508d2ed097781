"""Scores of agents and scenes, and their means by group, horizon and fact: against plain loops and av2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from av2.datasets.motion_forecasting.eval import metrics as av2
from numpy.typing import NDArray

from tests.evaluation.predictors import Scattered, ScatteredJoint
from tests.scenes import hidden, straight
from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.data.splits import GROUPS
from trajpred.evaluation import Evaluation
from trajpred.evaluation.agents import ScoredAgents, groups_of, truth_of
from trajpred.evaluation.score import agents_table, scenes_table, score_agents
from trajpred.evaluation.table import EVERY, FACTS, calibration_errors, columns_in, members, summary
from trajpred.metrics import headline
from trajpred.predictors import load_predictor

ROAD = [[[-100, 0], [300, 0]]]


def tables_of(
    rows: Sequence[Scenario], forecasts: Sequence[Forecast], plausibility: bool = False
) -> tuple[pa.Table, pa.Table]:
    """The tables of agents and of scenes."""
    agents = ScoredAgents.of(rows, forecasts)
    values = score_agents(agents, 0.1, plausibility)
    return agents_table(agents, values, plausibility), scenes_table(agents)


def scored(rows: Sequence[Scenario], predictor: Scattered, batch: int = 2) -> Evaluation:
    agents, scenes = [], []
    for start in range(0, len(rows), batch):
        part = tables_of(rows[start : start + batch], predictor(rows[start : start + batch]))
        agents.append(part[0])
        scenes.append(part[1])
    facts = {"predictor": "a", "split": "val", "scenarios": len(rows)}
    return Evaluation.of_tables(pa.concat_tables(agents), pa.concat_tables(scenes), **facts)


def values_of(
    rows: Sequence[Scenario], forecasts: Sequence[Forecast], *, ahead: int | None = None
) -> dict[str, NDArray[np.floating]]:
    """All metrics of the agents, by metric and K."""
    found = score_agents(ScoredAgents.of(rows, forecasts), 0.1, plausibility=True)
    return {column.title: values for column, values in found.items() if column.ahead == ahead}


def test_scores_do_not_depend_on_batches(rows: list[Scenario]) -> None:
    one = scored(rows, ScatteredJoint(), 1)
    other = scored(rows, ScatteredJoint(), 5)
    assert one.agents.schema.equals(other.agents.schema, check_metadata=True)
    for name in one.agents.column_names:
        assert one.agents[name].to_pylist() == pytest.approx(other.agents[name].to_pylist()), name
    assert (one.missing, one.per_scenario) == (other.missing, other.per_scenario)
    for group in GROUPS:
        assert one.metrics[group] == pytest.approx(other.metrics[group], rel=1e-12)


def test_means_are_those_of_the_agents_and_parts_add_up(rows: list[Scenario]) -> None:
    agents, result = ScoredAgents.of(rows, Scattered()(rows)), scored(rows, Scattered())
    values = values_of(rows, Scattered()(rows))
    for group, means in result.metrics.items():
        rows_of_group = agents.member[group]
        assert means["count"] == rows_of_group.sum()
        for name in means.keys() - {"count"}:
            expected = np.nanmean(values[name][rows_of_group].astype(float))
            assert means[name] == pytest.approx(expected, rel=1e-6)
    _, error, *_ = headline(6)
    for group in GROUPS:
        table = members(result.agents, group)
        found = summary(table, [*FACTS])
        assert found[EVERY][error].interval.mean == pytest.approx(result.metrics[group]["minFDE6"])
        for fact in FACTS:
            parts = [cells[error] for (of_fact, _), cells in found.items() if of_fact == fact]
            assert sum(cell.agents for cell in parts) == len(table)
            total = sum(cell.agents * cell.interval.mean for cell in parts if cell.agents)
            assert total / len(table) == pytest.approx(result.metrics[group]["minFDE6"], rel=1e-9)


def test_numeric_facts_are_broken_down_by_intervals(rows: list[Scenario]) -> None:
    result, truth = scored(rows, Scattered()), truth_of(rows, 60)
    found = summary(result.agents, ["speed", "neighbours"])
    names = [name for fact, name in found if fact == "speed"]
    assert names == ["0 to 0.5", "0.5 to 5", "5 to 10", "10 to 15", "15 and more"]
    names = [name for fact, name in found if fact == "neighbours"]
    assert names == ["0", "1 to 4", "5 to 9", "10 to 19", "20 and more"]
    slow = ((truth["speed"] >= 0.5) & (truth["speed"] < 5)).sum()
    assert found["speed", "0.5 to 5"][headline(6)[0]].agents == slow > 0


def test_horizons_are_whole_seconds_of_the_agents_visible_then(rows: list[Scenario]) -> None:
    agents = scored(rows, Scattered()).agents
    seconds = sorted({column.ahead for column in columns_in(agents) if column.ahead is not None})
    assert seconds == [1, 2, 3, 4, 5, 6]
    for second in seconds:
        visible = np.concatenate([s.tracks.valid[groups_of(s)["all"], 49 + 10 * second] for s in rows])
        column = agents[f"minFDE6_{second}s"]
        assert column.is_valid().to_pylist() == visible.tolist()
    whole = agents["minFDE6"].to_numpy()[visible]
    np.testing.assert_allclose(agents["minFDE6_6s"].to_numpy()[visible], whole, rtol=1e-6)


@pytest.mark.parametrize("group", ["scored", "all"])
def test_joint_metrics_equal_av2(rows: list[Scenario], group: str) -> None:
    """av2 knows complete futures only, so it gets the last recorded step of each agent."""
    predictor = ScatteredJoint()
    found = scored(rows, predictor).joint[group]
    fde, missed, collided = [], [], []
    for scenario in rows:
        forecast, members = predictor.one(scenario), np.flatnonzero(groups_of(scenario)[group])
        row = forecast.rows(scenario.tracks.track_id)[members]
        paths, valid = forecast.trajectory[row], scenario.tracks.valid[members, 50:]
        last = 59 - valid[:, ::-1].argmax(axis=1)
        truth, agent = scenario.tracks.position[members, 50 + last][:, None], np.arange(len(members))
        ends = paths[agent, :, last][:, :, None]
        each = av2.compute_world_fde(ends, truth)
        best = int(each.argmin())
        fde.append(each.min())
        missed += av2.compute_world_misses(ends, truth)[:, best].tolist()
        collided += av2.compute_world_collisions(paths)[:, best].tolist()
    assert found["count"] == len(rows)
    assert found["actors"] == len(missed) > len(rows)
    expected = {"avgMinFDE": np.mean(fde), "actorMR": np.mean(missed), "actorCR": np.mean(collided)}
    assert found == pytest.approx({**found, **expected}, rel=1e-6)
    assert np.mean(missed) > 0


def test_marginal_or_incomplete_forecasts_are_not_joint(rows: list[Scenario]) -> None:
    alone = sum(groups_of(scenario)["scored"].sum() == 1 for scenario in rows)
    assert scored(rows, Scattered()).joint["scored"]["count"] == alone < len(rows)
    assert scored(rows, Scattered()).joint["all"] == {"count": 0, "incomplete": 0}
    scored_id = rows[0].tracks.track_id[groups_of(rows[0])["scored"]][-1]
    result = scored(rows, ScatteredJoint(frozenset({str(scored_id)})))
    for means in result.joint.values():
        assert means["count"] == len(rows) - 1
        assert means["incomplete"] == 1
    assert result.missing["all"] == 1
    assert result.agents["minFDE6"].null_count == 1


def test_scenarios_with_fewer_modes_are_scored_as_they_are() -> None:
    scenarios = [straight(2, map=ROAD), straight(3, map=ROAD)]
    [six], [one] = Scattered()(scenarios[:1]), load_predictor("constant_velocity")(scenarios[1:])
    both = values_of(scenarios, [six, one])
    for i, forecast in enumerate((six, one)):
        alone = values_of(scenarios[i : i + 1], [forecast])
        for name, values in alone.items():
            np.testing.assert_allclose(both[name][2 * i : 2 + 3 * i], values, atol=1e-6, err_msg=name)


def fan(scenario: Scenario, turn: Sequence[float], probability: Sequence[float]) -> Forecast:
    """Every track keeps its speed along one straight line per mode, turned by ``turn`` radians."""
    tracks, now = scenario.tracks, scenario.num_observed
    origin, velocity = tracks.position[:, now - 1], tracks.velocity[:, now - 1] @ [1, 1j]
    ahead = (velocity[:, None] * np.exp(1j * np.array(turn)))[..., None] * np.arange(1, 61) * 0.1
    path = origin[:, None, None] + np.stack((ahead.real, ahead.imag), -1)
    return Forecast.from_trajectories(
        scenario.scenario_id, tracks.track_id, path, np.tile(probability, (len(path), 1)),
        origin=origin, origin_heading=tracks.heading[:, now - 1], step_s=0.1,
    )  # fmt: skip


def test_plausibility_is_the_probability_of_violating_modes() -> None:
    """One car on one lane: ahead, aside into the field, and back."""
    scenario = straight(1, map=ROAD)
    found = values_of([scenario], [fan(scenario, [0.0, 0.5, np.pi], [0.5, 0.3, 0.2])])
    shares = {name: found[name].item() for name in ("off-road", "wrong-way", "infeasible")}
    assert shares == pytest.approx({"off-road": 0.3, "wrong-way": 0.2, "infeasible": 0.2})


def test_collisions_are_of_the_sizes_that_tracks_have() -> None:
    """A car stops 7 m behind the centre of another, and in a truck of 12 m."""
    ends = np.array([[0.0, 0.0], [20.0, 0.0]])
    stop = np.linspace([0.0, 0.0], [13.0, 0.0], 110)
    position = np.stack((stop, np.tile(ends[1], (110, 1))))
    for size, collided in ((None, 0.0), ([[np.nan, np.nan], [12.0, 2.5]], 1.0)):
        scenario = Scenario.from_arrays(position, num_observed=50, size=size)
        forecast = Forecast.from_trajectories(
            "scenario", scenario.tracks.track_id, position[:, None, 50:], np.ones((2, 1)),
            origin=position[:, 49], origin_heading=np.zeros(2), step_s=0.1,
        )  # fmt: skip
        assert values_of([scenario], [forecast])["collision"].tolist() == [collided] * 2


def test_metrics_by_seconds_ahead_are_those_of_futures_cut_there(rows: list[Scenario]) -> None:
    """The names, of agents that are visible then; errors are compared in ``metrics/test_displacement.py``."""
    errors = ("minADE6", "MR6", "final heading error6", "standing drift")
    names = (*errors, "off-road futures", "infeasible futures")
    forecasts = Scattered()(rows)
    track_id = ScoredAgents.of(rows, forecasts).track_id
    for second in range(1, 7):
        found = values_of(rows, forecasts, ahead=second)
        ended = [hidden(scenario, np.s_[:, scenario.num_observed + 10 * second :]) for scenario in rows]
        short = [forecast.first(10 * second) for forecast in forecasts]
        expected = values_of(ended, short)
        both = np.isin(track_id, ScoredAgents.of(ended, short).track_id)
        visible = np.isfinite(found["minADE6"][both])
        for name in names:
            values = found[name][both][visible]
            np.testing.assert_allclose(values, expected[name][visible], atol=1e-6, err_msg=name)
            assert np.nanmax(values) > 0, name


def test_fractions_count_modes_and_rise_with_the_seconds_ahead() -> None:
    """One car on a lane of 3.5 m: two of three modes leave it, one of them after two and a half seconds."""
    scenario = straight(1, map=ROAD)
    speed = float(np.hypot(*scenario.tracks.velocity[0, scenario.num_observed - 1]))
    slow = np.arcsin(1.75 / (2.5 * speed))  # aside by half a lane's width after 2.5 s
    forecast = fan(scenario, [0.0, 0.5, slow], [0.5, 0.3, 0.2])
    ahead = [values_of([scenario], [forecast], ahead=second) for second in range(1, 7)]
    shares = [values["off-road futures"][0] for values in ahead]
    assert shares == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3, 2 / 3, 2 / 3])
    assert values_of([scenario], [forecast])["off-road futures"] == pytest.approx([2 / 3])


def test_standing_drift_is_of_agents_that_are_truly_stationary() -> None:
    """One mode of 0.3 drives on, one of 0.7 stands; a car that moves and one that is lost have no drift."""
    scenario = straight(3)
    tracks, now = scenario.tracks, scenario.num_observed
    forecast = fan(scenario, [0.0, 0.0], [0.3, 0.7])
    origin = tracks.position[:, now - 1]
    forecast.trajectory[:, 1] = origin[:, None]
    ends = np.hypot(*(forecast.trajectory[0, 0, -1] - origin[0]))
    tracks.position[:, now:] = origin[:, None] + [0.3, 0.0]
    tracks.position[1, now + 30] += [0.3, 0.0]  # 0.6 m away once, and back
    tracks.valid[2, -1] = False
    found = values_of([scenario], [forecast])
    assert found["standing drift"] == pytest.approx([0.3 * ends, np.nan, np.nan], nan_ok=True)


def test_map_metrics_are_undefined_without_a_map() -> None:
    scenario = straight(1)
    agents, _ = tables_of([scenario], [fan(scenario, [0.0, np.pi], [0.5, 0.5])], plausibility=True)
    found = [agents[name].to_pylist() for name in ("off-road", "wrong-way", "infeasible")]
    assert found == [[None], [None], [0.5]]


def test_calibrated_probabilities_and_scales_are_measured_as_such() -> None:
    """Truths drawn from the forecasts."""
    random, probability = np.random.default_rng(0), [0.5, 0.3, 0.2]
    scenarios, forecasts = [], []
    for number in range(300):
        scenario = replace(straight(1), scenario_id=str(number))
        forecast = fan(scenario, [0.0, 0.0, 0.0], probability)
        forecast.trajectory[0, 1:] += np.array([[[0, 100.0]], [[0, -100.0]]])
        scale = np.broadcast_to([2.0, 0.5], forecast.trajectory.shape).copy()
        truth = forecast.trajectory[0, random.choice(3, p=probability)]
        scenario.tracks.position[0, 50:] = truth + random.laplace(0, [2.0, 0.5], truth.shape)
        scenarios.append(scenario)
        forecasts.append(replace(forecast, scale=scale))
    agents, _ = tables_of(scenarios, forecasts, plausibility=True)
    errors = calibration_errors(agents)
    assert errors["ECE"].interval.low <= errors["ECE"].interval.mean < 0.05
    assert errors["top ECE"].interval.mean < 0.08
    for column, cell in summary(agents)[EVERY].items():
        if column.metric.kind == "calibration":
            level = float(column.title.split()[2].rstrip("%")) / 100
            tolerance = 0.01 if column.ahead is None else 0.05
            assert cell.interval.mean == pytest.approx(level, abs=tolerance), column.name
            assert cell.interval.low < cell.interval.mean < cell.interval.high


def test_calibration_counts_the_modes_that_exist() -> None:
    scenarios = [straight(1), straight(1)]
    one, six = fan(scenarios[0], [0.0], [1.0]), fan(scenarios[1], [0.1 * i for i in range(6)], [1 / 6] * 6)
    agents, _ = tables_of(scenarios, [one, six], plausibility=True)
    assert [len(p) for p in agents["probability"].to_pylist()] == [1, 6]
    # The sure mode is right; of six of 1/6 one is right, in one bin: both as often as predicted.
    assert calibration_errors(agents)["ECE"].interval.mean == pytest.approx(0.0, abs=1e-12)
