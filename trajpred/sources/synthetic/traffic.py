"""Traffic that follows routes: the Intelligent Driver Model, yielding at junctions and to pedestrians.

Treiber, Hennecke, Helbing, *Congested traffic states in empirical observations and microscopic simulations*,
Physical Review E 62 (2000). A driver with speed v, gap s to the one ahead and closing speed Δv accelerates by

    dv/dt = a · [1 - (v / v0)⁴ - (s* / s)²],    s* = s0 + max(0, v·T + v·Δv / (2·√(a·b)))

with desired speed v0, time headway T, standstill gap s0, acceleration a and comfortable braking b. A line
at which one must stop is a standing vehicle. Many scenarios on the same roads are simulated at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpred.sources.synthetic.routes import GRID, Floats, Routes

HEADWAY, STANDSTILL, ACCELERATION, COMFORTABLE, HARDEST = 1.3, 2.0, 1.6, 2.0, 7.0
#: Seconds between two decisions; motion in between has constant acceleration.
DECISION = 0.2
#: Seconds that lie between the one who passes a conflict and the one who waits for it.
MARGIN = 1.5
FAR = 1e3


@dataclass(frozen=True)
class Fleet:
    """``[B, A]`` vehicles of B scenarios: route, start (m along it), speed (m/s), desired share of the limit
    (and a top speed, m/s), length (m)."""

    route: NDArray[np.int64]
    start: Floats
    speed: Floats
    eagerness: Floats
    top_speed: Floats
    length: Floats


def drive(
    routes: Routes, fleet: Fleet, occupied: NDArray[np.bool_], steps: int, step_s: float
) -> tuple[Floats, Floats]:
    """Lengths along the route and speeds ``[steps, B, A]``.

    Args:
        occupied: ``[steps, B, C]`` whether someone is on, or about to step on, each crossing.
        steps: how many to simulate.
        step_s: seconds between them.
    """
    s, v = fleet.start.copy(), fleet.speed.copy()
    going = np.full(s.shape, -1)  # the junction lane one is committed to
    per_decision = max(1, round(DECISION / step_s))
    out_s, out_v = np.empty((steps, *s.shape)), np.empty((steps, *s.shape))
    for t in range(steps):
        if t % per_decision == 0:
            pull = _decide(routes, fleet, s, v, going, occupied[t])
        out_s[t], out_v[t] = s, v
        faster = np.maximum(v + pull * step_s, 0.0)
        s, v = s + (v + faster) / 2 * step_s, faster
    return out_s, out_v


def _decide(
    routes: Routes, fleet: Fleet, s: Floats, v: Floats, going: NDArray[np.int64], occupied: NDArray[np.bool_]
) -> Floats:
    """Accelerations ``[B, A]``; ``going`` is updated in place."""
    sample = np.clip((s / GRID).astype(np.int64), 0, routes.limit.shape[1] - 1)
    flat = fleet.route * routes.limit.shape[1] + sample
    desired = np.minimum(routes.limit.ravel()[flat] * fleet.eagerness, fleet.top_speed)
    lane = routes.lane.ravel()[flat]
    free = 1 - (v / desired) ** 4
    gap, closing = _leader(routes, fleet, s, v, lane, s - routes.lane_start.ravel()[flat])
    stop = np.minimum(
        _junction_stop(routes, fleet, s, v, lane, flat, going), _crossing_stop(routes, fleet, s, v, occupied)
    )
    pull = free - np.maximum(_interaction(v, closing, gap), _interaction(v, v, stop - fleet.length / 2 + 1.5))
    return np.clip(ACCELERATION * pull, -HARDEST, ACCELERATION)


def _interaction(v: Floats, closing: Floats, gap: Floats) -> Floats:
    """(s* / s)² of the equation above."""
    wished = STANDSTILL + np.maximum(
        0.0, v * HEADWAY + v * closing / (2 * np.sqrt(ACCELERATION * COMFORTABLE))
    )
    return (wished / np.maximum(gap, 0.3)) ** 2


def _leader(
    routes: Routes, fleet: Fleet, s: Floats, v: Floats, lane: NDArray[np.int64], u: Floats
) -> tuple[Floats, Floats]:
    """Gap to the next vehicle ahead on one's own route, and by how much one is faster; ``[B, A]``."""
    cell = fleet.route[:, :, None] * routes.shift.shape[1] + lane[:, None, :]
    ahead = routes.shift.ravel()[cell] + u[:, None, :] - s[:, :, None]
    shared = (u[:, None, :] >= routes.low.ravel()[cell]) & (u[:, None, :] <= routes.high.ravel()[cell])
    ahead = np.where(shared & (ahead > 0), ahead, FAR)  # NaN compares False
    nearest = ahead.argmin(2)
    distance = np.take_along_axis(ahead, nearest[..., None], 2)[..., 0]
    half = (fleet.length + np.take_along_axis(fleet.length, nearest, 1)) / 2
    return distance - half, v - np.take_along_axis(v, nearest, 1)


def _junction_stop(
    routes: Routes,
    fleet: Fleet,
    s: Floats,
    v: Floats,
    lane: NDArray[np.int64],
    flat: NDArray[np.int64],
    going: NDArray[np.int64],
) -> Floats:
    """Distance ``[B, A]`` to the line where one must let others pass; far where there is none.

    Who arrives first goes first, after the bonus that the better road gives. Who has decided to go, or is in
    the junction, goes before all others, so of two vehicles in conflict exactly one waits.
    """
    joint = routes.joint.ravel()[flat]
    distance = routes.joint_start.ravel()[flat] - s
    line = np.minimum(distance, FAR) - routes.stop_m[joint]
    pace = np.maximum(v, 3.0)
    arrival = np.minimum(distance, FAR) / pace
    committed = going == joint
    score = np.where(committed, -FAR, arrival - routes.priority[joint]) + 1e-6 * np.arange(s.shape[1])
    before = score[:, None, :] < score[:, :, None]
    soon = arrival[:, None, :] < arrival[:, :, None] + (18.0 / pace + MARGIN)[:, :, None]
    near = (joint >= 0) & (distance < 80)
    clash = routes.conflict[joint[:, :, None], joint[:, None, :]] & before & near[:, None, :]
    clash &= soon | committed[:, None, :]
    # The rear of a vehicle that has left its junction lane is still in it.
    clash |= routes.conflict[joint[:, :, None], lane[:, None, :]]
    must = clash.any(2) & near & routes.yields[joint] & ~committed
    braking = v**2 / (2 * 3.0)
    decided = near & ~must & (line < braking + 4.0)
    going[...] = np.where(decided | committed, joint, -1)
    return np.where(must & (line > -2.0), line, FAR)


def _crossing_stop(routes: Routes, fleet: Fleet, s: Floats, v: Floats, occupied: NDArray[np.bool_]) -> Floats:
    """Distance ``[B, A]`` to the nearest crossing with people on it, unless it is too late to stop."""
    line = routes.crossing[fleet.route] - 3.0 - s[..., None]
    ahead = occupied[:, None, :] & (line - fleet.length[..., None] / 2 > v[..., None] ** 2 / (2 * 5.0))
    return np.where(ahead, line, FAR).min(-1)
