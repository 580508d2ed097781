"""Changed scenarios: perturbed ones lose what is named, earlier ones what came later, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import equal
from tests.viz.scenes import make_scenario
from trajpred.errors import DataError
from trajpred.forecast import Forecast
from trajpred.predictors import EnsemblePredictor, load_predictor
from trajpred.predictors.derived import (
    PERTURBATIONS,
    StreamedForecast,
    StreamedPredictor,
    perturbed,
    road_users,
    short_history,
    without,
)
from trajpred.predictors.predict import predict
from trajpred.scenario import OBJECT_TYPES, Scenario, TrackCategory
from trajpred.store import ScenarioStore


@pytest.fixture
def scenario(sample_scenarios: list[Scenario]) -> Scenario:
    return next(s for s in sample_scenarios if s.has_future and len(s.tracks) > 20)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_perturbation_is_valid_reproducible_and_keeps_the_future(scenario: Scenario, name: str) -> None:
    one, other = (PERTURBATIONS[name](scenario).validate() for _ in range(2))
    rows = [scenario.tracks.index(track) for track in one.tracks.track_id]
    for field in ("position", "valid", "velocity", "heading"):
        a, b, before = (getattr(s.tracks, field) for s in (one, other, scenario))
        assert np.array_equal(a, b) and np.array_equal(a[:, 50:], before[rows, 50:])
    assert set(scenario.tracks.track_id[scenario.tracks.valid[:, 50:].any(1)]) <= set(one.tracks.track_id)


def test_perturbations_remove_or_disturb_what_they_name(scenario: Scenario) -> None:
    before = scenario.tracks
    found = {name: perturb(scenario) for name, perturb in PERTURBATIONS.items()}
    assert len(found["no-map"].map) == 0 < len(scenario.map)
    short, late = short_history(scenario, 1.0).tracks, before.valid[:, 40:].any(1)
    assert short.track_id.tolist() == before.track_id[late].tolist()
    assert not short.valid[:, :40].any() and np.array_equal(short.valid[:, 40:], before.valid[late, 40:])
    hidden = np.isin(np.arange(110), (45, 46, 47, 48))
    lost = found["gap"].tracks
    assert lost.track_id.tolist() == before.track_id[before.valid[:, ~hidden].any(1)].tolist()
    assert not lost.valid[:, hidden].any()
    rows = np.isin(before.track_id, lost.track_id)
    assert np.array_equal(lost.valid[:, ~hidden], before.valid[rows][:, ~hidden])
    fewer = found["fewer-agents"].tracks
    left = fewer.track_id[fewer.valid[:, :50].any(1)]
    gone = before.valid[:, :50].any(1) & ~np.isin(before.track_id, left)
    others = before.category < TrackCategory.SCORED
    assert not gone[~others].any() and 0.25 < gone[others].mean() < 0.75
    position = found["noise"].tracks.position
    off = (position - before.position)[:, :50][before.valid[:, :50]]
    assert off.std() == pytest.approx(0.2, rel=0.05) and abs(off.mean()) < 0.02
    assert (position[:, :50][~before.valid[:, :50]] == 0).all()


def test_the_focal_track_keeps_its_last_observed_state(scenario: Scenario) -> None:
    valid = scenario.tracks.valid.copy()
    valid[scenario.focal, 30:50] = False
    lost = replace(scenario, tracks=replace(scenario.tracks, valid=valid))
    for found in (PERTURBATIONS["gap"](lost), short_history(lost, 1.0)):
        assert found.last_seen[found.focal] == 29


def test_perturbed_predictor_sees_the_perturbed_scenario(scenario: Scenario) -> None:
    steady = load_predictor("constant_velocity")
    one = {predictor.name.split(", ")[1]: predictor for predictor in perturbed(steady, "all")}
    assert one.keys() == PERTURBATIONS.keys() and perturbed(steady, None) == []
    [plain], [blind], [noisy] = (predict([scenario]) for predict in (steady, one["no-map"], one["noise"]))
    assert np.array_equal(plain.trajectory, blind.trajectory)
    assert not np.array_equal(plain.trajectory, noisy.trajectory)
    [short] = perturbed(steady, None, [0.5])
    [late] = short([scenario])
    assert short.name == "constant_velocity, history of 0.5 s" and len(late.track_id) <= len(plain.track_id)
    for seconds in (0.0, 5.2):
        with pytest.raises(DataError, match=r"must be more than 0 and at most the 5 s of the scenarios"):
            perturbed(steady, None, [seconds])[0]([scenario])
    with pytest.raises(DataError, match="'fog' is none of no-map"):
        perturbed(steady, ["noise", "fog"])


def test_removed_tracks_are_gone_and_nothing_else_changes(scenario: Scenario) -> None:
    tracks = scenario.tracks
    [nearest] = road_users(scenario, ["nearest"])
    rest = without(scenario, [nearest]).validate()
    kept = [name for name in tracks.track_id if name != nearest]
    assert rest.tracks.track_id.tolist() == kept and rest.map is scenario.map
    rows = [tracks.index(name) for name in kept]
    for name in ("position", "heading", "velocity", "valid", "object_type", "category"):
        assert np.array_equal(getattr(rest.tracks, name), getattr(tracks, name)[rows]), name
    assert equal(without(scenario, []), scenario)
    for names, match in (([scenario.focal_id], "focal"), (["AV", "nobody"], "'nobody' is not in")):
        with pytest.raises(DataError, match=match):
            without(scenario, names)


def test_nearest_is_a_road_user_at_the_last_observed_step() -> None:
    """The bus is 4.5 m from the car, the walker 6.3 m, the AV 15.9 m; the cyclist was lost before."""
    scene = make_scenario()
    assert road_users(scene, ["nearest", "AV"]) == ["bus", "AV"]
    with pytest.raises(DataError, match="without"):
        road_users(without(scene, ["AV", "walker", "bus"]), ["nearest"])
    types = scene.tracks.object_type.copy()
    types[scene.tracks.index("bus")] = OBJECT_TYPES.index("construction")
    cone = replace(scene, tracks=replace(scene.tracks, object_type=types))
    assert road_users(cone, ["nearest"]) == ["walker"]


def streamed(scenario: Scenario, **options: float) -> StreamedForecast:
    [found] = StreamedPredictor(load_predictor("lane_following"), **options)([scenario])  # type: ignore[arg-type]
    assert isinstance(found, StreamedForecast)
    return found


def ended(scenario: Scenario, steps: int) -> Scenario:
    """Cut the last steps of a recording, which has a shorter history then."""
    names, end = ("valid", "position", "heading", "velocity"), scenario.num_steps - steps
    tracks = replace(scenario.tracks, **{name: getattr(scenario.tracks, name)[:, :end] for name in names})
    observed = scenario.num_observed - steps
    return replace(scenario, tracks=tracks, timestamps_ns=scenario.timestamps_ns[:end], num_observed=observed)


def test_an_update_is_the_forecast_of_the_recording_until_then(scenario: Scenario) -> None:
    found = streamed(scenario)
    assert [*found.earlier] == [10, 5]
    for steps, update in [*found.earlier.items(), (0, found)]:
        [expected] = load_predictor("lane_following")([ended(scenario, steps)])
        rows = update.rows(expected.track_id)
        assert len(rows) == len(update.track_id) and (rows >= 0).all()
        np.testing.assert_allclose(update.trajectory[rows], expected.trajectory, rtol=0, atol=1e-6)
        assert isinstance(update, Forecast) and update.validate()


def test_no_update_before_the_focal_track_is_seen(scenario: Scenario) -> None:
    valid = scenario.tracks.valid.copy()
    valid[scenario.focal, :40] = False
    late = replace(scenario, tracks=replace(scenario.tracks, valid=valid))
    assert not streamed(late).earlier and [*streamed(late, every_s=0.4).earlier] == [8, 4]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"every_s": 0.01}, "every_s.: must be at least a step of 0.1 s"),
        ({"every_s": 2.5}, "must be at most 2.4 s for 3 updates within the 50 observed steps"),
        ({"every_s": 0.0}, "every_s.: must be positive"),
        ({"updates": 1}, "updates.: must be 2 or more"),
        ({"updates": 60, "every_s": 0.1}, "updates.: must be at most 50, the number of observed steps"),
    ],
)
def test_impossible_updates_are_rejected(options: dict[str, float], problem: str, scenario: Scenario) -> None:
    with pytest.raises(DataError, match=problem):
        streamed(scenario, **options)


def test_predictions_files_are_rejected(store_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.parquet"
    predict(load_predictor("constant_velocity"), ScenarioStore(store_path, "val"), out, progress=False)
    file = load_predictor(out)
    for one in (file, EnsemblePredictor([load_predictor("lane_following"), file])):
        with pytest.raises(DataError, match="a predictions file contains one update only"):
            StreamedPredictor(one)
