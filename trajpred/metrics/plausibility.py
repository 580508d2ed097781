"""Plausibility of futures: kept to the road, feasible motion, no collisions.

City frame float64, metres, radians, seconds. Sizes: ``A`` agents, ``K`` modes, ``F`` future steps. NaN
positions (unknown steps) never violate anything. Ground truth is passed as ``[A, 1, F, 2]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import norm, to_local
from trajpred.lane_map import LaneMap
from trajpred.metrics.map_compliance import is_road_vehicle, off_road, on_road, road_area, wrong_way
from trajpred.scenario import TYPICAL_SIZES

#: Motion is computed from three points this far apart (seconds). Position errors of 0.1 m then disturb
#: accelerations by 0.25 m/s², differences of single steps of 0.1 s by 25. Half a second suffices for
#: Argoverse 2, but Argoverse 1's recordings jerk: 42 % of its true futures would be infeasible, with a whole
#: second 2.9 % (Argoverse 2: 1.5 % of the road vehicles).
SPACING_S = 1.0
#: Below this speed (m/s) the curvature of a path is jitter.
MOVING_SPEED = 1.0
#: What a road vehicle can do; only impossible motion exceeds it, not uncomfortable motion. Curvature (1/m):
#: passenger cars turn on a circle of 10 to 12 m between kerbs, the centre of the rear axle on a radius of
#: about 4 m; 1/3 leaves room for noise at walking pace. Acceleration (m/s²): a strong production car takes
#: 4.6 s to 100 km/h. Deceleration and lateral acceleration: tyres on dry asphalt grip with about 0.8 g.
KINEMATIC_LIMITS = {"curvature": 1 / 3, "acceleration": 6.0, "deceleration": 8.0, "lateral": 8.0}
#: Boxes are scaled by this before they are compared: typical sizes are too large for half of all road users,
#: and positions err by a decimetre. Of Argoverse 2's true scored futures 2.3 % collide so, at full size 7 %.
BOX_SCALE = 0.9
#: Pairs of boxes compared at once.
_MAX_PAIRS = 1_000_000
#: Centre ``[N, 2]``, heading ``[N]`` and half (length, width) ``[N, 2]`` of N boxes.
_Boxes = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Futures:
    """Forecasts of ``A`` agents of several scenes, as far as plausibility depends on them.

    Attributes:
        scene: ``[A]`` int64 ascending, index into ``maps``.
        maps: the scenes' maps.
        object_type: ``[A]``, index into ``OBJECT_TYPES``.
        origin: ``[A, 2]`` metres; origin_heading: ``[A]`` radians; velocity: ``[A, 2]`` m/s: last observed.
        trajectory: ``[A, K, F, 2]`` metres, city frame; heading: ``[A, K, F]`` radians along each mode.
        probability: ``[A, K]``.
        modes: ``[A]`` int64, how many of the K modes an agent has; further ones have probability 0.
        in_world: ``[A]`` bool, agents whose modes are worlds together with those of the same scene.
        step_s: seconds between future steps.
    """

    scene: NDArray[np.int64]
    maps: Sequence[LaneMap]
    object_type: NDArray[np.int8]
    origin: NDArray[np.float64]
    origin_heading: NDArray[np.float64]
    velocity: NDArray[np.float64]
    trajectory: NDArray[np.float64]
    heading: NDArray[np.float64]
    probability: NDArray[np.float64]
    modes: NDArray[np.int64]
    in_world: NDArray[np.bool_]
    step_s: float

    @cached_property
    def on_map(self) -> dict[str, NDArray[np.float64]]:
        """``off-road``, ``wrong-way`` ``[A, K]``, NaN without a map; ``start`` ``[A]``, on the road."""
        parts = []
        for index, lane_map in enumerate(self.maps):
            rows, area = self.scene == index, road_area(lane_map)
            path, heading = self.trajectory[rows], self.heading[rows]
            unknown = {name: np.full(path.shape[:2], np.nan) for name in ("off-road", "wrong-way")}
            parts.append({"start": np.ones(len(path)), **unknown})
            if area is not None and len(lane_map):
                parts[-1] = {
                    "start": on_road(self.origin[rows], area).astype(float),
                    "off-road": off_road(path, area).astype(float),
                    "wrong-way": wrong_way(path, heading, lane_map, self.step_s).astype(float),
                }
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def share(self, violated: NDArray[np.float64] | NDArray[np.bool_]) -> NDArray[np.float64]:
        """Sum the probabilities of the modes ``violated`` ``[A, K]`` of road vehicles that start on the road.

        NaN for other agents.
        """
        applies = is_road_vehicle(self.object_type) & (self.on_map["start"] > 0)
        return np.where(applies, (self.probability * violated).sum(1), np.nan)


def infeasible_share(futures: Futures) -> NDArray[np.float64]:
    """Compute the probability ``[A]`` that a road vehicle moves as it cannot; NaN for other agents."""
    motion = kinematics(futures.trajectory, futures.origin, futures.velocity, futures.step_s)
    return futures.share(infeasible(motion))


def collision_share(futures: Futures) -> NDArray[np.float64]:
    """Compute the probability ``[A]`` of the worlds in which an agent collides; NaN without worlds."""
    rows, share = futures.in_world, np.full(len(futures.scene), np.nan)
    hit = collisions(
        futures.trajectory[rows],
        futures.heading[rows],
        TYPICAL_SIZES[futures.object_type[rows]],
        futures.scene[rows],
        futures.origin[rows],
        futures.origin_heading[rows],
    )
    share[rows] = (futures.probability[rows] * hit).sum(1)
    return share


def kinematics(
    trajectory: NDArray[np.float64],
    origin: NDArray[np.float64],
    origin_velocity: NDArray[np.float64],
    step_s: float = 0.1,
) -> dict[str, NDArray[np.float64]]:
    """Compute the extremes of each mode's motion, from points :data:`SPACING_S` apart around every step.

    With chords ``c1``, ``c2`` over τ seconds each, ``s = |c| / τ`` is a speed, ``(s2 - s1) / τ`` the
    acceleration along the path, ``κ = 2 |c1 × c2| / (|c1| |c2| |c1 + c2|)`` the curvature of the circle
    through the three points, and ``κ s1 s2`` the lateral acceleration. Exact for constant acceleration on a
    straight line and for constant speed on a circle. Before its origin an agent is assumed to have moved with
    its last velocity, so a mode that starts with a jerk is detected. Futures shorter than the spacing use
    the longest possible spacing.

    Args:
        trajectory: ``[A, K, F, 2]`` metres; step f is ``f + 1`` steps after the last observed one.
        origin, origin_velocity: ``[A, 2]`` metres and m/s, last observed.

    Returns:
        ``[A, K]`` each, at least 0: ``curvature`` (1/m) and ``lateral`` (m/s²) while faster than
        :data:`MOVING_SPEED`, ``acceleration`` and ``deceleration`` (m/s²) along the path.
    """
    A, K, F, _ = trajectory.shape
    gap = max(1, min(F, round(SPACING_S / step_s)))
    ago = np.arange(-gap, 1)[:, None] * step_s
    past = origin[:, None] + ago * origin_velocity[:, None]
    path = np.concatenate((np.broadcast_to(past[:, None], (A, K, gap + 1, 2)), trajectory), axis=2)
    chord = (path[:, :, gap:] - path[:, :, :-gap]) / (gap * step_s)  # m/s
    first, second = chord[:, :, :-gap], chord[:, :, gap:]
    s1, s2 = norm(first), norm(second)
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
    # fmax ignores NaN.
    return {name: np.fmax.reduce(value, axis=-1, initial=0.0) for name, value in values.items()}


def infeasible(motion: dict[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Return whether each mode ``[A, K]`` exceeds any of :data:`KINEMATIC_LIMITS`; for road vehicles."""
    exceeded = [motion[name] > limit for name, limit in KINEMATIC_LIMITS.items()]
    return np.logical_or.reduce(exceeded)


def collisions(
    trajectory: NDArray[np.float64],
    heading: NDArray[np.float64],
    size: NDArray[np.float64],
    scene: NDArray[np.int64],
    origin: NDArray[np.float64],
    origin_heading: NDArray[np.float64],
    box_scale: float = BOX_SCALE,
) -> NDArray[np.bool_]:
    """Return whether an agent's oriented box overlaps another's in world k: mode k of all agents of a scene.

    av2's threshold of 1 m between centres passes cars that scrape along each other and rejects people side
    by side. Pairs that already overlap at the last observed pose are ignored: there, the size or the
    recording is wrong.

    Args:
        trajectory: ``[A, K, F, 2]`` metres, all agents of a scene in one frame.
        heading: ``[A, K, F]`` radians.
        size: ``[A, 2]`` (length, width) metres, such as :data:`trajpred.scenario.TYPICAL_SIZES`.
        scene: ``[A]``, agents with the same number share a scene.
        origin, origin_heading: ``[A, 2]`` and ``[A]``, the last observed poses.
        box_scale: factor on ``size``; 1 where sizes are known.
    """
    half = size * (box_scale / 2)
    first, second = _pairs(scene)
    before = _overlap(*((origin[i], origin_heading[i], half[i]) for i in (first, second)))
    first, second = first[~before], second[~before]
    reach = norm(half)
    hit = np.zeros((len(first), trajectory.shape[1]), np.bool_)
    for steps in _chunks(trajectory.shape[2], hit.size):
        place, angle = trajectory[:, :, steps], heading[:, :, steps]
        near = norm(place[first] - place[second]) <= (reach[first] + reach[second])[:, None, None]
        pair, mode, step = np.nonzero(near)
        boxes = ((place[i, mode, step], angle[i, mode, step], half[i]) for i in (first[pair], second[pair]))
        overlaps = _overlap(*boxes)
        hit[pair[overlaps], mode[overlaps]] = True
    found = np.zeros(trajectory.shape[:2], np.bool_)
    for one in (first, second):
        np.logical_or.at(found, one, hit)
    return found


def _pairs(scene: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return all pairs of agents of the same scene, each once."""
    order = np.argsort(scene, kind="stable")
    later = np.searchsorted(scene[order], scene[order], side="right") - 1 - np.arange(len(scene))
    one = np.repeat(np.arange(len(scene)), later)
    other = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(later) - later, later)
    return order[one], order[other]


def _chunks(steps: int, pairs: int) -> Iterator[slice]:
    """Split the steps so that arrays over pairs and steps stay bounded."""
    size = max(1, _MAX_PAIRS // max(pairs, 1))
    return (slice(start, start + size) for start in range(0, steps, size))


def _overlap(a: _Boxes, b: _Boxes) -> NDArray[np.bool_]:
    """Return whether boxes overlap, pair by pair.

    Separating axes: two rectangles are disjoint if and only if they are so along a side of one of them.
    """
    return _meet_along(a, b) & _meet_along(b, a)


def _meet_along(a: _Boxes, b: _Boxes) -> NDArray[np.bool_]:
    """Return whether the projections on both sides of ``a`` overlap; touching does not count."""
    (center_a, heading_a, half_a), (center_b, heading_b, half_b) = a, b
    offset = np.abs(to_local(center_b, center_a, heading_a))
    cos, sin = np.abs(np.cos(heading_b - heading_a)), np.abs(np.sin(heading_b - heading_a))
    shadow = np.stack((cos * half_b[:, 0] + sin * half_b[:, 1], sin * half_b[:, 0] + cos * half_b[:, 1]), -1)
    return np.logical_and.reduce(offset < half_a + shadow, axis=-1)
