"""Timestamps: lost frames against the recording that lost them, and stamps that are no nanoseconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import rejected
from trajpred.data.scenario import Scenario
from trajpred.data.time import MAX_LOST, frame_steps, regular_step_s, with_lost_frames
from trajpred.errors import DataError
from trajpred.predictors.baselines import constant_velocity

SPEED = 15.0
EPOCH_NS = 315_969_904 * 10**9
#: Seconds of 50 observed and 60 future frames at 10 Hz.
TIME = np.arange(110) / 10


def drive(seconds: np.ndarray, num_observed: int) -> Scenario:
    """Return a car at 15 m/s, recorded at ``seconds``."""
    position = np.stack((3000 + SPEED * seconds, 0 * seconds), -1)
    scenario = Scenario.from_arrays(
        position[None],
        num_observed=num_observed,
        heading=np.zeros((1, len(seconds))),
        velocity=np.broadcast_to([SPEED, 0.0], (1, len(seconds), 2)),
    )
    return replace(scenario, timestamps_ns=EPOCH_NS + np.round(seconds * 1e9).astype(np.int64))


@pytest.mark.parametrize("count", [1, 3, 10, 25])
@pytest.mark.parametrize(("first", "last"), [(1, 48), (50, 108)], ids=["observed", "future"])
def test_lost_frames_are_steps_without_states(count: int, first: int, last: int) -> None:
    lost = np.random.default_rng(count).choice(np.arange(first, last + 1), count, replace=False)
    seconds = np.delete(TIME, lost)
    found = drive(seconds, int((seconds < 4.95).sum())).validate()
    assert (found.num_observed, found.num_steps) == (50, 110)
    assert found.step_s == pytest.approx(0.1, abs=1e-12)
    assert np.flatnonzero(~found.tracks.valid[0]).tolist() == sorted(lost)
    assert np.array_equal(found.timestamps_ns - EPOCH_NS, np.arange(110) * 100_000_000)
    path = constant_velocity(found).trajectory[0, 0]
    np.testing.assert_allclose(path[:, 0], 3000 + SPEED * TIME[50:], atol=1e-9)
    np.testing.assert_allclose(found.tracks.position[0, :, 0], (3000 + SPEED * TIME) * found.tracks.valid[0])


def test_clocks_that_jitter_lose_no_frame_and_keep_the_stamps_of_those_that_are_there() -> None:
    jitter_s = np.random.default_rng(0).uniform(-0.015, 0.015, 110)
    late = drive(TIME + jitter_s, 50)
    assert (late.num_observed, late.num_steps) == (50, 110)
    assert late.tracks.valid.all()
    seconds = np.delete(TIME + jitter_s, [7, 8, 70])
    found = drive(seconds, 48).validate()
    assert np.flatnonzero(~found.tracks.valid[0]).tolist() == [7, 8, 70]
    assert found.num_observed == 50
    there = found.timestamps_ns[found.tracks.valid[0]]
    assert np.array_equal(there, EPOCH_NS + np.round(seconds * 1e9).astype(np.int64))
    assert (np.diff(found.timestamps_ns) > 0).all()


@pytest.mark.parametrize(
    ("jitter", "lost", "within"), [(0.3, 0.0, 0.03), (0.4, 0.0, 0.07), (0.2, 0.3, 0.1), (0.0, 0.5, 1e-9)]
)
def test_the_step_of_clocks_that_jitter_is_right(jitter: float, lost: float, within: float) -> None:
    """In 19 of 20 recordings of 50 frames, at a share of a step, whatever share of them is lost."""
    random = np.random.default_rng(0)
    errors = []
    for _ in range(100):
        frames = np.flatnonzero(random.random(50) >= lost)
        late = random.uniform(-jitter, jitter, len(frames))
        stamps = np.round((frames + late) * 1e8).astype(np.int64)
        observed = len(stamps)
        step_s = regular_step_s(stamps)
        errors.append(abs(step_s / 0.1 - 1))
        assert (np.diff(frame_steps(stamps, observed)) > 0).all()
        regular = with_lost_frames(stamps, observed)
        steps = observed - 1 if regular is None else len(regular.frame) - 1
        assert step_s == pytest.approx((stamps[-1] - stamps[0]) / 1e9 / steps)
    ends = 2 * jitter / (50 * (1 - lost))
    assert np.quantile(errors, 0.95) <= within + ends


def test_a_future_at_a_slower_rate_has_unknown_steps() -> None:
    """Labels at 2 Hz after a history at 10 Hz."""
    found = drive(np.concatenate((TIME[:50], TIME[54::5])), 50)
    future = np.flatnonzero(found.tracks.valid[0, 50:]) + 1
    assert found.step_s == pytest.approx(0.1)
    assert future.tolist() == list(range(5, 61, 5))


def test_the_future_moves_no_observed_frame() -> None:
    observed = np.delete(np.arange(50), [10, 30]) * 100_000_000
    for ahead in (np.arange(1, 61), np.arange(1, 13) * 5, np.array([1, 2, 40])):
        regular = with_lost_frames(np.concatenate((observed, observed[-1] + ahead * 100_000_000)), 48)
        assert regular.num_observed == 50
        assert np.flatnonzero(regular.frame[:50] < 0).tolist() == [10, 30]


@pytest.mark.parametrize("observed", [1, 3, 5, 6, 20])
def test_a_short_first_interval_makes_no_gaps_of_the_others(observed: int) -> None:
    """However few frames have been observed, as in the first pictures of a film."""
    intervals = np.full(39, 100_000_000)
    intervals[0] = 60_000_000
    assert with_lost_frames(np.append(0, intervals.cumsum()), observed) is None


@pytest.mark.parametrize(
    ("stamps", "words"),
    [
        (EPOCH_NS // 1000 + np.arange(110) * 100_000, "nanoseconds: read as such, frames are 0.0001 s apart"),
        (EPOCH_NS // 10**6 + np.arange(110) * 100, "nanoseconds"),
        (TIME, "nanoseconds as int64, are float64"),
        (np.zeros(110, np.int64), "must increase, in nanoseconds"),
        (TIME.astype("datetime64[s]"), "nanoseconds as int64"),
        (np.linspace(EPOCH_NS, EPOCH_NS + 2**37, 110).astype(np.int64) // 2**35 * 2**35, "must increase"),
        (np.append(TIME[:-1], 1e4) * 1e9, "nanoseconds"),
    ],
)
def test_stamps_that_are_no_nanoseconds_are_described(stamps: np.ndarray, words: str) -> None:
    scenario = replace(drive(TIME, 50), timestamps_ns=stamps)
    assert words in rejected(lambda: scenario.validate(), None, "timestamps_ns").message


def test_recordings_with_long_pauses_or_two_rates_are_described() -> None:
    pause = np.concatenate((TIME[:30], TIME[30:] + 0.1 * (MAX_LOST + 1)))
    rates = np.concatenate((np.arange(10) * 0.5, 4.5 + np.arange(1, 101) * 0.1))
    for seconds, observed, words in (
        (pause, 50, "cut scenarios at such pauses"),
        (rates, 10, "the same step"),
    ):
        with pytest.raises(DataError, match=words):
            drive(seconds, observed).validate()


@pytest.mark.parametrize("step_s", [100.0, 0.0001, 0.0, float("nan"), float("inf")])
def test_steps_that_are_no_seconds_are_rejected(step_s: float) -> None:
    with pytest.raises(DataError, match="step_s': must be a number of seconds"):
        Scenario.from_arrays(np.zeros((1, 5, 2)), num_observed=5, step_s=step_s)
