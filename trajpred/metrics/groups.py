"""The groups of agents that metrics are averaged over."""

from __future__ import annotations

from typing import Any

from trajpred.scenario import TrackCategory

#: Moving agents end at least this far (metres) from their last observed position.
MOVING_M = 3.0


def agent_groups(category: Any, known: Any, whole: Any, distance: Any) -> dict[str, Any]:
    """Return the members ``[A]`` of each of :data:`~trajpred.splits.GROUPS`.

    Args:
        category: :class:`~trajpred.scenario.TrackCategory` of each agent: a NumPy array or a tensor ``[A]``,
            as are the other arguments.
        known: observed at the last observed step, with a true future position.
        whole: every step of the future is known.
        distance: metres between the last observed and the last future position.
    """
    return {
        "focal": known & (category == TrackCategory.FOCAL),
        "scored": known & (category >= TrackCategory.SCORED),
        "moving": known & whole & (distance >= MOVING_M),
        "all": known,
    }
