"""Means by group, horizon and fact, worlds, plausibility and calibration: against plain loops and av2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from av2.datasets.motion_forecasting.eval import metrics as av2

from tests.evaluation.predictors import Scattered, ScatteredWorlds
from tests.features.scenes import straight
from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.data.splits import GROUPS
from trajpred.evaluation.agent_scores import agent_scores, horizon_columns, horizon_scores
from trajpred.evaluation.agent_truth import FACTS, groups_of
from trajpred.evaluation.agents import ScoredAgents, whole_seconds
from trajpred.evaluation.scores import LEVELS, Scores
from trajpred.predictors import load_predictor

ROAD = [[[-100, 0], [300, 0]]]


def scored(rows: Sequence[Scenario], predictor: Scattered, batch: int = 2) -> Scores:
    scores = Scores(joint=True)
    for start in range(0, len(rows), batch):
        scores.add(rows[start : start + batch], predictor(rows[start : start + batch]))
    return scores


def test_scores_do_not_depend_on_batches(rows: list[Scenario]) -> None:
    one = scored(rows, ScatteredWorlds(), 1)
    other = scored(rows, ScatteredWorlds(), 5)
    assert one.names == other.names
    assert one.agents == other.agents
    assert one.missing == other.missing
    for group in GROUPS:
        for name, values in one.by_scenario(group).items():
            np.testing.assert_array_equal(values, other.by_scenario(group)[name])
    results: list[Callable[[Scores], dict[str, Any]]] = [
        lambda scores: {"": scores.means(scores.names)},
        Scores.horizons,
        *(lambda scores, fact=fact: scores.breakdown(fact) for fact in FACTS),
        lambda scores: {"": {group: means.means() for group, means in scores.worlds.items()}},
    ]
    for result in results:
        first, second = result(one), result(other)
        assert [*first] == [*second]
        for part, groups in first.items():
            for group, means in groups.items():
                assert means == pytest.approx(second[part][group], rel=1e-12), (part, group)


def test_means_are_those_of_the_agents_and_parts_add_up(rows: list[Scenario]) -> None:
    agents, scores = ScoredAgents.of(rows, Scattered()(rows)), scored(rows, Scattered())
    columns = agent_scores(agents, (1, 6))
    for group, means in scores.means(scores.names).items():
        member = agents.member[group]
        expected = {name: np.nanmean(x[member].astype(float)) for name, x in columns.items()}
        assert means == pytest.approx({"count": member.sum(), **expected}, rel=1e-12)
    for fact in FACTS:
        parts = scores.breakdown(fact)
        for word, groups in parts.items():
            of = columns["minFDE6"][agents.facts[fact] == word].astype(float)
            assert groups["all"] == pytest.approx(groups["all"] | {"count": len(of), "minFDE6": of.mean()})
        for group in GROUPS:
            assert sum(part[group]["count"] for part in parts.values()) == agents.member[group].sum()
    for group in GROUPS:
        sums = scores.by_scenario(group)
        assert sums["count"].sum() == agents.member[group].sum()
        assert sums["minFDE6"].sum() == pytest.approx(columns["minFDE6"][agents.member[group]].sum())
    focal = scores.by_scenario("focal")
    np.testing.assert_array_equal(focal["minFDE6"], columns["minFDE6"][agents.member["focal"]])
    assert scores.scenario_ids == [scenario.scenario_id for scenario in rows]


def test_horizons_are_whole_seconds_of_the_agents_visible_then(rows: list[Scenario]) -> None:
    """The metrics at a horizon are compared in ``metrics/test_compute.py``."""
    agents, means = ScoredAgents.of(rows, Scattered()(rows)), scored(rows, Scattered()).horizons()
    found = horizon_scores(agents)
    assert [*found] == [*means] == [f"{second} s" for second in range(1, 7)]
    for second, (_, values) in enumerate(found.values(), 1):
        visible = np.concatenate([s.tracks.valid[groups_of(s)["all"], 49 + 10 * second] for s in rows])
        assert means[f"{second} s"]["all"]["count"] == visible.sum()
        assert means[f"{second} s"]["all"]["minFDE6"] == pytest.approx(values[visible, 1].mean(), rel=1e-5)
    assert means["1 s"]["all"]["count"] > means["6 s"]["all"]["count"]


@pytest.mark.parametrize("group", ["scored", "all"])
def test_worlds_equal_av2(rows: list[Scenario], group: str) -> None:
    """av2 knows complete futures only, so it gets the last recorded step of each agent."""
    predictor = ScatteredWorlds()
    found = scored(rows, predictor).worlds[group].means()
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


def test_marginal_or_incomplete_forecasts_are_no_worlds(rows: list[Scenario]) -> None:
    alone = sum(groups_of(scenario)["scored"].sum() == 1 for scenario in rows)
    assert scored(rows, Scattered()).worlds["scored"].means()["count"] == alone < len(rows)
    assert scored(rows, Scattered()).worlds["all"].means() == {"count": 0, "incomplete": 0}
    scored_id = rows[0].tracks.track_id[groups_of(rows[0])["scored"]][-1]
    for means in scored(rows, ScatteredWorlds(frozenset({str(scored_id)}))).worlds.values():
        found = means.means()
        assert found["count"] == len(rows) - 1
        assert found["incomplete"] == 1


def test_scenarios_with_fewer_modes_are_scored_as_they_are() -> None:
    scenarios = [straight(2, map=ROAD), straight(3, map=ROAD)]
    [six], [one] = Scattered()(scenarios[:1]), load_predictor("constant_velocity")(scenarios[1:])
    both = agent_scores(ScoredAgents.of(scenarios, [six, one]), (1, 6), plausibility=True)
    for i, forecast in enumerate((six, one)):
        alone = agent_scores(ScoredAgents.of(scenarios[i : i + 1], [forecast]), (1, 6), plausibility=True)
        for name, values in alone.items():
            np.testing.assert_allclose(both[name][2 * i : 2 + 3 * i], values, atol=1e-6, err_msg=name)


def test_whole_seconds_are_those_that_are_steps() -> None:
    assert whole_seconds(60, 0.1) == {s: 10 * s for s in range(1, 7)}
    assert whole_seconds(20, 0.4) == {2: 5, 4: 10, 6: 15, 8: 20}
    assert whole_seconds(3, 0.5) == {1: 2}


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
    agents = ScoredAgents.of([scenario], [fan(scenario, [0.0, 0.5, np.pi], [0.5, 0.3, 0.2])])
    found = agent_scores(agents, (6,), plausibility=True)
    shares = {name: found[name].item() for name in ("off-road", "wrong-way", "infeasible")}
    assert shares == pytest.approx({"off-road": 0.3, "wrong-way": 0.2, "infeasible": 0.2})


def cut(agents: ScoredAgents, steps: int) -> ScoredAgents:
    """End the futures after so many steps."""
    ahead = {name: getattr(agents, name)[:, :, :steps] for name in ("trajectory", "heading")}
    truth = {name: getattr(agents, name)[:, :steps] for name in ("target", "target_heading", "valid")}
    return replace(agents, **ahead, **truth)


def test_plausibility_by_seconds_ahead_is_that_of_futures_cut_there(rows: list[Scenario]) -> None:
    agents = ScoredAgents.of(rows, Scattered()(rows))
    names = ("final heading error6", "off-road futures", "infeasible futures", "standing drift")
    for second, (visible, values) in enumerate(horizon_scores(agents, plausibility=True).values(), 1):
        expected = agent_scores(cut(agents, 10 * second), (6,), plausibility=True)
        found = dict(zip(horizon_columns(plausibility=True), values.T, strict=True))
        for name in names:
            np.testing.assert_allclose(found[name][visible], expected[name][visible], atol=1e-6, err_msg=name)
            assert np.nanmax(found[name][visible]) > 0, name


def test_shares_count_modes_and_rise_with_the_seconds_ahead() -> None:
    """One car on a lane of 3.5 m: two of three modes leave it, one of them after two and a half seconds."""
    scenario = straight(1, map=ROAD)
    speed = float(np.hypot(*scenario.tracks.velocity[0, scenario.num_observed - 1]))
    slow = np.arcsin(1.75 / (2.5 * speed))  # aside by half a lane's width after 2.5 s
    forecast = fan(scenario, [0.0, 0.5, slow], [0.5, 0.3, 0.2])
    agents = ScoredAgents.of([scenario], [forecast])
    column = horizon_columns(plausibility=True).index("off-road futures")
    shares = [part.values[0, column] for part in horizon_scores(agents, plausibility=True).values()]
    assert shares == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3, 2 / 3, 2 / 3])
    assert agent_scores(agents, (6,), plausibility=True)["off-road futures"] == pytest.approx([2 / 3])


def test_standing_drift_is_of_those_that_truly_stand() -> None:
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
    found = agent_scores(ScoredAgents.of([scenario], [forecast]), (6,), plausibility=True)
    assert found["standing drift"] == pytest.approx([0.3 * ends, np.nan, np.nan], nan_ok=True)


def test_map_metrics_are_undefined_without_a_map() -> None:
    scenario, scores = straight(1), Scores(plausibility=True)
    scores.add([scenario], [fan(scenario, [0.0, np.pi], [0.5, 0.5])])
    means = scores.means(["off-road", "wrong-way", "infeasible"])["focal"]
    assert means == pytest.approx({"count": 1, "infeasible": 0.5})


def test_worlds_collide_where_paths_cross() -> None:
    scenario = straight(2, map=ROAD)
    for crossing, share in ((False, 0.0), (True, 0.3)):
        forecast = fan(scenario, [0.0, 0.0], [0.7, 0.3])
        if crossing:
            forecast.trajectory[1, 1] = forecast.trajectory[0, 1]
        found = agent_scores(ScoredAgents.of([scenario], [forecast]), (6,), plausibility=True)
        assert found["collision"] == pytest.approx([share, share])


def test_calibrated_probabilities_and_scales_are_measured_as_such() -> None:
    """Truths drawn from the forecasts."""
    random, scores, probability = np.random.default_rng(0), Scores(plausibility=True), [0.5, 0.3, 0.2]
    for _ in range(300):
        scenario = straight(1)
        forecast = fan(scenario, [0.0, 0.0, 0.0], probability)
        forecast.trajectory[0, 1:] += np.array([[[0, 100.0]], [[0, -100.0]]])
        scale = np.broadcast_to([2.0, 0.5], forecast.trajectory.shape).copy()
        truth = forecast.trajectory[0, random.choice(3, p=probability)]
        scenario.tracks.position[0, 50:] = truth + random.laplace(0, [2.0, 0.5], truth.shape)
        scores.add([scenario], [replace(forecast, scale=scale)])
    assert scores.calibration is not None
    found = scores.calibration.summary()["focal"]
    assert found["ECE"] < 0.05
    assert found["top ECE"] < 0.08
    assert [*found["coverage"].values()] == pytest.approx(LEVELS, abs=0.01)
    for second in scores.horizons().values():
        assert second["focal"]["held by 80% interval"] == pytest.approx(0.8, abs=0.05)


def test_calibration_counts_the_modes_that_exist() -> None:
    scenarios = [straight(1), straight(1)]
    one, six = fan(scenarios[0], [0.0], [1.0]), fan(scenarios[1], [0.1 * i for i in range(6)], [1 / 6] * 6)
    both = Scores(plausibility=True)
    both.add(scenarios, [one, six])
    assert both.calibration is not None
    found = both.calibration.summary()["focal"]["reliability"]
    assert found["count"] == [6, 1]
    assert found["frequency"][1] == 1.0
