"""Scenes as in a mirror: what was on the left is on the right. NumPy only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trajpred.graph.agents import AgentFeatures
from trajpred.graph.channels import HISTORY, LANE_MARKS, LANE_POINT, PLANE, TOPOLOGY, other_side
from trajpred.graph.features import SceneFeatures
from trajpred.graph.lanes import LaneFeatures


def mirrored(scenes: SceneFeatures, chosen: NDArray[np.bool_]) -> SceneFeatures:
    """``scenes`` with the ``chosen`` ones ``[S]`` reflected about the city's x axis (y becomes -y).

    The axis does not matter to a model that sees relative poses alone. Mark types change sides, not names:
    av2 names their lines from the lane outwards.
    """
    agent, lane = chosen[scenes.agents.scene], chosen[scenes.lanes.scene]
    return replace(
        scenes,
        origin=PLANE.reflect(scenes.origin, chosen),
        heading=_turned(scenes.heading, chosen),
        agents=_agents(scenes.agents, agent),
        lanes=_lanes(scenes.lanes, lane),
    )


def _turned(heading: NDArray[np.float32], chosen: NDArray[np.bool_]) -> NDArray[np.float32]:
    return np.where(chosen, -heading, heading)


def _agents(agents: AgentFeatures, chosen: NDArray[np.bool_]) -> AgentFeatures:
    return replace(
        agents,
        position=PLANE.reflect(agents.position, chosen),
        heading=_turned(agents.heading, chosen),
        velocity=PLANE.reflect(agents.velocity, chosen),
        history=HISTORY.reflect(agents.history, chosen),
        target=PLANE.reflect(agents.target, chosen),
    )


def _lanes(lanes: LaneFeatures, chosen: NDArray[np.bool_]) -> LaneFeatures:
    kind, receiver = lanes.topology_kind, lanes.topology[1]
    return replace(
        lanes,
        position=PLANE.reflect(lanes.position, chosen),
        heading=_turned(lanes.heading, chosen),
        points=LANE_POINT.reflect(lanes.points, chosen),
        marks=LANE_MARKS.reflect(lanes.marks, chosen),
        topology_kind=np.where(chosen[receiver], other_side(TOPOLOGY)[kind], kind),
    )
