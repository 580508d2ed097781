"""Random variations of a training scene, in NumPy, before it becomes a graph."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from trajpred.graph.features import AgentFeatures, LaneFeatures, SceneFeatures
from trajpred.scenario import TrackCategory


@dataclass(frozen=True)
class AugmentConfig:
    """What may happen to a training scene; all zero means nothing does.

    Attributes:
        drop_agents: share of the agents that are neither focal nor scored to leave out.
        drop_lanes: share of the lanes to leave out.
        truncate_history: probability that an agent's early history is hidden, up to a random step.
    """

    drop_agents: float = 0.0
    drop_lanes: float = 0.0
    truncate_history: float = 0.0


def augment(scene: SceneFeatures, config: AugmentConfig, random: np.random.Generator) -> SceneFeatures:
    """A variation of ``scene`` drawn from ``random``."""
    judged = scene.agents.category >= TrackCategory.SCORED
    agents = _take(scene.agents, judged | (random.random(len(judged)) >= config.drop_agents))
    lanes = _take_lanes(scene.lanes, random.random(len(scene.lanes.kind)) >= config.drop_lanes)
    return replace(scene, agents=_truncate(agents, config, random), lanes=lanes)


def _take(agents: AgentFeatures, keep: NDArray[np.bool_]) -> AgentFeatures:
    return AgentFeatures(**{f.name: getattr(agents, f.name)[keep] for f in fields(agents)})


def _take_lanes(lanes: LaneFeatures, keep: NDArray[np.bool_]) -> LaneFeatures:
    row = np.cumsum(keep) - 1
    edges = keep[lanes.topology].all(axis=0)
    kept = {f.name: getattr(lanes, f.name)[keep] for f in fields(lanes) if not f.name.startswith("topology")}
    topology, kind = row[lanes.topology[:, edges]], lanes.topology_kind[edges]
    return LaneFeatures(**kept, topology=topology, topology_kind=kind)


def _truncate(agents: AgentFeatures, config: AugmentConfig, random: np.random.Generator) -> AgentFeatures:
    """Hide steps before a random one; the last tenth of the history and the last seen step always stay."""
    A, T, _ = agents.history.shape
    last = np.where(agents.history[..., -1] > 0, np.arange(T), 0).max(axis=1)
    first = random.integers(0, max(1, T - T // 10), A)
    first = np.where(random.random(A) < config.truncate_history, np.minimum(first, last), 0)
    shown = np.arange(T) >= first[:, None]
    return replace(agents, history=agents.history * shown[..., None].astype(np.float32))
