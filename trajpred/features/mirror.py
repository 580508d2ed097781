"""Reflection of featurised scenes. NumPy only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.features.agents import AgentFeatures
from trajpred.features.config import HISTORY, LANE_MARKS, LANE_POINT, PLANE, TOPOLOGY, other_side
from trajpred.features.lanes import LaneFeatures
from trajpred.features.scene_graph import SceneFeatures

#: The channels of the fields that reflection changes, besides headings and the topology.
REFLECTED = {
    "origin": PLANE,
    "position": PLANE,
    "velocity": PLANE,
    "anchors": PLANE,
    "target": PLANE,
    "history": HISTORY,
    "points": LANE_POINT,
    "marks": LANE_MARKS,
}


def mirrored(scenes: SceneFeatures, chosen: NDArray[np.bool_]) -> SceneFeatures:
    """Reflect the ``chosen`` scenes ``[S]`` about the city's x axis (y becomes -y).

    Models read relative poses only, so any axis gives the same result. The marks of the left and the right
    boundary are exchanged as they are: av2 names the parts of a mark from the lane outwards.
    """
    agents, lanes = scenes.agents, scenes.lanes
    kind = lanes.topology_kind
    receiver = lanes.topology[1]
    on_chosen = chosen[lanes.scene][receiver]
    kind = np.where(on_chosen, other_side(TOPOLOGY)[kind], kind)
    return replace(
        scenes,
        **_reflected(scenes, chosen),
        agents=replace(agents, **_reflected(agents, chosen[agents.scene])),
        lanes=replace(lanes, **_reflected(lanes, chosen[lanes.scene]), topology_kind=kind),
    )


def _reflected(
    record: SceneFeatures | AgentFeatures | LaneFeatures, chosen: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """Return the fields of ``record`` that reflection changes, with the ``chosen`` rows reflected."""
    values: dict[str, NDArray[Any]] = {"heading": np.where(chosen, -record.heading, record.heading)}
    for name, channels in REFLECTED.items():
        if hasattr(record, name):
            values[name] = channels.reflect(getattr(record, name), chosen)
    return values
