"""What a road user went on to do, read off its true future. NumPy only; no map needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import norm, wrap_angle

#: In the order in which they are decided, the first that fits; ``straight`` is what remains.
MANOEUVRES = ("stationary", "U-turn", "left turn", "right turn", "lane change", "straight")
#: Who stays within this many metres of where it was is stationary.
STATIONARY_M = 2.0
#: Changes of heading (radians) beyond which a future is a turn, or a U-turn.
TURN, U_TURN = np.deg2rad(30.0), np.deg2rad(135.0)
#: A lane change ends this far aside (metres), ahead of where it began at a slope of at most one in four,
#: with less than this change of heading (radians).
ASIDE_M, SLOPE, PARALLEL = 2.5, 0.25, np.deg2rad(10.0)


def manoeuvres(
    future: NDArray[np.float64], heading: NDArray[np.float64], valid: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Index into :data:`MANOEUVRES` for each agent, by how far and whereto it got until its last valid step.

    Only the future is looked at: a bend in the road is a turn, and a lane change on a bend is not seen.

    Args:
        future: ``[A, F, 2]`` metres in the agent's own frame at the last observed step (x ahead, y left).
        heading: ``[A, F]`` radians in the same frame.
        valid: ``[A, F]``.

    Returns:
        ``[A]``; ``stationary`` for an agent without any valid step.
    """
    steps, row = np.arange(valid.shape[1]), np.arange(len(valid))
    last = np.where(valid, steps, 0).max(axis=1, initial=0)
    (x, y), turned = future[row, last].T, wrap_angle(heading[row, last])
    farthest = np.where(valid, norm(future), 0.0).max(axis=1, initial=0.0)
    aside = (abs(y) > ASIDE_M) & (abs(y) < SLOPE * x) & (abs(turned) < PARALLEL)
    fits = (
        farthest < STATIONARY_M,
        abs(turned) > U_TURN,
        turned > TURN,
        turned < -TURN,
        aside,
        np.ones(len(valid), bool),
    )
    return np.stack(fits).argmax(axis=0)
