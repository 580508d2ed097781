"""Columns of a split: means by group, breakdowns, horizons and worlds, against plain loops and av2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from av2.datasets.motion_forecasting.eval import metrics as av2

from tests.evaluation.test_evaluate import Scattered
from tests.graph.conftest import store_path  # noqa: F401
from tests.graph.scenes import straight
from trajpred.errors import DataError
from trajpred.evaluation import Evaluation, evaluate
from trajpred.evaluation.columns import displacement, horizons, whole_seconds
from trajpred.evaluation.judged import FACTS, GROUPS, Judged, judged
from trajpred.evaluation.scores import Scores
from trajpred.forecast import Forecast
from trajpred.predictors import load_predictor
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.store import ScenarioStore


class Worlds(Scattered):
    """The same six futures, mode k of all tracks being one world of a common probability."""

    joint = True

    def one(self, scenario: Scenario) -> Forecast:
        forecast = super().one(scenario)
        shared = np.repeat(forecast.probability[:1], len(forecast.track_id), 0)
        return Forecast(**{**vars(forecast), "probability": shared})


@pytest.fixture
def rows(store_path: Path) -> list[Scenario]:  # noqa: F811
    return list(ScenarioStore(store_path, "val"))


def scored(rows: Sequence[Scenario], predictor: Scattered, batch: int = 2) -> Scores:
    scores = Scores(joint=True)
    for start in range(0, len(rows), batch):
        scores.add(rows[start : start + batch], predictor(rows[start : start + batch]))
    return scores


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_scores_do_not_depend_on_batches(rows: list[Scenario], batch: int) -> None:
    one, other = scored(rows, Worlds(), 3), scored(rows, Worlds(), batch)
    assert one.names == other.names and one.judged == other.judged
    for name, values in one.focal().items():
        np.testing.assert_array_equal(values, other.focal()[name])
    for told in (
        lambda scores: {"": scores.means(scores.names)},
        Scores.horizons,
        *(lambda scores, fact=fact: scores.breakdown(fact) for fact in FACTS),
        lambda scores: {"": {"": scores.worlds.means()}},
    ):
        first, second = told(one), told(other)
        assert [*first] == [*second]
        for part, groups in first.items():
            for group, means in groups.items():
                assert means == pytest.approx(second[part][group], rel=1e-12), (part, group)


def test_means_are_those_of_the_agents(rows: list[Scenario]) -> None:
    """Of each group, of all values of the single agents."""
    some, scores = Judged.of(rows, Scattered()(rows)), scored(rows, Scattered())
    columns = displacement(some, (1, 6))
    for group, means in scores.means(scores.names).items():
        member = some.member[group]
        assert means["count"] == member.sum() > 0
        for name, values in columns.items():
            assert means[name] == pytest.approx(np.nanmean(values[member].astype(float)), rel=1e-12)
    for fact in FACTS:
        for word, groups in scores.breakdown(fact).items():
            of = columns["minFDE6"][some.facts[fact] == word].astype(float)
            assert groups["all"] == pytest.approx(groups["all"] | {"count": len(of), "minFDE6": of.mean()})
    focal = scores.focal()
    np.testing.assert_array_equal(focal["minFDE6"], columns["minFDE6"][some.member["focal"]])
    assert focal["scenario_id"].tolist() == [scenario.scenario_id for scenario in rows]


def test_parts_of_a_breakdown_add_up(rows: list[Scenario]) -> None:
    scores = scored(rows, Scattered())
    whole = scores.means(["minFDE6"])
    for fact in FACTS:
        parts = scores.breakdown(fact)
        for group in GROUPS:
            count = [part[group]["count"] for part in parts.values()]
            total = sum(
                n * part[group].get("minFDE6", 0) for n, part in zip(count, parts.values(), strict=True)
            )
            assert sum(count) == whole[group]["count"]
            assert total / sum(count) == pytest.approx(whole[group]["minFDE6"], rel=1e-6), fact


def test_facts_are_those_of_the_tracks(rows: list[Scenario]) -> None:
    some = Judged.of(rows, Scattered()(rows))
    columns = {"track_id": some.track_id, **some.facts}
    for i in range(0, len(columns["track_id"]), 17):
        scenario = rows[some.scene[i]]
        tracks, now = scenario.tracks, scenario.num_observed
        row = tracks.index(columns["track_id"][i])
        assert columns["class"][i] == OBJECT_TYPES[tracks.object_type[row]]
        assert columns["city"][i] == scenario.city
        speed = np.linalg.norm(tracks.velocity[row, now - 1])
        low, *_, high = columns["speed (m/s)"][i].split()
        assert float(low) <= speed and (high == "more" or speed < float(high))
        seen = np.flatnonzero(tracks.valid[:, now - 1])
        apart = np.linalg.norm(tracks.position[seen, now - 1] - tracks.position[row, now - 1], axis=1)
        low, *_, high = columns["neighbours within 30 m"][i].split()  # "0", "1 to 4", "20 and more"
        near = (apart <= 30).sum() - 1
        assert int(low) <= near and (high == "more" or near <= int(high))


def test_horizons_are_what_a_shorter_future_would_give(rows: list[Scenario]) -> None:
    predictor = Scattered()
    found = horizons(Judged.of(rows, predictor(rows)))
    assert [*found] == ["1 s", "2 s", "3 s", "4 s", "5 s", "6 s"]
    for second in (1, 3, 6):
        columns, expected = found[f"{second} s"], []
        for scenario in rows:
            forecast = predictor.one(scenario)
            row = forecast.track_id.tolist().index(scenario.focal_id)
            cut = 10 * second
            truth = scenario.tracks.position[scenario.focal, 50 : 50 + cut]
            modes = forecast.trajectory[row, :, :cut]
            fde = av2.compute_fde(modes, truth)
            brier = av2.compute_brier_fde(modes, truth, forecast.probability[row])[fde.argmin()]
            missed = av2.compute_is_missed_prediction(modes, truth).all()
            expected.append([av2.compute_ade(modes, truth).min(), fde.min(), missed, brier])
        for name, values in zip(
            ("minADE6", "minFDE6", "MR6", "brier-minFDE6"), np.transpose(expected), strict=True
        ):
            np.testing.assert_allclose(columns[name][columns["focal"]], values, rtol=1e-5)


def test_a_horizon_is_of_those_who_are_there_then(rows: list[Scenario]) -> None:
    found = scored(rows, Scattered()).horizons()
    for second in (1, 6):
        there = [judged(s)["all"] & s.tracks.valid[:, 49 + 10 * second] for s in rows]
        assert found[f"{second} s"]["all"]["count"] == sum(int(one.sum()) for one in there)
    assert found["1 s"]["all"]["count"] > found["6 s"]["all"]["count"]


def test_worlds_are_scored_as_av2_does(rows: list[Scenario]) -> None:
    predictor = Worlds()
    found = scored(rows, predictor).worlds.means()
    fde, missed, collided = [], [], []
    for scenario in rows:
        forecast, members = predictor.one(scenario), np.flatnonzero(judged(scenario)["scored"])
        said = forecast.rows(scenario.tracks.track_id)[members]
        paths, truth = forecast.trajectory[said], scenario.tracks.position[members, 50:]
        each = av2.compute_world_fde(paths, truth)
        best = int(each.argmin())
        fde.append(each.min())
        missed += av2.compute_world_misses(paths, truth)[:, best].tolist()
        collided += av2.compute_world_collisions(paths)[:, best].tolist()
    assert found["count"] == len(rows) and found["actors"] == len(missed) > len(rows)
    assert found["avgMinFDE"] == pytest.approx(np.mean(fde), rel=1e-6)
    assert np.mean(missed) > 0 and found["actorMR"] == pytest.approx(np.mean(missed))
    assert found["actorCR"] == pytest.approx(np.mean(collided))


def test_marginal_forecasts_of_several_agents_are_no_worlds(rows: list[Scenario]) -> None:
    alone = sum(judged(scenario)["scored"].sum() == 1 for scenario in rows)
    assert scored(rows, Scattered()).worlds.means()["count"] == alone < len(rows)


def test_scenarios_with_fewer_modes_are_scored_as_they_are() -> None:
    """Side by side with six, one mode stays one."""
    scenarios = [straight(2), straight(3)]
    [six], [one] = Scattered()(scenarios[:1]), load_predictor("constant_velocity")(scenarios[1:])
    both = displacement(Judged.of(scenarios, [six, one]), (1, 6))
    for i, forecast in enumerate((six, one)):
        alone = displacement(Judged.of(scenarios[i : i + 1], [forecast]), (1, 6))
        at = np.isin(np.arange(5), [0, 1]) if i == 0 else np.arange(5) >= 2
        for name in ("minADE1", "minADE6", "minFDE6", "brier-minFDE6", "brier-minADE6"):
            np.testing.assert_allclose(both[name][at], alone[name], atol=1e-6)


def test_a_forecast_longer_than_the_truth_is_refused(rows: list[Scenario]) -> None:
    long = load_predictor("constant_velocity")(rows[:1])[0]
    path = np.concatenate([long.trajectory] * 2, 2)
    twice = Forecast.from_trajectories(
        long.scenario_id, long.track_id, path, long.probability, origin=path[:, 0, 0],
        origin_heading=np.zeros(len(path)), step_s=0.1,
    )  # fmt: skip
    with pytest.raises(DataError, match="120 steps, 60 are known"):
        Judged.of(rows[:1], [twice])


def test_an_evaluation_holds_all_of_it(store_path: Path) -> None:  # noqa: F811
    store = ScenarioStore(store_path, "val")
    found: Evaluation = evaluate(Worlds(), store, ks=(1, 3, 6), limit=3, progress=False)
    assert found.scenarios == found.worlds["count"] == 3
    assert [*found.horizons] == [f"{s} s" for s in range(1, 7)]
    last, whole = found.horizons["6 s"]["focal"], found.metrics["focal"]
    assert last["minFDE6"] == pytest.approx(whole["minFDE6"]) and {"minADE3", "MR3"} <= whole.keys()
    assert whole["ADE-of-best-FDE6"] >= whole["minADE6"]
    assert 0 <= whole["average heading error6"] <= np.pi


def test_a_forecast_that_is_not_finite_is_refused(rows: list[Scenario]) -> None:
    """It must not drop out of the means."""
    [forecast] = load_predictor("constant_velocity")(rows[:1])
    forecast.trajectory[:, 0, 30] = np.nan
    with pytest.raises(DataError, match="not finite"):
        Judged.of(rows[:1], [forecast])


def test_whole_seconds_are_those_that_steps_meet() -> None:
    assert whole_seconds(60, 0.1) == {s: 10 * s for s in range(1, 7)}
    assert whole_seconds(20, 0.4) == {2: 5, 4: 10, 6: 15, 8: 20}
    assert whole_seconds(3, 0.5) == {1: 2}
