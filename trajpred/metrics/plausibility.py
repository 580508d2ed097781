"""Plausibility of futures: kept to the road, feasible motion, no collisions.

City frame float64, metres, radians, seconds. Sizes: ``A`` agents, ``K`` modes, ``F`` future steps. NaN
positions (unknown steps) never violate anything. Ground truth is passed as ``[A, 1, F, 2]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import norm
from trajpred.lane_map import LaneMap
from trajpred.metrics.collisions import collisions
from trajpred.metrics.map_compliance import is_road_vehicle, off_road, on_road, road_area, wrong_way
from trajpred.tracks import TYPICAL_SIZES

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
#: The rules that each mode keeps or breaks by each step.
RULES = ("off-road", "wrong-way", "infeasible")
#: A standing agent truly stays within this distance (metres) of its last observed position: jitter of a
#: recording is smaller, a step of a pedestrian larger.
STANDING_M = 0.5


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
        target: ``[A, F, 2]`` metres; valid: ``[A, F]``: the true futures.
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
    target: NDArray[np.float64]
    valid: NDArray[np.bool_]
    modes: NDArray[np.int64]
    in_world: NDArray[np.bool_]
    step_s: float

    @cached_property
    def applies(self) -> NDArray[np.bool_]:
        """Road vehicles that start on the road ``[A]``: the agents that :data:`RULES` apply to."""
        return is_road_vehicle(self.object_type) & (self._on_map["start"] > 0)

    @cached_property
    def broken(self) -> dict[str, NDArray[np.floating]]:
        """For each of :data:`RULES` whether each mode has broken it by each step: ``[A, K, F]``.

        1 or 0; NaN where there is no map to say so.
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
    """Futures as if they ended after a number of ``steps``: what plausibility metrics are computed from."""

    futures: Futures
    steps: int

    def probability_of(self, rule: str) -> NDArray[np.float64]:
        """Sum the probabilities ``[A]`` of the modes that break one of :data:`RULES`.

        NaN for agents that the rules do not apply to.
        """
        broken = self.futures.broken[rule][:, :, self.steps - 1]
        total = (self.futures.probability * broken).sum(axis=1)
        return np.where(self.futures.applies, total, np.nan)

    def share_of_modes(self, rule: str) -> NDArray[np.float64]:
        """Compute the share ``[A]`` of the modes that break one of :data:`RULES`, all modes alike.

        NaN for agents that the rules do not apply to.
        """
        broken = self.futures.broken[rule][:, :, self.steps - 1]
        modes = self.futures.modes[:, None]
        exists = np.arange(broken.shape[1]) < modes
        share = (broken * exists).sum(axis=1) / modes[:, 0]
        return np.where(self.futures.applies, share, np.nan)

    def standing_drift(self) -> NDArray[np.float64]:
        """Compute how far the modes of standing agents end from where these stand: ``[A]`` metres.

        The mean by probability, ``Σ_k p_k |end_k - origin|``. NaN for agents that are farther than
        :data:`STANDING_M` from there at any of these steps, or not seen at the last one.
        """
        futures = self.futures
        valid = futures.valid[:, : self.steps]
        away = norm(futures.target[:, : self.steps] - futures.origin[:, None])
        farthest = np.where(valid, away, 0.0).max(axis=1)
        stands = valid[:, -1] & (farthest <= STANDING_M)
        end = norm(futures.trajectory[:, :, self.steps - 1] - futures.origin[:, None])
        drift = (futures.probability * end).sum(axis=1)
        return np.where(stands, drift, np.nan)


def collision_share(futures: Futures) -> NDArray[np.float64]:
    """Compute the probability ``[A]`` of the worlds in which an agent collides; NaN without worlds."""
    rows = futures.in_world
    share = np.full(len(futures.scene), np.nan)
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
    """Compute the extremes of each mode's motion up to each step.

    They are those of points :data:`SPACING_S` apart around every step. With chords ``c1``, ``c2`` over τ
    seconds each, ``s = |c| / τ`` is a speed, ``(s2 - s1) / τ`` the acceleration along the path, ``κ = 2 |c1 ×
    c2| / (|c1| |c2| |c1 + c2|)`` the curvature of the circle through the three points, and ``κ s1 s2`` the
    lateral acceleration. Exact for constant acceleration on a straight line and for constant speed on a
    circle. Before its origin an agent is assumed to have moved with its last velocity, so a mode that starts
    with a jerk is detected. Futures shorter than the spacing use the longest possible spacing.

    Args:
        trajectory: ``[A, K, F, 2]`` metres; step f is ``f + 1`` steps after the last observed one.
        origin, origin_velocity: ``[A, 2]`` metres and m/s, last observed.

    Returns:
        ``[A, K, F]`` each, at least 0 and never falling: ``curvature`` (1/m) and ``lateral`` (m/s²) while
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
