"""Random variations of training scenes, in NumPy, before they become graphs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.graph.agents import AgentFeatures
from trajpred.graph.channels import VALID
from trajpred.graph.features import SceneFeatures
from trajpred.graph.lanes import LaneFeatures
from trajpred.graph.mirror import mirrored
from trajpred.graph.ragged import place_within
from trajpred.graph.random import uniform
from trajpred.scenario import TrackCategory

#: What random numbers are for: each purpose has its own.
_DROP_AGENT, _DROP_LANE, _TRUNCATE, _FIRST_STEP, _MIRROR = range(5)


@dataclass(frozen=True)
class AugmentConfig:
    """What may happen to a training scene; all zero means nothing does.

    Attributes:
        drop_agents: share of the agents that are neither focal nor scored to leave out.
        drop_lanes: share of the lanes to leave out.
        truncate_history: probability that an agent's early history is hidden, up to a random step.
        mirror: probability that a scene is reflected: left is right, and right is left.
    """

    drop_agents: float = 0.0
    drop_lanes: float = 0.0
    truncate_history: float = 0.0
    mirror: float = 0.0

    def __post_init__(self) -> None:
        for f in fields(self):
            require(0 <= getattr(self, f.name) <= 1, f"augment.{f.name}", "must be 0 to 1")


def augment(scenes: SceneFeatures, config: AugmentConfig, keys: NDArray[np.int64]) -> SceneFeatures:
    """A variation of ``scenes`` that depends, for each scene, on its number in ``keys`` ``[S]`` alone."""

    def draw(scene: NDArray[np.int64], purpose: int) -> NDArray[np.float64]:
        return uniform(keys[scene], purpose, place_within(scene))

    agents, lanes = scenes.agents, scenes.lanes
    shown = _truncate(agents, config, draw(agents.scene, _TRUNCATE), draw(agents.scene, _FIRST_STEP))
    judged = agents.category >= TrackCategory.SCORED
    agents = _take(shown, judged | (draw(agents.scene, _DROP_AGENT) >= config.drop_agents))
    lanes = _take_lanes(lanes, draw(lanes.scene, _DROP_LANE) >= config.drop_lanes)
    return mirrored(replace(scenes, agents=agents, lanes=lanes), uniform(keys, _MIRROR) < config.mirror)


def _take(agents: AgentFeatures, keep: NDArray[np.bool_]) -> AgentFeatures:
    return AgentFeatures(**{f.name: getattr(agents, f.name)[keep] for f in fields(agents)})


def _take_lanes(lanes: LaneFeatures, keep: NDArray[np.bool_]) -> LaneFeatures:
    row = np.cumsum(keep) - 1
    edges = keep[lanes.topology].all(axis=0)
    kept = {f.name: getattr(lanes, f.name)[keep] for f in fields(lanes) if not f.name.startswith("topology")}
    topology, kind = row[lanes.topology[:, edges]], lanes.topology_kind[edges]
    return LaneFeatures(**kept, topology=topology, topology_kind=kind)


def _truncate(
    agents: AgentFeatures, config: AugmentConfig, chance: NDArray[np.float64], where: NDArray[np.float64]
) -> AgentFeatures:
    """Hide steps before a random one; the last tenth of the history and the last seen step always stay."""
    T = agents.history.shape[1]
    last = np.where(agents.history[..., VALID] > 0, np.arange(T), 0).max(axis=1, initial=0)
    first = np.floor(where * max(1, T - T // 10))
    first = np.where(chance < config.truncate_history, np.minimum(first, last), 0)
    shown = np.arange(T) >= first[:, None]
    return replace(agents, history=agents.history * shown[..., None].astype(np.float32))
