"""Routes through a road network, and the tables a simulation looks up: who is ahead, who must yield."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import direction, norm, wrap_angle
from trajpred.sources.synthetic.roads import Points, Roads, along, resample

Floats = NDArray[np.float64]
#: Metres between the samples of a route.
GRID = 0.5
#: Lateral acceleration (m/s²) and braking (m/s²) that drivers accept in bends.
LATERAL, BRAKING = 2.2, 1.5
#: Paths that come closer than this (m) cannot be driven at once, and below the second share a lane.
CLEARANCE, SHARED = 2.4, 1.6
#: Points at which two lanes in a junction are compared.
PROBES = 24


@dataclass(frozen=True)
class Routes:
    """``R`` routes sampled every :data:`GRID` metres (``N`` samples), over ``S`` lanes and ``C`` crossings.

    Attributes:
        position, heading, limit: ``[R, N, 2]`` metres, ``[R, N]`` radians, ``[R, N]`` m/s: pose and the
            highest speed from which the bends ahead can still be taken.
        length, weight: ``[R]`` metres, probabilities.
        lane, lane_start: ``[R, N]`` the lane at each sample and where on the route it begins.
        joint, joint_start: ``[R, N]`` the next lane of a junction and where it begins; -1 and inf for none.
        shift, low, high: ``[R, S]`` who is ``u`` metres along lane S, ``low <= u <= high``, is ``shift + u``
            metres along route R; NaN where the route does not touch the lane.
        conflict: ``[S, S]`` lanes that cannot be driven at once.
        yields, priority, stop_m: ``[S]`` as in :class:`~trajpred.sources.synthetic.roads.Lane`.
        crossing: ``[R, C]`` where the route meets the middle of each crossing; inf where it does not.
    """

    position: Floats
    heading: Floats
    limit: Floats
    length: Floats
    weight: Floats
    lane: NDArray[np.int64]
    lane_start: Floats
    joint: NDArray[np.int64]
    joint_start: Floats
    shift: Floats
    low: Floats
    high: Floats
    conflict: NDArray[np.bool_]
    yields: NDArray[np.bool_]
    priority: Floats
    stop_m: Floats
    crossing: Floats


def plan_routes(roads: Roads) -> Routes:
    """All ways through ``roads`` from an entry to an exit that use no lane twice."""
    chains, weight = _chains(roads)
    lengths = np.array([along(lane.centerline)[-1] for lane in roads.lanes])
    lines = [_line(roads, chain) for chain in chains]
    R, S, N = len(chains), len(roads.lanes), max(len(line[0]) for line in lines)
    lane, joint = np.zeros((R, N), np.int64), np.full((R, N), -1)
    lane_start, joint_start = np.zeros((R, N)), np.full((R, N), np.inf)
    shift, low, high = np.full((R, S), np.nan), np.zeros((R, S)), np.zeros((R, S))
    crossing = np.full((R, max(1, len(roads.crossings))), np.inf)
    conflict, overlap = _meetings(roads)
    at = GRID * np.arange(N)
    for r, chain in enumerate(chains):
        start = np.concatenate(([0.0], np.cumsum(lengths[chain])))[:-1]
        row = np.searchsorted(start, at, side="right") - 1
        lane[r], lane_start[r] = np.array(chain)[row], start[row]
        for own, begin in zip(chain, start, strict=True):
            for other, (move, first, last) in overlap.get(own, {}).items():
                if other not in chain:
                    shift[r, other], low[r, other], high[r, other] = begin + move, first, last
        # People drive into the network from before its edge and out beyond it.
        shift[r, chain], low[r, chain], high[r, chain] = start, 0.0, lengths[chain]
        low[r, chain[0]], high[r, chain[-1]] = -np.inf, np.inf
        for index, begin in reversed(list(zip(chain, start, strict=True))):
            if roads.lanes[index].joint:
                joint[r, at < begin], joint_start[r, at < begin] = index, begin
        for c, lanes in enumerate(roads.crossing_lanes):
            for index, begin in zip(chain, start, strict=True):
                if index in lanes:
                    crossing[r, c] = begin + lanes[index]
    position, heading, limit = (
        np.stack([np.concatenate((line[i], np.repeat(line[i][-1:], N - len(line[i]), 0))) for line in lines])
        for i in range(3)
    )
    return Routes(
        position,
        heading,
        limit,
        np.array([lengths[chain].sum() for chain in chains]),
        weight,
        lane,
        lane_start,
        joint,
        joint_start,
        shift,
        low,
        high,
        conflict,
        np.array([one.yields for one in roads.lanes]),
        np.array([one.priority for one in roads.lanes]),
        np.array([one.stop_m for one in roads.lanes]),
        crossing,
    )


def _chains(roads: Roads) -> tuple[list[list[int]], Floats]:
    """Lane sequences from entries to exits, and the probability of each."""
    complete: list[list[int]] = []
    weights: list[float] = []
    open_ends = [([i], 1.0) for i, lane in enumerate(roads.lanes) if not lane.predecessors]
    while open_ends:
        chain, weight = open_ends.pop()
        following = roads.lanes[chain[-1]].successors
        if not following:
            complete.append(chain)
            weights.append(weight)
        total = sum(roads.lanes[i].turn for i in following)
        ways = [(i, weight * roads.lanes[i].turn / total) for i in following if i not in chain]
        open_ends += [([*chain, i], share) for i, share in ways]
    return complete, np.array(weights) / sum(weights)


def _line(roads: Roads, chain: list[int]) -> tuple[Points, Floats, Floats]:
    """Position, heading and speed limit at every sample of a route."""
    pieces = [roads.lanes[i].centerline for i in chain]
    points = np.concatenate([pieces[0], *(piece[1:] for piece in pieces[1:])])
    length = along(points)
    at = np.arange(0, length[-1], GRID)
    angle = np.unwrap(direction(np.gradient(points, axis=0)))
    bend = np.abs(np.interp(at, length, np.gradient(angle, length)))
    ends = np.cumsum([along(piece)[-1] for piece in pieces])
    posted = np.array([roads.lanes[i].speed for i in chain])[np.searchsorted(ends[:-1], at, side="right")]
    limit = np.minimum(posted, np.sqrt(LATERAL / np.maximum(bend, 1e-4)))
    # Backwards: v² may grow by 2·braking per metre.
    energy = limit**2 + 2 * BRAKING * at
    limit = np.sqrt(np.minimum.accumulate(energy[::-1])[::-1] - 2 * BRAKING * at)
    xy = np.stack([np.interp(at, length, points[:, i]) for i in range(2)], -1)
    return xy, np.interp(at, length, angle), np.maximum(limit, 2.5)


def _meetings(roads: Roads) -> tuple[NDArray[np.bool_], dict[int, dict[int, tuple[float, float, float]]]]:
    """Which lanes in a junction conflict, and where they run in one another.

    Returns:
        ``[S, S]``, and for each lane the others that share some of its length: ``(shift, low, high)`` as in
        :class:`Routes`, relative to the start of the lane.
    """
    S = len(roads.lanes)
    conflict = np.zeros((S, S), np.bool_)
    overlap: dict[int, dict[int, tuple[float, float, float]]] = {}
    joints = [i for i, lane in enumerate(roads.lanes) if lane.joint]
    probes = [_probe(roads.lanes[i].centerline) for i in joints]
    points, at = np.stack([p for p, _ in probes]), np.stack([u for _, u in probes])
    heading = direction(np.gradient(points, axis=1))
    # [lane, other lane, probe of the other, probe of the lane]
    distance = norm(points[:, None, None] - points[None, :, :, None])
    nearest = distance.argmin(-1)
    closest = distance.min(-1)
    own_at = np.take_along_axis(at[:, None].repeat(len(joints), 1), nearest, -1)
    own_heading = np.take_along_axis(heading[:, None].repeat(len(joints), 1), nearest, -1)
    same = (closest < SHARED) & (np.abs(wrap_angle(own_heading - heading[None])) < 0.7)
    for a, i in enumerate(joints):
        one = roads.lanes[i]
        for b, j in enumerate(joints):
            other = roads.lanes[j]
            if i == j or j in one.successors or j in one.predecessors:
                continue
            origin = bool(set(one.predecessors) & set(other.predecessors))
            conflict[i, j] = closest[a, b].min() < CLEARANCE and not origin
            if same[a, b].any():
                u = at[b][same[a, b]]
                move = float((own_at[a, b] - at[b])[same[a, b]].mean())
                overlap.setdefault(i, {})[j] = (move, float(u.min()), float(u.max()))
    return conflict | conflict.T, overlap


def _probe(line: Points) -> tuple[Points, Floats]:
    length = along(line)
    at = np.linspace(0, length[-1], PROBES)
    return np.stack([np.interp(at, length, line[:, i]) for i in range(2)], -1), at


def walk_poses(paths: list[Points]) -> tuple[Floats, Floats, Floats]:
    """Positions ``[W, N, 2]`` and headings ``[W, N]`` every :data:`GRID` metres, and lengths ``[W]``."""
    lines = [resample(path, GRID) for path in paths]
    N = max(map(len, lines))
    position = np.stack([np.concatenate((line, np.repeat(line[-1:], N - len(line), 0))) for line in lines])
    heading = np.stack(
        [np.pad(direction(np.gradient(line, axis=0)), (0, N - len(line)), mode="edge") for line in lines]
    )
    return position, heading, np.array([along(line)[-1] for line in lines])
