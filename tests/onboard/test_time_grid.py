"""Which step an update falls in: one each for a tracker of the model's rate, wherever its first one was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from trajpred.onboard.history import TimeGrid

STEP, UNIX_S = 0.1, 1.7e9


def steps(times_s: Sequence[float] | np.ndarray) -> list[int]:
    """Passed from each update to the next."""
    grid = TimeGrid(STEP)
    grid.start(float(times_s[0]))
    return [grid.advance(float(time_s)) for time_s in times_s[1:]]


@pytest.mark.parametrize("start_s", [0.0, 12.34, UNIX_S])
def test_an_exact_clock(start_s: float) -> None:
    assert steps(start_s + STEP * np.arange(2000)) == [1] * 1999


def test_gaps_are_counted() -> None:
    assert steps(STEP * np.array([0, 1, 4, 4, 5, 30])) == [1, 3, 0, 1, 25]


@pytest.mark.parametrize("off", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_jitter_costs_no_step_whatever_the_first_update(off: float, seed: int) -> None:
    """4 ms, as trackers have; the first update lies ``off`` steps beside those that follow."""
    times_s = UNIX_S + STEP * np.arange(1000) + np.random.default_rng(seed).normal(0, 0.004, 1000)
    times_s[0] -= off * STEP
    found = steps(np.sort(times_s))
    assert found[20:] == [1] * len(found[20:])


@pytest.mark.parametrize("rate", [9.8, 10.2])
def test_a_tracker_somewhat_faster_or_slower(rate: float) -> None:
    assert steps(np.arange(1000) / rate) == [1] * 999


@pytest.mark.parametrize(("rate", "kinds"), [(20.0, {0, 1}), (40.0, {0, 1}), (5.0, {2}), (7.0, {1, 2})])
def test_other_rates_stay_true_to_time(rate: float, kinds: set[int]) -> None:
    times_s = np.arange(2000) / rate
    found = np.array(steps(times_s + np.random.default_rng(0).normal(0, 0.002, 2000)))
    assert set(found.tolist()) <= kinds
    np.testing.assert_allclose(np.cumsum(found), times_s[1:] / STEP, atol=1.5)
    if rate == 20.0:
        assert set((found[20:-1] + found[21:]).tolist()) == {1}, "two of each step"
