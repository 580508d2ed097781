"""Labels that a teacher continues: what is recorded stays, and the draw follows the probabilities."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import equal, rejects
from trajpred.data.scenario import Scenario
from trajpred.predictors import load_predictor
from trajpred.predictors.continuation import Continuation

TEACHER = "argoverse-nano"


@pytest.fixture(scope="module")
def recording(sample_scenarios: list[Scenario]) -> Scenario:
    """The observed half of a scenario of the sample."""
    whole = next(scenario for scenario in sample_scenarios if scenario.has_future)
    return whole.window(future=0)


def test_recorded_steps_stay_and_continued_ones_can_be_removed(recording: Scenario) -> None:
    longer = Continuation(TEACHER, 2.5)(recording)
    assert longer.num_steps == 75
    assert longer.continued == 25
    assert equal(longer.without_continuation(), recording)
    spacing = np.diff(longer.timestamps_ns[49:]) / 1e9
    np.testing.assert_allclose(spacing, recording.step_s, rtol=1e-6)


def test_others_are_continued_where_the_focal_track_was_lost_long_ago(recording: Scenario) -> None:
    """The teacher reads 5 s; the focal track of this recording of 8 s was seen in its first two only."""
    steps = 80
    x = np.arange(steps)[None, :, None] * np.array([1.0, 0.0])
    valid = np.stack((np.arange(steps) < 20, np.ones(steps, bool)))
    lost = Scenario.from_arrays(np.concatenate((x, x + 9)), valid=valid, num_observed=50)
    longer = Continuation(TEACHER, 1.0)(lost)
    assert longer.tracks.valid[:, steps:].all(axis=1).tolist() == [False, True]


def test_a_recording_at_whose_end_nobody_is_seen_has_nothing_to_continue(recording: Scenario) -> None:
    longer = Continuation(TEACHER, 8.0)(recording.window(future=10))
    assert (longer.num_steps, longer.continued) == (140, 80)
    assert not longer.tracks.valid[:, 50:].any()


def test_every_road_user_follows_one_future_of_the_teacher(recording: Scenario) -> None:
    [forecast] = load_predictor(TEACHER)([replace(recording, num_observed=50)])
    longer = Continuation(TEACHER, 6.0)(recording)
    visible = recording.tracks.valid[:, -1]
    assert (longer.tracks.valid[:, 50:] == visible[:, None]).all()
    row = forecast.rows(recording.tracks.track_id)
    moving = 0
    for track in np.flatnonzero(visible):
        path = longer.tracks.position[track, 50:]
        stays = np.ptp(path, axis=0).max() == 0
        distance = np.abs(forecast.trajectory[row[track]] - path).max(axis=(1, 2))
        assert stays or distance.min() < 1e-9
        moving += not stays
    assert moving > 3


def test_futures_are_drawn_by_their_probability(recording: Scenario) -> None:
    [forecast] = load_predictor(TEACHER)([replace(recording, num_observed=50)])
    row = int(forecast.rows(np.array([recording.focal_id]))[0])
    counts: Counter[int] = Counter()
    for seed in range(200):
        path = Continuation(TEACHER, 6.0, seed)(recording).tracks.position[recording.focal, 50:]
        counts[int(np.abs(forecast.trajectory[row] - path).max(axis=(1, 2)).argmin())] += 1
    share = np.array([counts[mode] for mode in range(6)]) / 200
    # Three standard deviations of a share of 200 draws are at most 0.106.
    np.testing.assert_allclose(share, forecast.probability[row], atol=0.106)


def test_a_longer_continuation_predicts_again_where_the_horizon_ends(recording: Scenario) -> None:
    once = Continuation(TEACHER, 6.0)(recording)
    longer = Continuation(TEACHER, 9.0)(recording)
    assert equal(longer.tracks.window(0, 110), once.tracks)
    assert longer.continued == 90
    again = Continuation(TEACHER, 3.0)(once)
    assert equal(again, longer)


def test_standing_road_users_stay_exactly_where_they_are_or_leave() -> None:
    """Noise of a tracker is no motion: a future that ends nearby is none."""
    position = np.zeros((2, 20, 2))
    position[0, :, 0] = np.arange(20)
    position[1] = [3.0, 5.0]
    position[1] += np.random.default_rng(0).normal(0, 0.02, (20, 2))
    lanes = [[[-50, 0], [150, 0]]]
    scenario = Scenario.from_arrays(position, num_observed=20, map=lanes)
    stayed = 0
    for seed in range(20):
        path = Continuation(TEACHER, 3.0, seed)(scenario).tracks.position[:, 20:]
        distance = np.abs(path[1] - position[1, -1]).max()
        stayed += distance == 0
        assert distance == 0 or distance > 1
        assert np.ptp(path[0, :, 0]) > 10
    assert stayed > 3


@pytest.mark.parametrize("seconds", [0.04, 0.25])
def test_seconds_that_are_no_whole_steps_are_refused(seconds: float) -> None:
    """The store would say that its scenarios were continued by them."""
    rejects(r"continue_s.*multiple of the teacher's 0\.1 s", Continuation, TEACHER, seconds)


def test_a_teacher_with_another_step_is_refused(recording: Scenario) -> None:
    slow = Scenario.from_arrays(np.zeros((1, 4, 2)), num_observed=4, step_s=0.5)
    rejects(r"has steps of 0\.5 s, the teacher of 0\.1 s", lambda: Continuation(TEACHER, 6.0)(slow))
