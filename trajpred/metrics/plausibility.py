"""Plausibility of futures: on the road, with the traffic, without collisions, kinematically feasible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from trajpred.data.geometry import direction, norm, to_local, wrap_angle
from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.tracks import OBJECT_TYPES

#: Types bound to the road; pedestrians and cyclists are not.
ROAD_VEHICLES = ("vehicle", "bus", "motorcyclist")
#: Half the assumed width of lanes without boundaries: half of 3.5 m (most lanes are 2.7 to 3.7 m wide).
HALF_LANE_WIDTH_M = 1.75
#: An agent drives on a lane if the lane's centreline is at most this far away.
LANE_REACH_M = 2.0
#: A heading that differs from a lane's direction by more than this is against the lane. It is well over a
#: right angle: crossing traffic and the start of a U-turn are not wrong-way driving.
WRONG_WAY_RAD = float(np.deg2rad(135.0))
#: Below this speed (m/s), heading and curvature of a path are uncertain.
MOVING_SPEED = 1.0
#: Total duration (seconds) of driving against all lanes that counts as wrong-way.
WRONG_WAY_S = 1.0


def is_road_vehicle(object_type: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return whether agents of ``object_type`` ``[...]`` (index of OBJECT_TYPES) are bound to the road."""
    codes = [OBJECT_TYPES.index(name) for name in ROAD_VEHICLES]
    return np.isin(object_type, codes)


def road_area(lane_map: LaneMap) -> shapely.Geometry | None:
    """Return the drivable area, prepared for fast queries; None if the map is empty.

    The union of the drivable areas. For a map without any (custom maps; Argoverse 1, whose rasters are not
    read), the lanes: polygons between left and right boundary, or centrelines widened by
    :data:`HALF_LANE_WIDTH_M`. Lanes exclude parking bays, shoulders and driveways, so rates on the two kinds
    of map are not comparable.
    """
    has_areas = len(lane_map.drivable_area) > 0
    shapes = _polygons(lane_map.drivable_area) if has_areas else _lane_shapes(lane_map)
    if not len(shapes):
        return None
    area = shapely.union_all(shapes)
    shapely.prepare(area)
    return area


def on_road(points: NDArray[np.float64], area: shapely.Geometry) -> NDArray[np.bool_]:
    """Return whether ``points`` ``[..., 2]`` lie in ``area`` or on its edge; False for NaN points."""
    return np.asarray(shapely.intersects_xy(area, points[..., 0], points[..., 1]))


def off_road(trajectory: NDArray[np.float64], area: shapely.Geometry) -> NDArray[np.bool_]:
    """Return whether each agent's centre has left ``area`` (:func:`road_area`) by each step: ``[A, K, F]``.

    Meant for road vehicles (:func:`is_road_vehicle`) that start on the road.
    """
    outside = ~on_road(trajectory, area) & np.isfinite(trajectory).all(axis=-1)
    return np.logical_or.accumulate(outside, axis=-1)


def wrong_way(
    trajectory: NDArray[np.float64], heading: NDArray[np.float64], lane_map: LaneMap, step_s: float = 0.1
) -> NDArray[np.bool_]:
    """Return whether each mode has driven against all nearby lanes by each step: ``[A, K, F]``.

    That needs :data:`WRONG_WAY_S` in total. A step counts if the agent is faster than :data:`MOVING_SPEED`,
    at least one centreline is within :data:`LANE_REACH_M`, none of these belongs to an intersection, and the
    heading differs from all their directions by more than :data:`WRONG_WAY_RAD`.

    Args:
        trajectory: ``[A, K, F, 2]`` metres, city frame; heading: ``[A, K, F]`` radians.
    """
    moving = np.zeros(trajectory.shape[:3], np.bool_)
    if trajectory.shape[2] > 1:  # a single step has no velocity
        moving = norm(np.gradient(trajectory, step_s, axis=2)) > MOVING_SPEED  # False where NaN
    against = np.zeros(moving.shape, np.bool_)
    against[moving] = _against_all_lanes(trajectory[moving], heading[moving], lane_map)
    seconds = against.cumsum(axis=-1) * step_s
    return seconds > WRONG_WAY_S - step_s / 2  # timestamps jitter


def _against_all_lanes(
    points: NDArray[np.float64], heading: NDArray[np.float64], lane_map: LaneMap
) -> NDArray[np.bool_]:
    """Return whether points ``[N, 2]`` are near lanes, off intersections, and against all lanes: ``[N]``."""
    start, end, lane = _segments(lane_map.centerline)
    tree = shapely.STRtree(shapely.linestrings(np.stack((start, end), 1)))
    point, segment = tree.query(shapely.points(points), predicate="dwithin", distance=LANE_REACH_M)
    lane_heading = direction(end - start)
    turned = np.abs(wrap_angle(heading[point] - lane_heading[segment]))
    allowed = (turned <= WRONG_WAY_RAD) | lane_map.is_intersection[lane[segment]]
    near = np.zeros(len(points), np.bool_)
    near[point] = True
    permitted = np.zeros(len(points), np.bool_)
    permitted[point[allowed]] = True
    return near & ~permitted


def _segments(lines: Ragged) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return start and end ``[M, 2]`` of the segments of all lines, and the line ``[M]`` of each."""
    row = np.repeat(np.arange(len(lines)), lines.lengths)
    start = lines.values[:-1, :2]
    end = lines.values[1:, :2]
    same_line = row[1:] == row[:-1]
    moves = (end != start).any(-1)  # a repeated point has no direction
    inner = same_line & moves
    return start[inner], end[inner], row[1:][inner]


def _polygons(rings: Ragged) -> NDArray[np.object_]:
    """Build a valid polygon from each row of vertices ``[V, 2 or 3]``; open rings are closed."""
    row = np.repeat(np.arange(len(rings)), rings.lengths)
    closed = shapely.linearrings(rings.values[:, :2], indices=row)
    return shapely.make_valid(shapely.polygons(closed))


def _lane_shapes(lane_map: LaneMap) -> NDArray[np.object_]:
    """Build a polygon for each lane."""
    left = lane_map.left_boundary
    right = lane_map.right_boundary
    bounded = (left.lengths >= 2) & (right.lengths >= 2)
    rings: list[NDArray[np.float64]] = []
    for lane in np.flatnonzero(bounded).tolist():
        backwards = right[lane][::-1, :2]
        rings.append(np.concatenate((left[lane][:, :2], backwards)))
    row = np.repeat(np.arange(len(lane_map)), lane_map.centerline.lengths)
    bare = ~bounded[row]
    rank = np.cumsum(~bounded) - 1  # shapely requires consecutive indices
    lines = shapely.linestrings(lane_map.centerline.values[bare, :2], indices=rank[row[bare]])
    widened = shapely.buffer(lines, HALF_LANE_WIDTH_M)
    return np.concatenate((_polygons(Ragged.from_rows(rings, 2)), widened))


#: Boxes are scaled by this before comparison: typical sizes are too large for half of all road users, and
#: positions err by a decimetre. With this scale 2.3 % of Argoverse 2's true scored futures collide (7 % at
#: full size), and none of 120 in Sensor logs, whose sizes are known (3 %).
BOX_SCALE = 0.9
#: Pairs of boxes compared at once.
_MAX_PAIRS = 1_000_000


@dataclass(frozen=True)
class _Boxes:
    """N oriented boxes.

    Attributes:
        center: ``[N, 2]`` metres.
        heading: ``[N]`` radians.
        half: ``[N, 2]`` metres, half the length and the width.
    """

    center: NDArray[np.float64]
    heading: NDArray[np.float64]
    half: NDArray[np.float64]

    def at(self, rows: NDArray[np.intp]) -> _Boxes:
        return _Boxes(self.center[rows], self.heading[rows], self.half[rows])


def collisions(
    trajectory: NDArray[np.float64],
    heading: NDArray[np.float64],
    size: NDArray[np.float64],
    scene: NDArray[np.int64],
    origin: NDArray[np.float64],
    origin_heading: NDArray[np.float64],
    box_scale: float = BOX_SCALE,
) -> NDArray[np.bool_]:
    """Return whether an agent's oriented box overlaps another one of its scene in joint mode k.

    av2's threshold of 1 m between centres accepts cars that scrape along each other and rejects people side
    by side. Pairs that already overlap at the last observed pose are ignored: their sizes or recorded states
    are wrong.

    Args:
        trajectory: ``[A, K, F, 2]`` metres, all agents of a scene in one frame.
        heading: ``[A, K, F]`` radians.
        size: ``[A, 2]`` (length, width) metres, see :meth:`trajpred.data.tracks.Tracks.box`.
        scene: ``[A]``, agents with the same number share a scene.
        origin, origin_heading: ``[A, 2]`` and ``[A]``, the last observed poses.
        box_scale: factor on ``size``.
    """
    half = size * (box_scale / 2)
    observed = _Boxes(origin, origin_heading, half)
    first, second = _pairs(scene)
    apart = ~_overlap(observed.at(first), observed.at(second))
    first = first[apart]
    second = second[apart]
    reach = norm(half)
    limit = (reach[first] + reach[second])[:, None, None]
    hit = np.zeros((len(first), trajectory.shape[1]), np.bool_)
    for steps in _chunks(trajectory.shape[2], hit.size):
        position = trajectory[:, :, steps]
        angle = heading[:, :, steps]
        near = norm(position[first] - position[second]) <= limit
        pair, mode, step = np.nonzero(near)
        agent1 = first[pair]
        agent2 = second[pair]
        boxes1 = _Boxes(position[agent1, mode, step], angle[agent1, mode, step], half[agent1])
        boxes2 = _Boxes(position[agent2, mode, step], angle[agent2, mode, step], half[agent2])
        overlaps = _overlap(boxes1, boxes2)
        hit[pair[overlaps], mode[overlaps]] = True
    collided = np.zeros(trajectory.shape[:2], np.bool_)
    np.logical_or.at(collided, first, hit)
    np.logical_or.at(collided, second, hit)
    return collided


def _pairs(scene: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return all pairs of agents of the same scene, each once."""
    order = np.argsort(scene, kind="stable")
    ascending = scene[order]
    rank = np.arange(len(scene))
    # How many agents of the scene follow each agent in this order.
    later = np.searchsorted(ascending, ascending, side="right") - 1 - rank
    first = np.repeat(rank, later)
    start = np.repeat(np.cumsum(later) - later, later)
    second = first + 1 + np.arange(len(first)) - start
    return order[first], order[second]


def _chunks(steps: int, pairs: int) -> Iterator[slice]:
    """Split the steps so that arrays over pairs and steps stay bounded."""
    size = max(1, _MAX_PAIRS // max(pairs, 1))
    for start in range(0, steps, size):
        yield slice(start, start + size)


def _overlap(a: _Boxes, b: _Boxes) -> NDArray[np.bool_]:
    """Return whether boxes overlap, pair by pair.

    Separating axes: two rectangles are disjoint if and only if their projections on a side of one are.
    """
    return _meet_along(a, b) & _meet_along(b, a)


def _meet_along(a: _Boxes, b: _Boxes) -> NDArray[np.bool_]:
    """Return whether the projections on both sides of ``a`` overlap; touching does not count."""
    offset = np.abs(to_local(b.center, a.center, a.heading))
    turn = b.heading - a.heading
    cos = np.abs(np.cos(turn))
    sin = np.abs(np.sin(turn))
    half_length = b.half[:, 0]
    half_width = b.half[:, 1]
    along = cos * half_length + sin * half_width
    across = sin * half_length + cos * half_width
    shadow = np.stack((along, across), -1)
    return np.logical_and.reduce(offset < a.half + shadow, axis=-1)


#: Motion is computed from three points this far apart (seconds). Position errors of 0.1 m then disturb
#: accelerations by 0.25 m/s²; with single steps of 0.1 s it would be 25 m/s². Half a second suffices for
#: Argoverse 2, but Argoverse 1's recordings jerk: 42 % of its true futures would be infeasible, with a whole
#: second 2.9 % (Argoverse 2: 1.5 % of the road vehicles).
SPACING_S = 1.0
#: What a road vehicle can do; only impossible motion exceeds it, not uncomfortable motion. Curvature (1/m):
#: passenger cars turn on a circle of 10 to 12 m between kerbs, the centre of the rear axle on a radius of
#: about 4 m; 1/3 leaves room for noise at walking pace. Acceleration (m/s²): a strong production car takes
#: 4.6 s to 100 km/h. Deceleration and lateral acceleration: tyres on dry asphalt grip with about 0.8 g.
KINEMATIC_LIMITS = {"curvature": 1 / 3, "acceleration": 6.0, "deceleration": 8.0, "lateral": 8.0}
#: Rules that each mode keeps or breaks by each step.
RULES = ("off-road", "wrong-way", "infeasible")
#: A stationary agent's true positions stay within this distance (metres) of its last observed one: jitter is
#: smaller, a pedestrian's step larger.
STATIONARY_M = 0.5


@dataclass(frozen=True)
class Futures:
    """Forecasts of ``A`` agents of several scenes, with everything that plausibility depends on.

    Attributes:
        scene: ``[A]`` int64 ascending, index into ``maps``.
        maps: the scenes' maps.
        object_type: ``[A]``, index into ``OBJECT_TYPES``.
        size: ``[A, 2]`` metres, length and width.
        origin: ``[A, 2]`` metres; origin_heading: ``[A]`` radians; velocity: ``[A, 2]`` m/s: last observed.
        trajectory: ``[A, K, F, 2]`` metres, city frame; heading: ``[A, K, F]`` radians along each mode.
        probability: ``[A, K]``.
        target: ``[A, F, 2]`` metres; valid: ``[A, F]``: the true futures.
        modes: ``[A]`` int64, how many of the K modes an agent has; further ones have probability 0.
        is_joint: ``[A]`` bool, agents whose modes are joint with those of the same scene.
        step_s: seconds between future steps.
    """

    scene: NDArray[np.int64]
    maps: Sequence[LaneMap]
    object_type: NDArray[np.int8]
    size: NDArray[np.float64]
    origin: NDArray[np.float64]
    origin_heading: NDArray[np.float64]
    velocity: NDArray[np.float64]
    trajectory: NDArray[np.float64]
    heading: NDArray[np.float64]
    probability: NDArray[np.float64]
    target: NDArray[np.float64]
    valid: NDArray[np.bool_]
    modes: NDArray[np.int64]
    is_joint: NDArray[np.bool_]
    step_s: float

    @cached_property
    def applies(self) -> NDArray[np.bool_]:
        """Road vehicles that start on the road ``[A]``: the agents that :data:`RULES` apply to."""
        return is_road_vehicle(self.object_type) & (self._on_map["start"] > 0)

    @cached_property
    def broken(self) -> dict[str, NDArray[np.floating]]:
        """For each of :data:`RULES` whether each mode has broken it by each step: ``[A, K, F]``.

        1 or 0; NaN without a map.
        """
        motion = kinematics(self.trajectory, self.origin, self.velocity, self.step_s)
        on_map = self._on_map
        return {
            "off-road": on_map["off-road"],
            "wrong-way": on_map["wrong-way"],
            "infeasible": infeasible(motion).astype(np.float32),
        }

    @cached_property
    def _on_map(self) -> dict[str, NDArray[np.floating]]:
        """``off-road``, ``wrong-way`` ``[A, K, F]``, NaN without a map; ``start`` ``[A]``, on the road."""
        parts = []
        for index, lane_map in enumerate(self.maps):
            rows = self.scene == index
            area = road_area(lane_map)
            path = self.trajectory[rows]
            heading = self.heading[rows]
            unknown = np.full(path.shape[:3], np.nan, np.float32)
            part = {"start": np.ones(len(path)), "off-road": unknown, "wrong-way": unknown}
            if area is not None and len(lane_map):
                against = wrong_way(path, heading, lane_map, self.step_s)
                part = {
                    "start": on_road(self.origin[rows], area).astype(float),
                    "off-road": off_road(path, area).astype(np.float32),
                    "wrong-way": against.astype(np.float32),
                }
            parts.append(part)
        columns = {}
        for name in parts[0]:
            columns[name] = np.concatenate([part[name] for part in parts])
        return columns

    def until(self, steps: int | None = None) -> FuturesUntil:
        """Return the futures as if they ended after ``steps``, by default all."""
        if steps is None:
            steps = self.trajectory.shape[2]
        return FuturesUntil(self, steps)


class FuturesUntil(NamedTuple):
    """Futures as if they ended after ``steps`` steps: the input of plausibility metrics."""

    futures: Futures
    steps: int

    def probability_of(self, rule: str) -> NDArray[np.float64]:
        """Sum the probabilities ``[A]`` of the modes that break one of :data:`RULES`.

        NaN for agents that the rules do not apply to.
        """
        broken = self.futures.broken[rule][:, :, self.steps - 1]
        total = (self.futures.probability * broken).sum(axis=1)
        return np.where(self.futures.applies, total, np.nan)

    def fraction_of_modes(self, rule: str) -> NDArray[np.float64]:
        """Compute the fraction ``[A]`` of the modes that break one of :data:`RULES`, counted equally.

        NaN for agents that the rules do not apply to.
        """
        broken = self.futures.broken[rule][:, :, self.steps - 1]
        modes = self.futures.modes[:, None]
        exists = np.arange(broken.shape[1]) < modes
        fraction = (broken * exists).sum(axis=1) / modes[:, 0]
        return np.where(self.futures.applies, fraction, np.nan)

    def stationary_drift(self) -> NDArray[np.float64]:
        """Compute the distance ``[A]`` (metres) between stationary agents and the ends of their modes.

        The mean weighted by probability, ``Σ_k p_k |end_k - origin|``. NaN for agents that are farther than
        :data:`STATIONARY_M` from their origin at any of these steps, or not seen at the last one.
        """
        futures = self.futures
        valid = futures.valid[:, : self.steps]
        away = norm(futures.target[:, : self.steps] - futures.origin[:, None])
        farthest = np.where(valid, away, 0.0).max(axis=1)
        stationary = valid[:, -1] & (farthest <= STATIONARY_M)
        end = norm(futures.trajectory[:, :, self.steps - 1] - futures.origin[:, None])
        drift = (futures.probability * end).sum(axis=1)
        return np.where(stationary, drift, np.nan)


def collision_probability(until: FuturesUntil) -> NDArray[np.float64]:
    """Compute the probability ``[A]`` of the joint modes in which an agent collides, NaN without any."""
    futures = until.futures
    rows = futures.is_joint
    probability = np.full(len(futures.scene), np.nan)
    hit = collisions(
        futures.trajectory[rows],
        futures.heading[rows],
        futures.size[rows],
        futures.scene[rows],
        futures.origin[rows],
        futures.origin_heading[rows],
    )
    probability[rows] = (futures.probability[rows] * hit).sum(1)
    return probability


def kinematics(
    trajectory: NDArray[np.float64],
    origin: NDArray[np.float64],
    origin_velocity: NDArray[np.float64],
    step_s: float = 0.1,
) -> dict[str, NDArray[np.float64]]:
    """Compute the extremes of each mode's motion up to each step.

    They are computed from points :data:`SPACING_S` apart around every step. With chords ``c1``, ``c2`` over τ
    seconds each, ``s = |c| / τ`` is a speed, ``(s2 - s1) / τ`` the acceleration along the path, ``κ = 2 |c1 ×
    c2| / (|c1| |c2| |c1 + c2|)`` the curvature of the circle through the three points, and ``κ s1 s2`` the
    lateral acceleration. The result is exact for constant acceleration on a straight line and for constant
    speed on a circle. An agent is assumed to have reached its origin at its last velocity, so a mode that
    starts with a jerk is detected. Futures shorter than the spacing use the longest possible spacing.

    Args:
        trajectory: ``[A, K, F, 2]`` metres; step f is ``f + 1`` steps after the last observed one.
        origin, origin_velocity: ``[A, 2]`` metres and m/s, last observed.

    Returns:
        ``[A, K, F]`` each, non-negative and non-decreasing: ``curvature`` (1/m) and ``lateral`` (m/s²) while
        faster than :data:`MOVING_SPEED`, ``acceleration`` and ``deceleration`` (m/s²) along the path. 0 at
        steps before the first points of all three.
    """
    A, K, F, _ = trajectory.shape
    gap = max(1, min(F, round(SPACING_S / step_s)))
    ago = np.arange(-gap, 1)[:, None] * step_s
    past = origin[:, None] + ago * origin_velocity[:, None]
    path = np.concatenate((np.broadcast_to(past[:, None], (A, K, gap + 1, 2)), trajectory), axis=2)
    chord = (path[:, :, gap:] - path[:, :, :-gap]) / (gap * step_s)  # m/s
    first = chord[:, :, :-gap]
    second = chord[:, :, gap:]
    s1 = norm(first)
    s2 = norm(second)
    moving = (s1 > MOVING_SPEED) & (s2 > MOVING_SPEED)
    cross = np.abs(first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0])
    # |c1 + c2| of an exact reversal is 0: its curvature is infinite, and infeasible.
    with np.errstate(divide="ignore", invalid="ignore"):
        lateral = 2 * cross / norm(first + second) / (gap * step_s)
        curvature = lateral / (s1 * s2)
    along = (s2 - s1) / (gap * step_s)
    values = {
        "curvature": np.where(moving, curvature, 0.0),
        "acceleration": along,
        "deceleration": -along,
        "lateral": np.where(moving, lateral, 0.0),
    }
    extremes = {}
    for name, value in values.items():
        padded = np.zeros((A, K, F))
        padded[:, :, gap - 1 :] = value
        extremes[name] = np.fmax.accumulate(np.fmax(padded, 0.0), axis=-1)  # fmax ignores NaN
    return extremes


def infeasible(motion: dict[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Return whether each mode has exceeded any of :data:`KINEMATIC_LIMITS` by each step: ``[A, K, F]``.

    For road vehicles.
    """
    exceeded = [motion[name] > limit for name, limit in KINEMATIC_LIMITS.items()]
    return np.logical_or.reduce(exceeded)
