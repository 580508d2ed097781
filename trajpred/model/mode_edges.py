"""Which nodes of the scene a mode hears: those near its pose, and always its own agent."""

from __future__ import annotations

import torch
from torch import Tensor

from trajpred.geometry import Pose
from trajpred.graph.edge_features import edge_channels, edge_features
from trajpred.model.joint_graph import JointGraph
from trajpred.nn import Padding

#: What a mode hears: its own agent, other agents, lanes.
MODE_EDGE_KINDS = ("own", "agent", "lane")
MODE_EDGE_CHANNELS = edge_channels(len(MODE_EDGE_KINDS))


def edges_around(
    graph: JointGraph, poses: Pose[Tensor], radius: float, agents: Tensor, modes: Padding
) -> tuple[Tensor, Tensor]:
    """Edges from the nodes within ``radius`` metres of each pose, and from the pose's own agent.

    Args:
        poses: ``[M, 2]``, ``[M]``.
        agents: ``[M]`` whose pose each of them is, ascending.
        modes: where the poses lie in padded scenes.

    Returns:
        ``index [2, E]`` sorted by receiver, and features ``[E, MODE_EDGE_CHANNELS]``.
    """
    # Infinity and NaN keep padded places apart from everything, each other included.
    where = modes.pad(poses.position, fill=torch.inf)
    place = graph.padding.pad(graph.poses.position, fill=torch.nan)
    near = torch.cdist(where, place, compute_mode="donot_use_mm_for_euclid_dist") <= radius
    taken = modes.pad(torch.ones_like(agents), fill=0) > 0
    own = modes.pad(graph.agents.within[agents], fill=0)  # agents come first among the nodes of a scene
    near = near.scatter(2, own[..., None], taken[..., None])

    scene, row, column = near.nonzero(as_tuple=True)
    receiver = _nodes(modes)[scene * modes.size + row]
    sender = _nodes(graph.padding)[scene * graph.padding.size + column]
    kind = torch.where(sender >= graph.num_agents, 2, 1)
    kind = torch.where(sender == agents[receiver], 0, kind)
    features = edge_features(graph.poses[sender], poses[receiver], kind, len(MODE_EDGE_KINDS))
    return torch.stack((sender, receiver)), features


def edges_across(graph: JointGraph) -> tuple[Tensor, Tensor]:
    """The agent → agent edges of the graph: ``index [2, E]``, features ``[E, MODE_EDGE_CHANNELS]``."""
    index = graph.index[:, graph.edges(True, True)]
    kind = torch.full_like(index[0], MODE_EDGE_KINDS.index("agent"))
    return index, edge_features(graph.poses[index[0]], graph.poses[index[1]], kind, len(MODE_EDGE_KINDS))


def _nodes(padding: Padding) -> Tensor:
    """For each padded place the flattened node that lies there, -1 for none: ``[scenes · size]``."""
    nodes = torch.full((padding.scenes * padding.size,), -1, device=padding.slot.device)
    return nodes.index_copy(0, padding.slot, torch.arange(len(padding.slot), device=nodes.device))
