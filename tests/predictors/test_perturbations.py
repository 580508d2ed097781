"""Perturbed scenarios lose what is named, and nothing else."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from tests.conftest import ROOT, equal, output_of, rejects
from tests.scenes import hidden
from tests.viz.scenes import make_scenario
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES, TrackCategory
from trajpred.predictors.perturbations import PERTURBATIONS, perturbation, road_users, short_history, without


@pytest.fixture
def scenario(sample_scenarios: list[Scenario]) -> Scenario:
    return next(s for s in sample_scenarios if s.has_future and len(s.tracks) > 20)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_perturbation_is_valid_reproducible_and_keeps_the_future(scenario: Scenario, name: str) -> None:
    one = PERTURBATIONS[name](scenario).validate()
    other = PERTURBATIONS[name](scenario).validate()
    rows = [scenario.tracks.index(track) for track in one.tracks.track_id]
    for field in ("position", "valid", "velocity", "heading"):
        a = getattr(one.tracks, field)
        b = getattr(other.tracks, field)
        before = getattr(scenario.tracks, field)
        assert np.array_equal(a, b)
        assert np.array_equal(a[:, 50:], before[rows, 50:])
    assert set(scenario.tracks.track_id[scenario.tracks.valid[:, 50:].any(1)]) <= set(one.tracks.track_id)


def test_perturbations_remove_or_disturb_what_they_name(scenario: Scenario) -> None:
    before = scenario.tracks
    found = {name: perturb(scenario) for name, perturb in PERTURBATIONS.items()}
    assert len(found["no-map"].map) == 0 < len(scenario.map)
    short, late = short_history(scenario, 1.0).tracks, before.valid[:, 40:].any(1)
    assert short.track_id.tolist() == before.track_id[late].tolist()
    assert not short.valid[:, :40].any()
    assert np.array_equal(short.valid[:, 40:], before.valid[late, 40:])
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
    assert not gone[~others].any()
    assert 0.25 < gone[others].mean() < 0.75
    position = found["noise"].tracks.position
    off = (position - before.position)[:, :50][before.valid[:, :50]]
    assert off.std() == pytest.approx(0.2, rel=0.05)
    assert abs(off.mean()) < 0.02
    assert (position[:, :50][~before.valid[:, :50]] == 0).all()


def test_the_focal_track_keeps_its_last_observed_state(scenario: Scenario) -> None:
    lost = hidden(scenario, np.s_[scenario.focal, 30:50])
    for found in (PERTURBATIONS["gap"](lost), short_history(lost, 1.0)):
        assert found.last_seen[found.focal] == 29


def test_removed_tracks_are_gone_and_nothing_else_changes(scenario: Scenario) -> None:
    tracks = scenario.tracks
    [nearest] = road_users(scenario, ["nearest"])
    rest = without(scenario, [nearest]).validate()
    kept = [name for name in tracks.track_id if name != nearest]
    assert rest.tracks.track_id.tolist() == kept
    assert rest.map is scenario.map
    rows = [tracks.index(name) for name in kept]
    for name in ("position", "heading", "velocity", "valid", "object_type", "category"):
        assert np.array_equal(getattr(rest.tracks, name), getattr(tracks, name)[rows]), name
    assert equal(without(scenario, []), scenario)
    for names, match in (([scenario.focal_id], "focal"), (["AV", "nobody"], "'nobody' is not in")):
        rejects(match, without, scenario, names)


def test_nearest_is_a_road_user_at_the_last_observed_step() -> None:
    """The bus is 4.5 m from the car, the walker 6.3 m, the AV 15.9 m; the cyclist was lost before."""
    scene = make_scenario()
    assert road_users(scene, ["nearest", "AV"]) == ["bus", "AV"]
    rejects("without", lambda: road_users(without(scene, ["AV", "walker", "bus"]), ["nearest"]))
    types = scene.tracks.object_type.copy()
    types[scene.tracks.index("bus")] = OBJECT_TYPES.index("construction")
    cone = replace(scene, tracks=replace(scene.tracks, object_type=types))
    assert road_users(cone, ["nearest"]) == ["walker"]


#: The fields of the map that each perturbation removes.
MAP_FIELDS = {
    "no-boundaries": {"left_boundary", "right_boundary"},
    "no-marks": {"left_mark", "right_mark"},
    "no-crossings": {"crossing_id", "crossing_edge1", "crossing_edge2"},
    "no-lane-types": {"lane_type"},
}


@pytest.fixture
def mapped(scenario: Scenario) -> Scenario:
    """A scenario whose lanes include a bike lane."""
    kinds = scenario.map.lane_type.copy()
    kinds[0] = 1
    return replace(scenario, map=replace(scenario.map, lane_type=kinds))


@pytest.mark.parametrize("name", MAP_FIELDS)
def test_parts_of_the_map_are_as_if_they_had_not_been_given(mapped: Scenario, name: str) -> None:
    before = mapped.map
    after = PERTURBATIONS[name](mapped).map
    bare = LaneMap(lane_id=before.lane_id, centerline=before.centerline)
    for field in (one.name for one in fields(LaneMap)):
        expected = bare if field in MAP_FIELDS[name] else before
        assert equal(getattr(after, field), getattr(expected, field)), field
        assert equal(getattr(after, field), getattr(before, field)) == (field not in MAP_FIELDS[name]), field


def test_classes_are_unknown_and_states_are_derived(scenario: Scenario) -> None:
    classless = PERTURBATIONS["no-classes"](scenario)
    assert {OBJECT_TYPES[code] for code in classless.tracks.object_type} == {"unknown"}
    assert equal(replace(classless.tracks, object_type=scenario.tracks.object_type), scenario.tracks)
    derived = PERTURBATIONS["derived-states"](scenario)
    recorded = scenario.tracks
    seen = recorded.valid[:, :50].any(axis=1)
    bare = Scenario.from_arrays(
        recorded.position[seen, :50], num_observed=50, step_s=scenario.step_s, valid=recorded.valid[seen, :50]
    )
    for name in ("heading", "velocity"):
        found = getattr(derived.tracks, name)
        before = getattr(recorded, name)
        assert np.allclose(found[seen, :50], getattr(bare.tracks, name)), name
        assert not np.allclose(found[:, :50], before[:, :50]), name
        assert np.array_equal(found[:, 50:], before[:, 50:]), name


def test_joined_perturbations_are_applied_one_after_another(mapped: Scenario) -> None:
    both = perturbation("no-marks+noise")(mapped)
    assert equal(both, PERTURBATIONS["noise"](PERTURBATIONS["no-marks"](mapped)))


def test_noise_has_the_size_of_its_name(scenario: Scenario) -> None:
    valid = scenario.tracks.valid[:, :50]
    for name, metres in (("noise:0.1", 0.1), ("slow-noise", 0.2), ("slow-noise:0.5", 0.5)):
        moved = perturbation(name)(scenario).tracks.position - scenario.tracks.position
        assert moved[:, :50][valid].std() == pytest.approx(metres, rel=0.1), name
        assert not moved[:, 50:].any()
    both = perturbation("noise:0.1+derived-states")(scenario)
    assert equal(both, PERTURBATIONS["derived-states"](perturbation("noise:0.1")(scenario)))
    for name in ("noise:much", "noise:-1", "noise:inf", "noise:"):
        rejects("must be a number of metres", perturbation, name)
    rejects("only noise and slow-noise have a size", perturbation, "gap:1")


def test_help_and_page_name_every_perturbation(capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, "stress", "--help")
    page = (ROOT / "docs" / "how-to" / "evaluate.md").read_text("utf-8")
    assert [name for name in PERTURBATIONS if name not in text] == []
    assert [name for name in PERTURBATIONS if f"| `{name}` |" not in page] == []
