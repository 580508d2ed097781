"""The kinds of road networks: straight, curve, T and four-way junction, roundabout, merge."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trajpred.geometry import direction, unit_vector, wrap_angle
from trajpred.sources.synthetic.roads import (
    LANE_WIDTH,
    SHOULDER,
    SPACING,
    Arm,
    Roads,
    add_arm,
    add_crossing,
    end_pose,
    joint_curve,
    joint_lane,
)

#: Relative probability of a turn.
TURNS = {"straight": 0.5, "right": 0.25, "left": 0.25}
#: By how many seconds a turn from the main road is preferred; from the minor road two seconds less.
PRIORITY = {"straight": 4.0, "right": 3.0, "left": 2.0}


def build_roads(kind: str, rng: np.random.Generator) -> Roads:
    """A network of the named kind (of :data:`KINDS`) with random lanes, bends, angles and crossings."""
    return KINDS[kind](rng)


def _road(rng: np.random.Generator, kind: str, radius: tuple[float, float]) -> Roads:
    """One road through the origin that bends one way, with a crossing in two of three."""
    roads, lanes = Roads(kind, float(rng.uniform(11, 15))), int(rng.integers(1, 3))
    bend = rng.choice((-1, 1)) / rng.uniform(*radius)
    mark = str(rng.choice(("DOUBLE_SOLID_YELLOW", "DASHED_YELLOW")))
    sides = ((0.0, bend), (np.pi, -bend))
    arms = [add_arm(roads, angle, 8.0, curve, lanes, lanes, mark) for angle, curve in sides]
    if rng.random() < 2 / 3:
        add_crossing(roads, arms[0])
    _connect(roads, arms, main=(0, 1), mark=mark)
    return roads


def _straight(rng: np.random.Generator) -> Roads:
    return _road(rng, "straight", (500, 2000))


def _curve(rng: np.random.Generator) -> Roads:
    return _road(rng, "curve", (60, 120))


def _junction(rng: np.random.Generator, kind: str, angles: tuple[float, ...]) -> Roads:
    """Arms at ``angles``; the first and third make the main road, the others yield to it."""
    roads, main_lanes = Roads(kind, float(rng.uniform(10, 14))), int(rng.integers(1, 3))
    mouth = 10.0 + 4.0 * main_lanes
    arms = []
    for i, angle in enumerate(angles):
        lanes = main_lanes if i % 2 == 0 else int(rng.integers(1, main_lanes + 1))
        turned = angle + (rng.uniform(-0.15, 0.15) if i % 2 else 0.0)
        arms.append(add_arm(roads, turned, mouth, rng.uniform(-1, 1) / 250, lanes, lanes))
        if rng.random() < 0.8:
            add_crossing(roads, arms[-1])
    _connect(roads, arms, main=(0, 2))
    return roads


def _tee(rng: np.random.Generator) -> Roads:
    return _junction(rng, "tee", (0.0, rng.choice((-1, 1)) * np.pi / 2, np.pi))


def _four_way(rng: np.random.Generator) -> Roads:
    return _junction(rng, "four_way", (0.0, np.pi / 2, np.pi, -np.pi / 2))


def _merge(rng: np.random.Generator) -> Roads:
    """A fast road, one slip road that joins it from the right."""
    roads = Roads("merge", float(rng.uniform(16, 21)))
    main = [add_arm(roads, angle, 15.0, 0.0, 2, 2) for angle in (0.0, np.pi)]
    slip = add_arm(roads, np.pi + rng.uniform(0.36, 0.42), 42.0, 0.0, 1, 0, "SOLID_YELLOW")
    # Nobody walks or parks on the side where the slip road comes in.
    roads.walks = [walk for walk in roads.walks if (walk.path[:, 1] > 0).all()]
    roads.parking = [place for place in roads.parking if place[1] > 0]
    _connect(roads, main, main=(0, 1))
    start, end = (roads.lanes[i].centerline for i in (slip.lanes_in[0], main[0].lanes_out[1]))
    center = joint_curve(*end_pose(start, True), *end_pose(end, False))
    lane = roads.add(joint_lane(center, joint=True, yields=True, is_intersection=True, speed=roads.speed))
    roads.link(slip.lanes_in[0], lane)
    roads.link(lane, main[0].lanes_out[1])
    left, right = (roads.lanes[lane].left, roads.lanes[lane].right)
    roads.areas.append(np.concatenate((left, right[::-1])))
    return roads


def _roundabout(rng: np.random.Generator) -> Roads:
    """Three or four arms of one lane around a ring that has priority."""
    roads = Roads("roundabout", float(rng.uniform(10, 13)))
    count, radius, spread = int(rng.integers(3, 5)), float(rng.uniform(16, 20)), np.pi / 8
    angles = [2 * np.pi * i / count + rng.uniform(-0.1, 0.1) for i in range(count)]
    arms = [add_arm(roads, angle, radius + 14, rng.uniform(-1, 1) / 300) for angle in angles]
    for arm in arms:
        if rng.random() < 0.6:
            add_crossing(roads, arm)
    nodes = [angle + side * spread for angle in angles for side in (-1, 1)]  # exit, entry, exit, entry …
    ring = []
    for i, start in enumerate(nodes):
        sweep = float((nodes[(i + 1) % len(nodes)] - start) % (2 * np.pi))
        turn = start + np.linspace(0, sweep, max(4, round(sweep * radius / SPACING) + 1))
        center = radius * unit_vector(turn)
        ring.append(
            roads.add(joint_lane(center, joint=True, is_intersection=True, priority=6.0, speed=8.0, turn=0.5))
        )
        outer, inner = ((radius + side * LANE_WIDTH / 1.6) * unit_vector(turn) for side in (1, -1))
        roads.areas.append(np.concatenate((outer, inner[::-1])))
    for i, lane in enumerate(ring):
        roads.link(lane, ring[(i + 1) % len(ring)])
    for i, arm in enumerate(arms):
        _ring_joints(roads, arm, ring[2 * i], ring[2 * i - 1])
    return roads


def _ring_joints(roads: Roads, arm: Arm, through: int, before: int) -> None:
    """Entry and exit of ``arm``: ring lane ``through`` passes it, ``before`` ends at its exit."""
    stop = 6.5 if arm.crossing >= 0 else 1.5
    inner = roads.lanes[through].centerline
    entry = joint_curve(*end_pose(roads.lanes[arm.lanes_in[0]].centerline, True), *end_pose(inner, True))
    leave = joint_curve(*end_pose(inner, False), *end_pose(roads.lanes[arm.lanes_out[0]].centerline, False))
    shared = {"joint": True, "is_intersection": True, "speed": 7.0}
    enter_lane = roads.add(joint_lane(entry, yields=True, stop_m=stop, **shared))
    leave_lane = roads.add(joint_lane(leave, priority=6.0, turn=0.5, **shared))
    roads.link(arm.lanes_in[0], enter_lane)
    roads.link(enter_lane, roads.lanes[through].successors[0])
    roads.link(before, leave_lane)
    roads.link(leave_lane, arm.lanes_out[0])
    flare = np.concatenate((roads.lanes[enter_lane].right, inner[::-1], roads.lanes[leave_lane].right))
    roads.areas.append(flare)


def _connect(roads: Roads, arms: list[Arm], main: tuple[int, ...], mark: str | None = None) -> None:
    """Lanes through the middle from every arm to every other; two arms alone make a plain road."""
    plain = mark is not None or len(arms) == 2
    for a, source in enumerate(arms):
        for b, target in enumerate(arms):
            if a != b:
                straight = plain or (len(main) == 2 and {a, b} == set(main))
                _join(roads, source, target, a in main, plain, straight, mark)
    corners = []
    for arm in arms:
        out = unit_vector(direction(arm.reference[1] - arm.reference[0]) + np.pi / 2)
        wide = (-arm.edge_out - SHOULDER, arm.edge_in + SHOULDER)
        corners += [arm.reference[0] + side * out for side in wide]
    around = np.array(corners)
    roads.areas.append(around[np.argsort(direction(around))])


def _join(
    roads: Roads, source: Arm, target: Arm, main: bool, plain: bool, straight: bool, mark: str | None
) -> None:
    angle = float(wrap_angle(np.array(target.angle - source.angle - np.pi)))
    turn = "straight" if straight or abs(angle) < np.pi / 4 else "left" if angle > 0 else "right"
    n, m = len(source.lanes_in), len(target.lanes_out)
    pairs = {
        "straight": [(k, min(k, m - 1)) for k in range(n)],
        "left": [(0, 0)],
        "right": [(n - 1, m - 1)],
    }[turn]
    for k, to in pairs:
        start, end = source.lanes_in[k], target.lanes_out[to]
        poses = (
            *end_pose(roads.lanes[start].centerline, True),
            *end_pose(roads.lanes[end].centerline, False),
        )
        lane = joint_lane(
            joint_curve(*poses),
            is_intersection=not plain,
            joint=True,
            yields=not plain,
            priority=PRIORITY[turn] - (0.0 if main else 2.0),
            stop_m=6.5 if source.crossing >= 0 else 1.5,
            speed=roads.speed,
            turn=TURNS[turn],
        )
        if plain:
            lane.left_mark = (mark or "DOUBLE_SOLID_YELLOW") if k == 0 else "DASHED_WHITE"
            lane.right_mark = "SOLID_WHITE" if k == n - 1 else "DASHED_WHITE"
        index = roads.add(lane)
        roads.link(start, index)
        roads.link(index, end)


KINDS: dict[str, Callable[[np.random.Generator], Roads]] = {
    "four_way": _four_way,
    "roundabout": _roundabout,
    "tee": _tee,
    "curve": _curve,
    "merge": _merge,
    "straight": _straight,
}
