"""Motion of tracks: velocities and headings from positions, motion on an arc, noise. NumPy only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.geometry import direction, last_step, norm, rotate, unit_vector, wrap_angle
from trajpred.data.tracks import Tracks

#: Speed in m/s below which the direction of travel is noise and the previous heading is kept.
STANDING_SPEED = 0.5
#: Speed in m/s above which a track that moves against its heading is turned round.
BACKWARDS_SPEED = 1.0
#: Seconds before and after a state whose headings decide between two opposite ones.
STEADY_S = 0.5
#: Distance in metres from its first position beyond which a track has moved.
MOVED_M = 1.0
#: Unknown heading: that of states before a track has moved, if headings follow from positions.
UNKNOWN_HEADING = 0.0
#: Heading (radians) of a state known to head along the x axis: exactly 0 would mean unknown.
KNOWN_ZERO = 1e-12
#: Argoverse's seconds between steps, assumed for a single step.
STEP_S = 0.1
#: Steps whose velocities are fitted from one set of sums; more steps would lose precision.
BLOCK = 256
#: Rows whose velocities are fitted at once, so that their sums fit into a processor's cache.
ROWS = 2**13
#: Seconds of positions to which a velocity is fitted.
FIT_S = 1.0
#: Speed in m/s from which road users are compared with lanes …
DRIVING_SPEED = 2.0
#: … and velocities with positions.
WALKING_SPEED = 1.0
#: Largest share of moving states whose velocities may contradict the positions. Argoverse 2 has 0.006 (at
#: most 0.12 in a scenario), its Sensor logs, nuScenes, Waymo and NGSIM below 0.006; with velocities in the
#: frame of each road user it is 0.3 to 1.
MOST_CONTRADICTING = 0.2
#: A velocity contradicts another if they differ by this share of the larger one …
CONTRADICTING = 0.4
#: … and this many m/s: positions are noisy, and velocities from them are late.
SLACK = 1.0


def displacement_on_arc(
    velocity: NDArray[np.float64], turn_rate: NDArray[np.float64], time: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the displacement ``[N, F, 2]`` after ``time`` ``[N, F]`` from ``velocity`` ``[N, 2]``."""
    # The chord of an arc that turns by ωt has length v t sinc(ωt / 2) and direction ωt / 2: the closed form
    # of CTRV without its division by ω.
    half_turn = turn_rate[:, None] * time / 2
    chord_time = time * np.sinc(half_turn / np.pi)
    return rotate(velocity[:, None], half_turn) * chord_time[..., None]


def hold_last(values: NDArray[np.float64], valid: NDArray[np.bool_], initial: Any) -> NDArray[np.float64]:
    """Replace invalid ``values`` ``[..., T]`` by the last valid one, or ``initial`` before the first."""
    steps = np.arange(valid.shape[-1])
    latest = np.maximum.accumulate(np.where(valid, steps, -1), axis=-1)
    held = np.take_along_axis(values, np.maximum(latest, 0), axis=-1)
    return np.where(latest >= 0, held, initial)


def causal_velocity(
    position: NDArray[np.float64], valid: NDArray[np.bool_], step_s: float
) -> NDArray[np.float64]:
    """Estimate velocity at each step as the slope of a line fitted to the last :data:`FIT_S` seconds.

    Least squares over the valid steps of a window of at least two. Differences of single positions are much
    noisier: extrapolated for 3 s on Argoverse 1, their error is 8 m, and 5 m with the 10-step fit. They are
    used where the window has only one valid step, after a gap or at a low rate.

    Args:
        position: ``[A, T, 2]`` metres; values where ``valid`` ``[A, T]`` is False are ignored.
        step_s: seconds between steps.

    Returns:
        ``[A, T, 2]`` m/s; zero at invalid steps and at the first valid one.
    """
    A, T = valid.shape
    velocity = np.zeros((A, T, 2))
    window = fit_steps(step_s)
    block = max(BLOCK, 2 * window)
    for start in range(0, T, block):
        # The windows of a block's first steps begin in the previous block.
        before = max(start - window + 1, 0)
        steps = slice(before, start + block)
        slope = _window_slopes(position[:, steps], valid[:, steps], step_s, window)
        velocity[:, start : start + block] = slope[:, start - before :]
    seen = valid.cumsum(1)
    seen_before = np.pad(seen, ((0, 0), (window, 0)))[:, :T]
    is_alone = valid & (seen - seen_before == 1) & (seen > 1)
    if not is_alone.any():
        return velocity
    return np.where(is_alone[..., None], _differences(position, valid, step_s), velocity)


def fit_steps(step_s: float) -> int:
    """Return how many steps of ``step_s`` seconds a velocity is fitted to, including the current one."""
    return max(2, int(FIT_S / step_s + 0.49))  # halves, as at 12.5 Hz, are rounded down


def fit_window_s(step_s: float) -> float:
    """Return the age (seconds) up to which states enter a velocity's fit: half a step beyond the oldest."""
    return (fit_steps(step_s) - 0.5) * step_s


def _differences(
    position: NDArray[np.float64], valid: NDArray[np.bool_], step_s: float
) -> NDArray[np.float64]:
    """Return the mean velocity ``[A, T, 2]`` (m/s) since the previous valid step."""
    step = np.arange(valid.shape[1])
    latest = np.maximum.accumulate(np.where(valid, step, 0), axis=1)
    previous = np.pad(latest, ((0, 0), (1, 0)))[:, :-1]
    displacement = position - np.take_along_axis(position, previous[..., None], axis=1)
    duration_s = np.maximum(step - previous, 1) * step_s
    return displacement / duration_s[..., None]


def _window_slopes(
    position: NDArray[np.float64], valid: NDArray[np.bool_], step_s: float, window: int
) -> NDArray[np.float64]:
    """Fit a line to the valid steps among the last ``window``, at each step; ``[A, T, 2]`` m/s.

    Each window is the difference of two sums from the first step on, whose rounding grows with ``T``.
    """
    T = valid.shape[1]
    time = np.arange(T) * step_s
    # Centre on each track's first valid position, to keep sums of squares small in any city frame.
    first = first_position(position, valid)
    xy = np.where(valid[..., None], position - first[:, None], 0.0)
    weight = valid.astype(np.float64)
    time_terms = np.stack((weight, weight * time, weight * time**2), -1)
    terms = np.concatenate((time_terms, xy, xy * time[:, None]), -1)
    total = np.cumsum(terms, axis=1)
    total[:, window:] -= total[:, : max(T - window, 0)].copy()
    fits = (total[..., 0] > 1) & valid
    return np.where(fits[..., None], _slope(total), 0.0)


def _slope(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the slopes ``[..., 2]`` of lines fitted to points; zero for a single one at the origin.

    ``sums``: ``[..., 7]`` of 1, t, t², x, y, x t and y t over the points.
    """
    n = sums[..., 0:1]
    sum_t = sums[..., 1:2]
    sum_tt = sums[..., 2:3]
    sum_xy = sums[..., 3:5]
    sum_txy = sums[..., 5:7]
    spread = n * sum_tt - sum_t**2
    return (n * sum_txy - sum_t * sum_xy) / np.where(n > 1, spread, 1.0)


def latest_velocity(
    position: NDArray[np.float64], valid: NDArray[np.bool_], time: NDArray[np.float64], step_s: float
) -> NDArray[np.float64]:
    """Estimate the velocity of the last state like :func:`causal_velocity_of_rows`.

    Args:
        position: ``[A, T, 2]`` metres.
        valid: ``[A, T]``, True for the last state.
        time: ``[T]`` seconds, ascending.
        step_s: the usual seconds between states.

    Returns:
        ``[A, 2]`` m/s; zero for a track's first state.
    """
    since = time - time[-1]
    first = int(np.searchsorted(since, -fit_window_s(step_s)))
    displacement = np.where(valid[..., None], position - position[:, -1:], 0.0)
    t = since[first:]
    n_t_tt = valid[:, first:] @ np.stack((np.ones_like(t), t, t**2), -1)
    xy = displacement[:, first:]
    slope = _slope(np.concatenate((n_t_tt, xy.sum(axis=1), t @ xy), -1))
    is_alone = (n_t_tt[:, 0] == 1) & (valid.sum(axis=1) > 1)
    if not is_alone.any():
        return slope
    before = last_step(valid[:, :-1])
    row = np.arange(len(valid))
    mean = displacement[row, before] / since[before][:, None]
    return np.where(is_alone[:, None], mean, slope)


def causal_velocity_of_rows(
    track: NDArray[np.int64], time: NDArray[np.float64], position: NDArray[np.float64], step_s: float
) -> NDArray[np.float64]:
    """Estimate velocities like :func:`causal_velocity`, for rows of states with their own times.

    Args:
        track: ``[N]`` the track of each row, ascending.
        time: ``[N]`` seconds, ascending within a track.
        position: ``[N, 2]`` metres.
        step_s: the usual seconds between states.

    Returns:
        ``[N, 2]`` m/s; zero in the first row of a track.
    """
    window_s = fit_window_s(step_s)
    count = _rows_within(track, time, window_s)
    velocity = np.zeros(position.shape)
    longest = int(count.max(initial=1))
    block = max(ROWS, 4 * longest)
    for start in range(0, len(track), block):
        # The windows of a block's first rows begin in the previous block.
        before = max(start - longest + 1, 0)
        rows = slice(before, start + block)
        slope = _slope(_sums_of_last(time[rows], position[rows], count[rows]).T)
        velocity[start : start + block] = slope[start - before :]
    is_alone = np.zeros(len(track), np.bool_)
    is_alone[1:] = (count[1:] == 1) & (track[1:] == track[:-1])
    alone = np.flatnonzero(is_alone)
    velocity[alone] = (position[alone] - position[alone - 1]) / (time[alone] - time[alone - 1])[:, None]
    return velocity


def _rows_within(track: NDArray[np.int64], time: NDArray[np.float64], window_s: float) -> NDArray[np.int64]:
    """Return how many rows ``[N]`` of a track lie within ``window_s`` up to each row, itself included."""
    before = np.zeros(len(track), np.int64)
    size = 1
    while size < len(track) and _reach(track, time, window_s, np.arange(size, len(track)), size).any():
        size *= 2
    while size > 1:
        size //= 2
        row = np.flatnonzero(before + size <= np.arange(len(track)))
        before[row[_reach(track, time, window_s, row, before[row] + size)]] += size
    return before + 1


def _reach(
    track: NDArray[np.int64], time: NDArray[np.float64], window_s: float, row: NDArray[np.int64], back: Any
) -> NDArray[np.bool_]:
    """Return whether the row ``back`` rows before each ``row`` belongs to its track and window."""
    earlier = row - back
    return (track[earlier] == track[row]) & (time[row] - time[earlier] <= window_s)


def _sums_of_last(
    time: NDArray[np.float64], position: NDArray[np.float64], count: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the sums ``[7, N]`` for :func:`_slope`, over the last ``count`` ``[N]`` rows at each row.

    Times and positions are relative to the row, and only its window's rows enter a sum, which is joined from
    sums over 1, 2, 4 … rows, each moved to its origin.
    """
    N = len(time)
    count = np.minimum(count, np.arange(1, N + 1))
    sums = np.zeros((7, N))
    block = np.zeros((7, N))
    block[0] = 1.0
    taken = np.zeros(N, np.int64)
    size = 1
    while size <= count.max(initial=0):
        row = np.flatnonzero(count & size)
        end = row - taken[row]
        sums[:, row] += _moved(block[:, end], time[end] - time[row], position[end] - position[row])
        taken[row] += size
        earlier = block[:, : N - size]
        offset = time[: N - size] - time[size:]
        block[:, size:] += _moved(earlier, offset, position[: N - size] - position[size:])
        size *= 2
    return sums


def _moved(
    sums: NDArray[np.float64], time: NDArray[np.float64], position: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the sums ``[7, M]`` of points moved by ``time`` ``[M]`` and ``position`` ``[M, 2]``.

    The sums are over 1, t, t², x, y, x t and y t. Moved by Δt, for example, Σ t² becomes
    Σ (t + Δt)² = Σ t² + Δt (2 Σ t + n Δt).
    """
    n, t, tt, x, y, xt, yt = sums
    dx, dy = position.T
    moved_x = x + n * dx
    moved_y = y + n * dy
    return np.stack(
        (
            n,
            t + n * time,
            tt + time * (2 * t + n * time),
            moved_x,
            moved_y,
            xt + dx * t + time * moved_x,
            yt + dy * t + time * moved_y,
        )
    )


def compared_velocities(
    position: NDArray[np.float64], velocity: NDArray[np.float64], valid: NDArray[np.bool_], step_s: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return velocities and their estimates ``[N, 2]`` where the positions of a second are known.

    Args:
        position: ``[A, T, 2]`` metres; values where ``valid`` ``[A, T]`` is False are ignored.
        velocity: ``[A, T, 2]`` m/s.
        step_s: seconds between steps.
    """
    estimate = causal_velocity(position, valid, step_s)
    steps = fit_steps(step_s)
    is_fitted = valid & (valid.cumsum(axis=1) >= max(2, min(steps, valid.shape[1])))
    return velocity[is_fitted], estimate[is_fitted]


def contradicting(
    velocity: NDArray[np.float64], estimate: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which velocities ``[N, 2]`` contradict estimates from positions, and which move and count."""
    speed = np.maximum(norm(velocity), norm(estimate))
    is_moving = speed > WALKING_SPEED  # not where one of them is NaN
    differ = norm(velocity - estimate) > CONTRADICTING * speed + SLACK
    is_unknown = not np.any(norm(velocity[is_moving]) > 0)  # exports write zeros for what they do not have
    return is_moving & (differ | is_unknown), is_moving


def contradiction(contradicting: int, compared: int) -> str:
    """Describe the contradictions among ``compared`` states; "" if there are no more than in real data."""
    if contradicting <= MOST_CONTRADICTING * compared:
        return ""
    share = f"{contradicting / compared:.0%} of the velocities of moving road users"
    frame = "they must be in m/s along the x and y axes of the positions, not of the vehicle"
    return f"{share} contradict the positions: {frame}, and missing where unknown, not zero"


def disagreement(velocity: NDArray[np.float64], estimate: NDArray[np.float64]) -> str:
    """Describe how velocities ``[N, 2]`` contradict estimates; "" if they do so no more than in real data."""
    is_odd, is_moving = contradicting(velocity, estimate)
    problem = contradiction(int(is_odd.sum()), int(is_moving.sum()))
    if not problem:
        return ""
    turned = is_odd & (norm(velocity) > 0)
    if not turned.any():
        return f"{problem} (all of these are zero)"
    angle = np.abs(wrap_angle(direction(velocity[turned]) - direction(estimate[turned])))
    return f"{problem} (median angle between them: {np.rad2deg(np.median(angle)):.0f} degrees)"


def first_position(position: NDArray[np.float64], valid: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the first valid position ``[A, 2]`` of each track in ``[A, T, 2]``."""
    return position[np.arange(len(valid)), valid.argmax(axis=1)]


def has_moved(position: NDArray[np.float64], valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether a track is farther than :data:`MOVED_M` from its first valid position: ``[A, T]``.

    Positions are ``[A, T, 2]`` in metres. A stationary object's noise makes velocities, but no distance.
    """
    if not valid.size:
        return valid
    first = first_position(position, valid)
    moved: NDArray[np.bool_] = norm(position - first[:, None]) > MOVED_M
    return valid & moved


def causal_heading(
    velocity: NDArray[np.float64], position: NDArray[np.float64], valid: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the direction of travel ``[A, T]`` in radians, or the last one above :data:`STANDING_SPEED`.

    A track that has only crept so far heads away from its first position. ``velocity`` is ``[A, T, 2]`` in
    m/s. The heading is 0 before a track :func:`has_moved`: unknown, see :func:`heading_known`.
    """
    moved = has_moved(position, valid)
    moving = moved & (norm(velocity) > STANDING_SPEED)
    heading = hold_last(direction(velocity), moving, UNKNOWN_HEADING)
    crept = moved & ~np.logical_or.accumulate(moving, axis=1)
    if not crept.any():
        return heading
    away = direction(position - first_position(position, valid)[:, None])
    return np.where(crept, away, heading)


def given_heading(heading: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return given headings (radians, NaN where unknown) with :data:`KNOWN_ZERO` instead of 0."""
    return np.where(heading == UNKNOWN_HEADING, KNOWN_ZERO, heading)


def heading_known(
    heading: NDArray[np.float64], position: NDArray[np.float64], valid: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Whether headings ``[A, T]`` are known, of states at ``position`` ``[A, T, 2]``.

    Headings that :func:`causal_heading` sets before a track has moved are unknown.
    """
    return valid & ((heading != UNKNOWN_HEADING) | has_moved(position, valid))


def forward_heading(
    heading: NDArray[np.float64], velocity: NDArray[np.float64], known: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the headings ``[A, T]`` in radians, reversed where a track moves against a known one.

    Detectors and annotators confuse front and back, and models that learn from derived headings have never
    seen a track reverse. Below :data:`BACKWARDS_SPEED` a heading stays; ``velocity`` is ``[A, T, 2]`` in m/s.
    """
    ahead = (unit_vector(heading) * velocity).sum(-1)
    backwards = known & (ahead < -BACKWARDS_SPEED)
    return np.where(backwards, wrap_angle(heading + np.pi), heading)


def steady_heading(
    heading: NDArray[np.float64], known: NDArray[np.bool_], step_s: float
) -> NDArray[np.float64]:
    """Return the headings ``[A, T]`` in radians, reversed where one opposes most known headings around it.

    Detectors and annotators confuse front and back at single steps. Headings count within :data:`STEADY_S`,
    at least two steps, before and after.
    """
    side = max(2, round(STEADY_S / step_s))
    ahead = np.where(known[..., None], unit_vector(heading), 0.0)
    total = np.pad(ahead, ((0, 0), (side + 1, side), (0, 0))).cumsum(axis=1)
    around = total[:, 2 * side + 1 :] - total[:, : -2 * side - 1]
    opposes = (ahead * around).sum(-1) < -1e-6  # rounding must not reverse headings of a tie
    return np.where(opposes, wrap_angle(heading + np.pi), heading)


def mean_step_s(timestamps_ns: NDArray[np.int64], num_observed: int) -> NDArray[np.float64]:
    """Compute the mean seconds ``[...]`` between the observed steps of windows ``[..., T]``.

    Future timestamps are ignored, since they are unknown onboard, unless there is only one observed step.
    Returns :data:`STEP_S` for a single step.
    """
    stamps = timestamps_ns
    if num_observed >= 2:
        stamps = timestamps_ns[..., :num_observed]
    intervals = stamps.shape[-1] - 1
    if intervals < 1:
        return np.full(stamps.shape[:-1], STEP_S)
    return (stamps[..., -1] - stamps[..., 0]) / 1e9 / intervals


# ----------------------------------------------------------------------------------- noise of a tracker

#: Correlation time (s) of slow noise, like a filter's drift: a fit over a second does not average it out.
SLOW_S = 1.0


def correlated(noise: NDArray[np.float64], step_s: float) -> NDArray[np.float64]:
    """Correlate white noise ``[A, T, 2]`` over :data:`SLOW_S`, keeping its standard deviation.

    The covariance of two steps is exp(-Δt / :data:`SLOW_S`), that of an Ornstein-Uhlenbeck process (Uhlenbeck
    and Ornstein 1930).
    """
    time = np.arange(noise.shape[1]) * step_s
    covariance = np.exp(-np.abs(time[:, None] - time) / SLOW_S)
    return np.linalg.cholesky(covariance) @ noise


def add_noise(tracks: Tracks, noise: NDArray[np.float64]) -> Tracks:
    """Add ``noise`` ``[A, T, 2]`` (m) to the valid positions of the first ``T`` steps."""
    observed = slice(0, noise.shape[1])
    position = tracks.position.copy()
    position[:, observed] += np.where(tracks.valid[:, observed, None], noise, 0.0)
    return replace(tracks, position=position)


def derive_states(tracks: Tracks, num_observed: int, step_s: float) -> Tracks:
    """Derive the observed headings and velocities from the positions, as for data without them."""
    observed = slice(0, num_observed)
    valid = tracks.valid[:, observed]
    position = tracks.position[:, observed]
    velocity = tracks.velocity.copy()
    heading = tracks.heading.copy()
    velocity[:, observed] = causal_velocity(position, valid, step_s)
    derived = causal_heading(velocity[:, observed], position, valid)
    heading[:, observed] = np.where(valid, derived, 0.0)
    return replace(tracks, heading=heading, velocity=velocity)
