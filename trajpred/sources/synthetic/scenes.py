"""Scenarios on synthetic roads: who drives and walks there, what the ego sees of it, and what is judged."""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import rotate, to_local, unit_vector
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.sources.synthetic.layouts import KINDS, build_roads
from trajpred.sources.synthetic.roads import Points, Roads
from trajpred.sources.synthetic.routes import GRID, Floats, Routes, plan_routes, walk_poses
from trajpred.sources.synthetic.sensing import Users, observe, to_lane_map
from trajpred.sources.synthetic.traffic import Fleet, drive

#: Scenarios that share a road network, and are simulated at once.
BLOCK = 16
STEP_S = 0.1
#: Steps simulated before the recording begins, so that drivers have settled.
WARM_UP = 30
#: Places for vehicles, pedestrians and parked cars in a scenario; many stay empty.
VEHICLES, PEDESTRIANS, PARKED = 36, 14, 8
#: Object type: share of vehicles, length and width (m), top speed (m/s), offset from the middle (m).
FLEET = {
    "vehicle": (0.86, 4.6, 1.9, 40.0, 0.0),
    "bus": (0.05, 11.5, 2.5, 13.0, 0.0),
    "motorcyclist": (0.03, 2.2, 0.8, 40.0, 0.0),
    "cyclist": (0.06, 1.8, 0.6, 6.0, -1.1),
}


def scenario_id(seed: int, index: int) -> str:
    """The name of a synthetic scenario."""
    return str(uuid5(NAMESPACE_URL, f"trajpred/synthetic/{seed}/{index}"))


def block_of(index: int) -> tuple[int, int]:
    """Block and place in it of a scenario; neighbouring indices take different kinds of roads."""
    kinds = len(KINDS)
    group, rest = divmod(index, kinds * BLOCK)
    return group * kinds + rest % kinds, rest // kinds


def index_of(block: int, place: int) -> int:
    """The inverse of :func:`block_of`."""
    kinds = len(KINDS)
    return block // kinds * kinds * BLOCK + place * kinds + block % kinds


def make_block(seed: int, block: int, *, steps: int = 110, observed: int = 50) -> list[Scenario]:
    """The :data:`BLOCK` scenarios of a block; they share one map. The same arguments give the same values."""
    rng = np.random.default_rng([seed, block])
    roads = build_roads(list(KINDS)[block % len(KINDS)], rng)
    _place(roads, rng)
    routes = plan_routes(roads)
    walkers, occupied = _walkers(rng, roads, steps)
    users = _join(_vehicles(rng, routes, occupied, steps), walkers, _parked(rng, roads, steps))
    users.present[_colliding(users)] = False
    ids = [scenario_id(seed, index_of(block, place)) for place in range(BLOCK)]
    return observe(rng, users, VEHICLES, to_lane_map(roads), ids, observed, STEP_S)


def _place(roads: Roads, rng: np.random.Generator) -> None:
    """Turn and move the network to somewhere in its imaginary city."""
    angle, origin = rng.uniform(-np.pi, np.pi), rng.uniform(-4000, 4000, 2)

    def moved(points: Points) -> Points:
        return rotate(points, np.array(angle)) + origin

    for lane in roads.lanes:
        lane.centerline, lane.left, lane.right = moved(lane.centerline), moved(lane.left), moved(lane.right)
    for walk in roads.walks:
        walk.path = moved(walk.path)
    roads.crossings = [(moved(a), moved(b)) for a, b in roads.crossings]
    roads.areas = [moved(area) for area in roads.areas]
    places = np.array(roads.parking).reshape(-1, 3)
    roads.parking = [(*xy, h) for xy, h in zip(moved(places[:, :2]), places[:, 2] + angle, strict=True)]


def _poses(
    position: Floats, heading: Floats, row: NDArray[np.int64], s: Floats, lateral: Floats
) -> tuple[Floats, Floats]:
    """Poses at lengths ``s`` of the lines ``row``, straight on beyond their ends, ``lateral`` to the left."""
    sample = np.clip((s / GRID).astype(np.int64), 0, position.shape[1] - 1)
    flat = row * position.shape[1] + sample
    angle = heading.ravel()[flat]
    ahead = unit_vector(angle)
    xy = position.reshape(-1, 2)[flat] + (s - sample * GRID)[..., None] * ahead
    xy += lateral[..., None] * np.stack((-ahead[..., 1], ahead[..., 0]), -1)
    return xy, angle


def _walkers(rng: np.random.Generator, roads: Roads, steps: int) -> tuple[Users, NDArray[np.bool_]]:
    """Pedestrians, and ``[WARM_UP + steps, B, C]`` whether they occupy each crossing."""
    shape = (BLOCK, PEDESTRIANS)
    position, heading, length = walk_poses([walk.path for walk in roads.walks])
    chance = np.array([3.0 if walk.crossing >= 0 else 1.0 for walk in roads.walks])
    walk = rng.choice(len(chance), shape, p=chance / chance.sum())
    pace = np.clip(rng.normal(1.4, 0.2, shape), 0.8, 2.2) * (rng.random(shape) > 0.1)
    start = rng.uniform(-8, 1, shape) * (pace > 0) + rng.random(shape) * length[walk]
    s = start[..., None] + pace[..., None] * STEP_S * np.arange(WARM_UP + steps)
    crossing = np.array([walk.crossing for walk in roads.walks])[walk]
    enter = np.array([walk.enter_m for walk in roads.walks])[walk]
    leave = np.array([walk.leave_m for walk in roads.walks])[walk]
    exists = np.arange(PEDESTRIANS) < rng.integers(2, PEDESTRIANS + 1, (BLOCK, 1))
    # Nobody stands still on the road.
    exists &= (pace > 0) | (crossing < 0)
    on = (s > (enter - 2.0 * pace)[..., None]) & (s < leave[..., None]) & exists[..., None]
    occupied = np.zeros((WARM_UP + steps, BLOCK, max(1, len(roads.crossings))), np.bool_)
    for c in range(len(roads.crossings)):
        occupied[..., c] = (on & (crossing == c)[..., None]).any(1).T
    phase, sway = rng.uniform(0, 2 * np.pi, shape), rng.uniform(-0.8, 0.8, shape)
    lateral = sway[..., None] + 0.1 * np.sin(0.8 * s + phase[..., None])
    s = s[..., WARM_UP:]
    row = walk[..., None].repeat(steps, 2)
    xy, angle = _poses(position, heading, row, s, lateral[..., WARM_UP:])
    kind = np.full(shape, OBJECT_TYPES.index("pedestrian"), np.int8)
    present = (s >= 0) & (s <= length[row]) & exists[..., None]
    size = np.full(shape, 0.6)
    return Users(kind, size, size, xy, angle, pace[..., None].repeat(steps, 2), present), occupied


def _vehicles(rng: np.random.Generator, routes: Routes, occupied: NDArray[np.bool_], steps: int) -> Users:
    shape = (BLOCK, VEHICLES)
    share, lengths, widths, tops, sides = np.array(list(FLEET.values())).T
    kind = rng.choice(len(share), shape, p=share)
    route = rng.choice(len(routes.weight), shape, p=routes.weight)
    start = rng.uniform(-130, 0.85 * routes.length[route])
    eagerness = np.clip(rng.normal(0.95, 0.1, shape), 0.65, 1.15)
    row, column = route, np.clip((start / GRID).astype(np.int64), 0, routes.limit.shape[1] - 1)
    speed = np.minimum(routes.limit[row, column] * eagerness, tops[kind])
    exists = np.arange(VEHICLES) < rng.integers(12, VEHICLES + 1, (BLOCK, 1))
    exists &= ~routes.yields[routes.lane[row, column]]
    exists &= _spaced(routes, route, start, speed, exists)
    # Those who do not exist wait far before the network and never arrive.
    start = np.where(exists, start, -1e5 - 100.0 * np.arange(VEHICLES))
    fleet = Fleet(route, start, np.where(exists, speed, 0.0), eagerness, tops[kind], lengths[kind])
    s, v = (
        np.moveaxis(one[WARM_UP:], 0, 2) for one in drive(routes, fleet, occupied, WARM_UP + steps, STEP_S)
    )
    drift = rng.normal(0, 0.12, shape)[..., None] + 0.12 * np.sin(
        0.05 * s + rng.uniform(0, 6, shape)[..., None]
    )
    row = route[..., None].repeat(steps, 2)
    xy, angle = _poses(routes.position, routes.heading, row, s, sides[kind][..., None] + drift)
    codes = np.array([OBJECT_TYPES.index(name) for name in FLEET], np.int8)
    present = (s >= 0) & (s <= routes.length[row]) & exists[..., None]
    return Users(codes[kind], lengths[kind], widths[kind], xy, angle, v, present)


def _spaced(
    routes: Routes, route: NDArray[np.int64], start: Floats, speed: Floats, exists: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Whom to keep so that everyone starts with room before and behind; ``[B, A]``."""
    xy, angle = _poses(routes.position, routes.heading, route, start, np.zeros(start.shape))
    other = to_local(xy[:, None], xy[:, :, None], angle[:, :, None])
    room = 8.0 + 1.2 * np.maximum(speed[:, :, None], speed[:, None])
    clash = (np.abs(other[..., 0]) < room) & (np.abs(other[..., 1]) < 2.5)
    clash |= clash.transpose(0, 2, 1)
    keep = exists.copy()
    for a in range(1, VEHICLES):
        keep[:, a] &= ~(clash[:, a, :a] & keep[:, :a]).any(1)
    return keep


def _parked(rng: np.random.Generator, roads: Roads, steps: int) -> Users:
    places = np.array(roads.parking)
    chosen = places[np.stack([rng.permutation(len(places))[:PARKED] for _ in range(BLOCK)])]
    chosen[..., :2] += rng.normal(0, 0.1, chosen[..., :2].shape)
    chosen[..., 2] += rng.normal(0, 0.02, chosen.shape[:2])
    still = chosen[:, :, None].repeat(steps, 2)
    shape = chosen.shape[:2]
    exists = np.arange(PARKED) < rng.integers(0, PARKED + 1, (BLOCK, 1))
    return Users(
        np.full(shape, OBJECT_TYPES.index("vehicle"), np.int8),
        np.full(shape, 4.6),
        np.full(shape, 1.9),
        still[..., :2],
        still[..., 2],
        np.zeros(still.shape[:3]),
        exists[..., None].repeat(steps, 2),
    )


def _join(*groups: Users) -> Users:
    return Users(*(np.concatenate([getattr(g, name) for g in groups], 1) for name in Users.__annotations__))


def _colliding(users: Users) -> NDArray[np.bool_]:
    """``[B, A]`` who runs into someone listed before them; looked at twice a second."""
    xy, angle = users.position[:, :, ::5], users.heading[:, :, ::5]
    other = np.abs(to_local(xy[:, None], xy[:, :, None], angle[:, :, None]))
    reach = (users.length[:, :, None] + users.length[:, None]) / 2 - 0.2
    beside = (users.width[:, :, None] + users.width[:, None]) / 2
    hit = (other[..., 0] < reach[..., None]) & (other[..., 1] < beside[..., None])
    there = users.present[:, :, ::5]
    hit &= there[:, :, None] & there[:, None]
    clash = hit.any(3)
    earlier = np.tri(clash.shape[1], k=-1, dtype=np.bool_)
    return ((clash | clash.transpose(0, 2, 1)) & earlier).any(2)
