"""Could it happen? Motion within what a vehicle can do, modes that differ, headings that fit.

City frame float64, metres, radians, seconds. Sizes: ``A`` agents, ``K`` modes, ``F`` future steps. NaN
positions (unknown steps) never violate anything. The ground truth passes as ``[A, 1, F, 2]``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import norm, to_local

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Motion is judged from three points this far apart (seconds). Positions that are off by 0.1 m each then
#: disturb accelerations by 0.25 m/s², where differences of single steps of 0.1 s would by 25. Half a second
#: would do for Argoverse 2, but Argoverse 1's recordings jerk: 42 % of its true futures would be infeasible,
#: where with a whole second 2.9 % are (Argoverse 2: 1.5 % of the road vehicles).
SPACING_S = 1.0
#: Below this speed (m/s) a path has no curvature to speak of: what is left is jitter.
MOVING_SPEED = 1.0


@dataclass(frozen=True)
class Kinematics:
    """The extremes of each mode's motion, each at least 0.

    Attributes:
        curvature: ``[A, K]`` 1/m, while faster than :data:`MOVING_SPEED`.
        acceleration, deceleration: ``[A, K]`` m/s² along the path.
        lateral: ``[A, K]`` m/s² across the path, while faster than :data:`MOVING_SPEED`.
    """

    curvature: Floats
    acceleration: Floats
    deceleration: Floats
    lateral: Floats


@dataclass(frozen=True)
class KinematicLimits:
    """What a road vehicle can do: bounds that only impossible motion exceeds, not uncomfortable motion.

    Attributes:
        curvature: 1/m. Passenger cars turn on a circle of 10 to 12 m between kerbs; the centre of the rear
            axle then follows a radius of about 4 m. 1/3 leaves room for noise at walking pace.
        acceleration: m/s². A strong production car takes 4.6 s to 100 km/h.
        deceleration, lateral: m/s². Tyres on dry asphalt grip with about 0.8 g in all directions.
    """

    curvature: float = 1 / 3
    acceleration: float = 6.0
    deceleration: float = 8.0
    lateral: float = 8.0


def kinematics(
    trajectory: Floats,
    origin: Floats,
    origin_velocity: Floats,
    step_s: float = 0.1,
    spacing_s: float = SPACING_S,
) -> Kinematics:
    """Curvature and accelerations of every mode, from three points ``spacing_s`` apart around every step.

    With chords ``c1``, ``c2`` over τ seconds each, ``s = |c| / τ`` is a speed, ``(s2 - s1) / τ`` the
    acceleration along the path, ``κ = 2 |c1 × c2| / (|c1| |c2| |c1 + c2|)`` the curvature of the circle
    through the three points, and ``κ s1 s2`` the lateral acceleration. Exact for constant acceleration on a
    straight line and for constant speed on a circle. Before its origin an agent is taken to have moved with
    its last velocity, so that a mode that starts with a jerk shows it. Futures shorter than the spacing are
    judged with the longest spacing that they allow.

    Args:
        trajectory: ``[A, K, F, 2]`` metres; step f is ``f + 1`` steps after the last observed one.
        origin: ``[A, 2]`` metres, last observed positions.
        origin_velocity: ``[A, 2]`` m/s.
        step_s: seconds between steps.
        spacing_s: seconds between the three points; what passes much faster is taken for jitter.
    """
    A, K, F, _ = trajectory.shape
    gap = max(1, min(F, round(spacing_s / step_s)))
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
    return Kinematics(
        _largest(np.where(moving, curvature, 0.0)),
        _largest(along),
        _largest(-along),
        _largest(np.where(moving, lateral, 0.0)),
    )


def _largest(values: Floats) -> Floats:
    """Maximum over the last axis, at least 0; NaN counts for nothing."""
    largest: Floats = np.fmax.reduce(values, axis=-1, initial=0.0)
    return largest


def infeasible(motion: Kinematics, limits: KinematicLimits = KinematicLimits()) -> Bools:
    """Whether each mode exceeds any of ``limits`` anywhere: ``[A, K]``. Meant for road vehicles."""
    return (
        (motion.curvature > limits.curvature)
        | (motion.acceleration > limits.acceleration)
        | (motion.deceleration > limits.deceleration)
        | (motion.lateral > limits.lateral)
    )


def diversity(trajectory: Floats, probability: Floats, heading: Floats) -> dict[str, Floats]:
    """How far the endpoints of an agent's modes lie apart.

    Args:
        trajectory: ``[A, K, F, 2]`` metres.
        probability: ``[A, K]``, rows sum to 1.
        heading: ``[A]`` radians, of the last observed poses.

    Returns:
        ``[A]`` metres each: ``pairwise``, the mean distance of two modes' endpoints, and ``top_two``, that of
        the two most probable ones (ties go to the lower index), NaN for a single mode; ``along`` and
        ``across``, the endpoints' standard deviation ahead and sideways, weighted by probability.
    """
    end = trajectory[:, :, -1]
    A, K, _ = end.shape
    one, other = np.triu_indices(K, 1)
    pairwise = norm(end[:, one] - end[:, other])
    order = np.argsort(-probability, axis=1, kind="stable")
    top = np.take_along_axis(end, order[:, :2, None], axis=1)
    local = to_local(end, end[:, :1], heading[:, None])  # any origin does; a near one keeps digits
    mean = (probability[..., None] * local).sum(1, keepdims=True)
    spread = np.sqrt((probability[..., None] * (local - mean) ** 2).sum(1))
    none = np.full(A, np.nan)
    return {
        "pairwise": pairwise.mean(1) if K > 1 else none,
        "top_two": norm(top[:, 0] - top[:, 1]) if K > 1 else none,
        "along": spread[:, 0],
        "across": spread[:, 1],
    }
