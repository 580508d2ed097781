"""The edges of the mode decoder: from the scene to modes, and between the modes of neighbouring agents."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trajpred.features.relations import edge_features
from trajpred.geometry import Pose
from trajpred.model.token_graph import MODE_EDGE_KINDS, TokenGraph, radius_edges
from trajpred.nn import EdgeRelation, Padding


def scene_edges(
    graph: TokenGraph,
    poses: Pose[Tensor],
    radius_m: float,
    agents: Tensor,
    modes: Padding,
    bias: Callable[[Tensor, Tensor], Tensor],
) -> EdgeRelation:
    """Relate the tokens of the scene to M poses within a radius.

    Args:
        poses: ``[M, 2]``, ``[M]`` of the modes.
        agents: ``[M]``, the row of each pose's agent.
        modes: padding of the poses.
        bias: maps the features ``[C, E]`` and the fading ``[E]`` of the edges to ``[heads, E]``.
    """
    index, features, fading = radius_edges(graph, poses, radius_m, agents, modes)
    return EdgeRelation(
        index=index,
        bias=bias(features, fading).T,
        num_senders=graph.num_nodes,
        num_receivers=poses.heading.shape[0],
        poses=(graph.poses, poses),
        features=features.T,
        complete=True,
    )


def same_mode_edges(graph: TokenGraph, modes: int, bias: Callable[[Tensor], Tensor]) -> EdgeRelation:
    """Relate mode k of an agent's neighbours to its own mode k, at the agents' poses.

    Args:
        modes: K, the number of modes of each agent.
        bias: maps the features ``[C, E]`` of the edges between agents to ``[heads, E]``.
    """
    index = graph.index[:, : graph.num_agent_edges]
    kind = torch.full_like(index[0], MODE_EDGE_KINDS.index("agent"))
    sender = graph.poses.rows.index_select(1, index[0])
    receiver = graph.poses.rows.index_select(1, index[1])
    features = edge_features(sender, receiver, kind, len(MODE_EDGE_KINDS))
    agents = graph.poses[: graph.num_agents]
    edges = EdgeRelation(
        index=index,
        bias=bias(features).T,
        num_senders=graph.num_agents,
        num_receivers=graph.num_agents,
        poses=(agents, agents),
        features=features.T,
    )
    return edges.with_copies(modes)
