"""The groups of agents that metrics are averaged over; no torch is imported."""

from __future__ import annotations

from typing import Any, Literal, get_args

from trajpred.scenario import TrackCategory

#: Focal agents; scored ones, focal included; those that move; all.
Group = Literal["focal", "scored", "moving", "all"]
GROUPS: tuple[str, ...] = get_args(Group)
#: Groups by which models are compared scenario by scenario.
PAIRED_GROUPS: tuple[str, ...] = ("focal", "moving")
#: Moving agents end at least this far (metres) from their last observed position.
MOVING_M = 3.0


def agent_groups(category: Any, known: Any, whole: Any, distance: Any) -> dict[str, Any]:
    """Return the members ``[A]`` of each of :data:`GROUPS`; arguments are NumPy arrays or tensors ``[A]``.

    Args:
        category: :class:`~trajpred.scenario.TrackCategory` of each agent.
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
