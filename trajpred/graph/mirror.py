"""Scenes as in a mirror: what was on the left is on the right. NumPy only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.graph.agents import AgentFeatures
from trajpred.graph.features import SceneFeatures
from trajpred.graph.lanes import TOPOLOGY, LaneFeatures

#: The kind of a topology edge in the mirror.
_OTHER_SIDE = np.array([TOPOLOGY.index({"left": "right", "right": "left"}.get(x, x)) for x in TOPOLOGY])
#: Where the channels of ``LaneFeatures.points`` come from: the two boundaries change places.
_BOUNDARIES_SWAPPED = [0, 1, 2, 3, 6, 7, 4, 5]


def mirrored(scenes: SceneFeatures, chosen: NDArray[np.bool_]) -> SceneFeatures:
    """``scenes`` with the ``chosen`` ones ``[S]`` reflected about the city's x axis (y becomes -y).

    The axis does not matter to a model that sees relative poses alone. Mark types change sides, not names:
    av2 names their lines from the lane outwards.
    """
    sign = np.where(chosen, -1, 1).astype(np.float32)
    return replace(
        scenes,
        origin=_across(scenes.origin, sign),
        heading=scenes.heading * sign,
        agents=_agents(scenes.agents, sign[scenes.agents.scene]),
        lanes=_lanes(scenes.lanes, chosen[scenes.lanes.scene], sign[scenes.lanes.scene]),
    )


def _across(values: NDArray[Any], sign: NDArray[np.float32]) -> NDArray[Any]:
    """``values`` ``[N, ..., C]`` whose odd channels, each a y or a sine, take the ``sign`` ``[N]``."""
    rows = sign.reshape(-1, *[1] * (values.ndim - 1))
    return values * np.where(np.arange(values.shape[-1]) % 2, rows, np.float32(1))


def _agents(agents: AgentFeatures, sign: NDArray[np.float32]) -> AgentFeatures:
    return replace(
        agents,
        position=_across(agents.position, sign),
        heading=agents.heading * sign,
        velocity=_across(agents.velocity, sign),
        history=_across(agents.history, sign),
        target=_across(agents.target, sign),
    )


def _lanes(lanes: LaneFeatures, chosen: NDArray[np.bool_], sign: NDArray[np.float32]) -> LaneFeatures:
    points, marks = _across(lanes.points, sign), lanes.marks
    kind, receiver = lanes.topology_kind, lanes.topology[1]
    return replace(
        lanes,
        position=_across(lanes.position, sign),
        heading=lanes.heading * sign,
        points=np.where(chosen[:, None, None], points[..., _BOUNDARIES_SWAPPED], points),
        marks=np.where(chosen[:, None], marks[:, ::-1], marks),
        topology_kind=np.where(chosen[receiver], _OTHER_SIDE[kind], kind),
    )
