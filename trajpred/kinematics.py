"""Motion from positions alone, causally: state t uses steps up to t and nothing later."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import direction, norm

#: Below this speed (m/s) the direction of travel is noise and the last certain heading is kept.
STANDING_SPEED = 0.5


def causal_velocity(
    position: NDArray[np.float64], valid: NDArray[np.bool_], step_s: float, window: int = 10
) -> NDArray[np.float64]:
    """Velocity ``[A, T, 2]`` (m/s): slope of the least-squares line through the last ``window`` valid steps.

    A difference of two noisy positions is no velocity: on Argoverse 1, extrapolating it errs by 8 m
    after 3 s, where the 10-step line errs by 5.

    Args:
        position: ``[A, T, 2]`` metres; values where ``valid`` is False are ignored.
        valid: ``[A, T]``.
        step_s: seconds between steps.
        window: steps looked back over, the current one included.

    Returns:
        ``[A, T, 2]``; zero where fewer than two steps of the window are valid.
    """
    A, T = valid.shape
    time = np.arange(T) * step_s
    # Centred on each track's first valid position: sums of squares stay small, whatever the city frame.
    first = position[np.arange(A), valid.argmax(axis=1)] if T else np.zeros((A, 2))
    xy = np.where(valid[..., None], position - first[:, None], 0.0)
    weight = valid.astype(np.float64)
    terms = np.stack((weight, weight * time, weight * time**2), -1)
    terms = np.concatenate((terms, xy, xy * time[:, None]), -1)  # n, Σt, Σt², Σx, Σy, Σtx, Σty
    total = np.cumsum(terms, axis=1)
    total[:, window:] -= total[:, : max(T - window, 0)].copy()
    n, s_t, s_tt = total[..., 0:1], total[..., 1:2], total[..., 2:3]
    spread = n * s_tt - s_t**2
    slope = (n * total[..., 5:7] - s_t * total[..., 3:5]) / np.where(spread > 1e-9, spread, 1.0)
    return np.where((spread > 1e-9) & valid[..., None], slope, 0.0)


def causal_heading(velocity: NDArray[np.float64], valid: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Heading ``[A, T]`` (radians): direction of travel while moving, else the last one that was certain.

    Before a track has ever moved faster than :data:`STANDING_SPEED` its heading is 0.

    Args:
        velocity: ``[A, T, 2]`` m/s.
        valid: ``[A, T]``.
    """
    moving = valid & (norm(velocity) > STANDING_SPEED)
    step = np.arange(valid.shape[1])
    latest = np.maximum.accumulate(np.where(moving, step, -1), axis=1)
    heading = np.take_along_axis(direction(velocity), np.maximum(latest, 0), axis=1)
    return np.where(latest >= 0, heading, 0.0)
