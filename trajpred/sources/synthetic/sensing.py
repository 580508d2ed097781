"""What the recording vehicle sees of a synthetic scene: range, noise, drop-outs, categories, and the map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import norm, unit_vector, wrap_angle
from trajpred.lane_map import MARK_TYPES, NO_LANE, LaneMap, Ragged
from trajpred.scenario import EGO_ID, Scenario, TrackCategory, Tracks
from trajpred.sources.synthetic.roads import Points, Roads
from trajpred.sources.synthetic.routes import Floats

CITY = "synthetic"
#: What the sensors reach, metres, and the shortest track they keep, steps.
RANGE, SHORTEST = 95.0, 5
#: Standard deviations of the noise (metres, radians, m/s), and its correlation from one step to the next.
NOISE = np.array([0.06, 0.06, 0.01, 0.08, 0.08])
CORRELATION = 0.85
#: Probability that a track has a gap, and the longest gap in steps.
GAPS, LONGEST_GAP = 0.25, 12
#: At most so many tracks are judged beside the focal one, those nearest to it.
SCORED = 5
#: Nanoseconds; with steps of 0.1 s all stamps are multiples of 256, which float64 holds exactly.
EPOCH_NS = 315_964_800 * 10**9
#: Identifiers of crossings and areas begin here; those of lanes at 1.
CROSSING_IDS, AREA_IDS = 10_001, 20_001


@dataclass
class Users:
    """``A`` road users of ``B`` scenarios over ``T`` steps: the true states.

    Attributes:
        object_type, length, width: ``[B, A]``.
        position, heading, speed: ``[B, A, T, 2]`` metres, ``[B, A, T]`` radians and m/s.
        present: ``[B, A, T]`` on the map.
    """

    object_type: NDArray[np.int8]
    length: Floats
    width: Floats
    position: Floats
    heading: Floats
    speed: Floats
    present: NDArray[np.bool_]


def observe(
    rng: np.random.Generator,
    users: Users,
    vehicles: int,
    lane_map: LaneMap,
    ids: list[str],
    observed: int,
    step_s: float,
) -> list[Scenario]:
    """The scenarios as recorded; the first ``vehicles`` users can be ego or focal.

    Both are known at all steps: where the roads end before the recording does, they drive straight on.
    """
    B, A, T = users.present.shape
    ego, focal = _leading_parts(rng, users, vehicles)
    rows = np.arange(B)
    distance = norm(users.position - users.position[rows, ego][:, None])
    valid = users.present & (distance < RANGE)
    gap = rng.integers(0, T, (B, A, 1)) + np.array([0, 1]) * rng.integers(1, LONGEST_GAP + 1, (B, A, 1))
    step = np.arange(T)
    lost = (step >= gap[..., :1]) & (step < gap[..., 1:]) & (rng.random((B, A, 1)) < GAPS)
    valid &= ~lost
    valid[valid.sum(2) < SHORTEST] = False
    valid[rows, ego] = valid[rows, focal] = True
    states = _noisy(rng, users, ego)
    category = _categories(users, valid, focal, ego, observed)
    stamps = EPOCH_NS + np.round(step * step_s * 1e9).astype(np.int64)
    scenarios = []
    for b in range(B):
        seen = np.flatnonzero(valid[b].any(1))
        mask = valid[b, seen]
        state = np.where(mask[..., None], states[b, seen], 0.0)
        names = np.where(seen == ego[b], EGO_ID, (1000 + seen).astype(str))
        tracks = Tracks(
            names,
            users.object_type[b, seen],
            category[b, seen],
            mask,
            state[..., :2],
            state[..., 2],
            state[..., 3:],
        )
        focal_id = str(1000 + focal[b])
        scenarios.append(Scenario(ids[b], CITY, stamps, observed, focal_id, tracks, lane_map).validate())
    return scenarios


def _leading_parts(
    rng: np.random.Generator, users: Users, vehicles: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows ``[B]`` of ego and focal vehicle: long on the map, moving, near each other; preferably turning."""
    heading, speed = users.heading[:, :vehicles], users.speed[:, :vehicles]
    long = users.present[:, :vehicles].mean(2) * 10
    automobile = users.object_type[:, :vehicles] == 0
    travelled = np.minimum(speed.mean(2), 5.0) / 5
    turned = np.abs(wrap_angle(heading[..., -1] - heading[..., 0])) > 0.4
    ego = (long + travelled + automobile * 5 + rng.random(long.shape)).argmax(1)
    rows = np.arange(len(ego))
    apart = norm(users.position[:, :vehicles] - users.position[rows, ego][:, None]).mean(2) / 60
    merit = long + 2 * travelled + turned - apart + rng.random(long.shape)
    merit[rows, ego] = -np.inf
    return ego, merit.argmax(1)


def _noisy(rng: np.random.Generator, users: Users, ego: NDArray[np.int64]) -> Floats:
    """States ``[B, A, T, 5]`` (x, y, heading, velocity) with slowly changing noise; the ego has little."""
    velocity = users.speed[..., None] * unit_vector(users.heading)
    states = np.concatenate((users.position, users.heading[..., None], velocity), -1)
    white = rng.standard_normal(states.shape) * NOISE
    white[..., 1:, :] *= np.sqrt(1 - CORRELATION**2)
    for t in range(1, white.shape[2]):
        white[:, :, t] += CORRELATION * white[:, :, t - 1]
    white[np.arange(len(ego)), ego] *= 0.1
    states += white
    states[..., 2] = wrap_angle(states[..., 2])
    return states


def _categories(
    users: Users, valid: NDArray[np.bool_], focal: NDArray[np.int64], ego: NDArray[np.int64], observed: int
) -> NDArray[np.int8]:
    """As in Argoverse 2: focal, scored (whole, moving, near the focal), unscored, and fragments."""
    rows = np.arange(len(focal))
    category = np.where(valid.mean(2) < 0.5, TrackCategory.FRAGMENT, TrackCategory.UNSCORED)
    moved = norm(users.position[:, :, -1] - users.position[:, :, 0]) > 4.0
    now = users.position[:, :, observed - 1]
    distance = norm(now - now[rows, focal][:, None])
    able = valid.all(2) & moved & (distance < 50)
    able[rows, focal] = able[rows, ego] = False
    rank = np.where(able, distance, np.inf).argsort(1).argsort(1)
    category[able & (rank < SCORED)] = TrackCategory.SCORED
    category[rows, ego] = TrackCategory.UNSCORED
    category[rows, focal] = TrackCategory.FOCAL
    return category.astype(np.int8)


def to_lane_map(roads: Roads) -> LaneMap:
    """The network as a map of three-dimensional polylines at height 0, to the centimetre."""

    def lines(rows: list[Points]) -> Ragged:
        flat = Ragged.from_rows(rows, 2)
        return Ragged(np.column_stack((flat.values.round(2), np.zeros(len(flat.values)))), flat.offsets)

    def ids(rows: list[list[int]]) -> Ragged:
        return Ragged.from_rows([[1 + i for i in row] for row in rows], dtype=np.int64)

    lanes, count = roads.lanes, len(roads.lanes)
    left, right = ([NO_LANE if i is None else 1 + i for i in row] for row in (
        [lane.left_neighbor for lane in lanes], [lane.right_neighbor for lane in lanes]))  # fmt: skip
    return LaneMap(
        lane_id=np.arange(1, count + 1),
        lane_type=np.zeros(count, np.int8),
        is_intersection=np.array([lane.is_intersection for lane in lanes]),
        centerline=lines([lane.centerline for lane in lanes]),
        left_boundary=lines([lane.left for lane in lanes]),
        right_boundary=lines([lane.right for lane in lanes]),
        left_mark=np.array([MARK_TYPES.index(lane.left_mark) for lane in lanes], np.int8),
        right_mark=np.array([MARK_TYPES.index(lane.right_mark) for lane in lanes], np.int8),
        left_neighbor=np.array(left, np.int64),
        right_neighbor=np.array(right, np.int64),
        predecessors=ids([lane.predecessors for lane in lanes]),
        successors=ids([lane.successors for lane in lanes]),
        crossing_id=CROSSING_IDS + np.arange(len(roads.crossings)),
        crossing_edge1=lines([edge for edge, _ in roads.crossings]),
        crossing_edge2=lines([edge for _, edge in roads.crossings]),
        drivable_area_id=AREA_IDS + np.arange(len(roads.areas)),
        drivable_area=lines(roads.areas),
    )
