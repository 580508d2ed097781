"""Time stamps of recorded frames: the step between them, their unit, and lost frames."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.data.motion import STEP_S, mean_step_s
from trajpred.errors import require

#: Between recorded frames farther apart than this (in steps), frames were lost.
GAP_STEPS = 1.5
#: Relative difference up to which the steps of two recordings count as equal: clocks jitter.
SAME_STEP = 0.01
#: Least number of intervals that define a grid: with fewer, one short interval would turn the rest into gaps.
FEWEST_INTERVALS = 5
#: Largest relative difference of two steps that differ by the jitter of clocks alone.
JITTER = 0.1
#: Largest scatter of times (share of a step) around a grid that clearly fits.
CLEAR = 0.12
#: Few frames are lost if the recorded time is at most this multiple of their number times the median
#: interval.
FEW_LOST = 1.15
#: Share of a frame's delay by which a clock follows the frame.
FOLLOWED = 0.2
#: How often the step of a grid is refitted.
REFINEMENTS = 3
#: Largest difference (share of a step) between times that count as equal.
SAME_TIME = 0.01
#: Shortest interval between frames (s): a smaller number means another unit.
SHORTEST_STEP_S = 0.005
#: Longest interval between frames (s): a larger number means another unit.
LONGEST_STEP_S = 10.0
#: Maximum lost frames in a scenario: a longer pause separates two recordings.
MAX_LOST = 1000


def longest_gap_s(recorded_s: float, step_s: float) -> float:
    """Return the longest time (s) between two states across which a grid of ``step_s`` seconds interpolates.

    Args:
        recorded_s: usual seconds between recorded states.
    """
    is_longer = recorded_s > (1 + JITTER) * step_s
    return GAP_STEPS * (recorded_s if is_longer else step_s) + SAME_TIME * step_s


def require_step_s(step_s: float) -> None:
    """Raise :class:`DataError` unless ``step_s`` is a plausible number of seconds."""
    range_s = f"{SHORTEST_STEP_S:g} to {LONGEST_STEP_S:g}"
    plausible = SHORTEST_STEP_S <= step_s <= LONGEST_STEP_S
    require(plausible, "step_s", f"must be a number of seconds from {range_s}, is {step_s}")


def require_nanoseconds(first: float, last: float, frames: int, field: str) -> None:
    """Raise :class:`DataError` about ``field`` unless the first and last frame's times are nanoseconds.

    Times in another unit, or rounded by float32, give steps that no recording has.
    """
    if frames < 2:
        return
    step_ns = (last - first) / (frames - 1)
    coarse = float(np.spacing(np.float32(last))) > step_ns
    rounded = coarse and float(np.float32(first)) == first and float(np.float32(last)) == last
    plausible = SHORTEST_STEP_S <= step_ns / 1e9 <= LONGEST_STEP_S
    range_s = f"{SHORTEST_STEP_S:g} to {LONGEST_STEP_S:g} s"
    digits = "must be nanoseconds in int64 or float64: float32 has rounded them"
    require(not rounded, field, digits)
    unit = f"must be nanoseconds: read as such, frames are {step_ns / 1e9:.3g} s apart instead of {range_s}"
    require(plausible, field, f"{unit}; convert them from their unit")


def require_times(timestamps_ns: NDArray[np.int64], num_observed: int) -> None:
    """Raise :class:`DataError` unless the stamps ``[T]`` of a scenario fit regular steps."""
    field = "timestamps_ns"
    stamps = timestamps_ns
    require(stamps.dtype.kind == "i", field, f"must be nanoseconds as int64, are {stamps.dtype}")
    require(bool((np.diff(stamps) > 0).all()), field, "must increase, in nanoseconds")
    require_nanoseconds(int(stamps[0]), int(stamps[-1]), len(stamps), field)
    lost = int(frame_steps(stamps, num_observed)[-1]) + 1 - len(stamps)
    pause = f"more than {MAX_LOST} frames are missing between two others: cut scenarios at such pauses"
    require(lost == 0, field, pause)
    future = stamps[num_observed - 1 :]
    step_s = float(mean_step_s(stamps, num_observed))
    future_s = float(mean_step_s(future, len(future))) if len(future) > 1 else step_s
    rates = f"observed frames are {step_s:.3g} s apart, future ones {future_s:.3g} s: give both the same step"
    require(GAP_STEPS * future_s >= step_s, field, rates)


def frame_steps(timestamps_ns: NDArray[np.int64], num_observed: int) -> NDArray[np.int64]:
    """Return the steps ``[T]`` of frames, from 0, on a regular grid with gaps where frames are lost.

    Late frames are not gaps: each frame is at the nearest step of the grid, and no two share a step.

    Args:
        timestamps_ns: ``[T]`` nanoseconds, increasing.
        num_observed: number of frames that are input; with at least :data:`FEWEST_INTERVALS` intervals they
            define the grid, so that the future does not affect the input.
    """
    rank = np.arange(len(timestamps_ns))
    intervals = np.diff(timestamps_ns)
    if not len(intervals) or intervals.max() <= GAP_STEPS * intervals.min():
        return rank
    since = (timestamps_ns - timestamps_ns[0]).astype(np.float64)
    known = num_observed if num_observed > FEWEST_INTERVALS else len(since)
    lost = _nearest_steps(since, _frame_interval(since[:known])) - rank
    # If two frames fall on one step, the observed ones before them move back; a future one moves ahead.
    observed = lost[:num_observed]
    observed[:] = np.minimum.accumulate(observed[::-1])[::-1]
    lost = np.maximum.accumulate(lost)
    return rank + lost - lost[0]


def regular_step_s(timestamps_ns: NDArray[np.int64]) -> float:
    """Return the mean seconds between the steps of frames with stamps ``[T]``, including lost frames.

    Returns :data:`~trajpred.data.motion.STEP_S` for a single frame.
    """
    steps = int(frame_steps(timestamps_ns, len(timestamps_ns))[-1])
    if steps == 0:
        return STEP_S
    return float(timestamps_ns[-1] - timestamps_ns[0]) / 1e9 / steps


def _frame_interval(since: NDArray[np.float64]) -> float:
    """Estimate the interval between consecutive frames from times ``[T]`` since the first.

    A grid is fitted, starting from the median of the short intervals: it is right even if half of the frames
    are lost, but too short if late frames make short intervals. Then the times scatter around the grid; if
    few frames are lost, the grid is fitted again, starting from the median of all intervals.
    """
    intervals = np.sort(np.diff(since))
    lower_quartile = intervals[(len(intervals) - 1) // 4]
    is_short = intervals <= GAP_STEPS * lower_quartile
    step, scatter = _refined(since, float(np.median(intervals[is_short])))
    median = float(np.median(intervals))
    has_few_lost = since[-1] <= FEW_LOST * median * len(intervals)
    if scatter > CLEAR and has_few_lost:
        step, _ = _refined(since, median)
    return step


def _refined(since: NDArray[np.float64], step: float) -> tuple[float, float]:
    """Fit a grid of about this step to times; return its step and the times' scatter around it, in steps."""
    time = since - since.mean()
    scatter = np.inf
    for _ in range(REFINEMENTS):
        steps = _nearest_steps(since, step)
        if steps[-1] == 0:
            break
        # Least squares: time = step · number of the step, both relative to their means.
        number = steps - steps.mean()
        step = float(number @ time) / float(number @ number)
        scatter = float(np.sqrt(np.mean((time - step * number) ** 2))) / step
    return step, scatter


def _nearest_steps(since: NDArray[np.float64], step: float) -> NDArray[np.int64]:
    """Return the nearest steps ``[T]`` of a grid, counted by a clock that follows the times."""
    steps = []
    count = 0
    clock = 0.0
    for time in since.tolist():
        passed = max(math.floor((time - clock) / step + 0.5), 0)  # rounded
        count += passed
        clock += passed * step
        clock += FOLLOWED * (time - clock)
        steps.append(count)
    return np.array(steps, np.int64)


def stamps_of_steps(timestamps_ns: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the stamps ``[steps[-1] + 1]`` of all steps, interpolated for missing frames.

    Args:
        timestamps_ns: ``[T]`` of the frames.
        steps: ``[T]`` of the frames, ascending from 0, see :func:`frame_steps`.
    """
    all_steps = np.arange(steps[-1] + 1)
    # float64 resolves the time since the first frame to nanoseconds, but not the time since 1970.
    since = np.interp(all_steps, steps, timestamps_ns - timestamps_ns[0])
    stamps: NDArray[np.int64] = timestamps_ns[0] + np.round(since).astype(np.int64)
    stamps[steps] = timestamps_ns  # not rounded
    return stamps


class RegularSteps(NamedTuple):
    """``S`` regular steps that contain all frames of a recording.

    Attributes:
        timestamps_ns: ``[S]`` nanoseconds.
        frame: ``[S]`` the frame recorded at each step, -1 for lost frames.
        num_observed: number of steps up to the last observed frame.
    """

    timestamps_ns: NDArray[np.int64]
    frame: NDArray[np.int64]
    num_observed: int


def with_lost_frames(timestamps_ns: NDArray[np.int64], num_observed: int) -> RegularSteps | None:
    """Return the steps of frames with stamps ``[T]``; None if no frame is lost, or the stamps are invalid.

    :func:`require_times` describes what is invalid.
    """
    frames = len(timestamps_ns)
    increasing = timestamps_ns.dtype.kind == "i" and bool((np.diff(timestamps_ns) > 0).all())
    if not increasing or not 0 < num_observed <= frames:
        return None
    steps = frame_steps(timestamps_ns, num_observed)
    lost = int(steps[-1]) + 1 - frames
    if not 0 < lost <= MAX_LOST:
        return None
    frame = np.full(frames + lost, -1)
    frame[steps] = np.arange(frames)
    stamps = stamps_of_steps(timestamps_ns, steps)
    return RegularSteps(stamps, frame, int(steps[num_observed - 1]) + 1)
