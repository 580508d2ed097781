"""Edges between the agents and lanes of a scene: nearest senders, lane topology, and edge features.

The same functions serve the padded scenes of a training batch and, traced for one scene, the exported graph.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from trajpred.data.geometry import POSE_SCALE
from trajpred.features.config import DISTANCES, TOPOLOGY, GraphConfig

LANE_TO_LANE = ("lane", "to", "lane")
LANE_TO_AGENT = ("lane", "to", "agent")
AGENT_TO_AGENT = ("agent", "to", "agent")
AGENT_TO_LANE = ("agent", "to", "lane")
RELATIONS = (AGENT_TO_AGENT, LANE_TO_AGENT, AGENT_TO_LANE, LANE_TO_LANE)
#: Kinds of edges: node types of sender and receiver, or what the sending lane is to the receiving one.
#: The first entry stands for "no edge" in adjacency matrices.
EDGE_KINDS = ("none", "agent_agent", "lane_agent", "agent_lane", "lane_lane", *TOPOLOGY)

#: Widths (m) of the Gaussian kernels: the gap to the next centre.
_WIDTHS = (2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 40.0)
#: Below this distance (m) the bearing vector shrinks to zero.
_NEAR = 0.1


def distances(receiver: Tensor, sender: Tensor) -> Tensor:
    """Compute metres between positions ``[..., R, 2]`` and ``[..., S, 2]``: ``[..., R, S]``."""
    x = sender[..., None, :, 0] - receiver[..., :, None, 0]
    y = sender[..., None, :, 1] - receiver[..., :, None, 1]
    return x.mul_(x).add_(y.mul_(y)).sqrt_()  # in place: fresh memory costs more than the arithmetic


def nearest(distance: Tensor, k: int, radius: float) -> Tensor:
    """Select for each receiver the ``k`` nearest senders within ``radius``; of equals, the first ones.

    Args:
        distance: ``[..., R, S]`` metres, infinite for senders that must not be selected.

    Returns:
        ``[..., R, S]`` bool.
    """
    if k == 0:
        return torch.zeros_like(distance, dtype=torch.bool)
    # topk needs k columns; how many there are is unknown while exporting.
    missing = k if torch.compiler.is_exporting() else max(0, k - distance.shape[-1])
    columns = torch.nn.functional.pad(distance, (0, missing), value=torch.inf)
    kth = columns.topk(k, largest=False, sorted=False).values.amax(-1, keepdim=True)
    near = distance <= kth.clamp(max=min(radius, torch.finfo(distance.dtype).max))
    if torch.compiler.is_exporting() or bool((near.sum(-1, dtype=torch.int32) > k).any()):
        # Several senders at the k-th distance, which is rare: keep the first ones.
        closer = distance < kth
        tied = distance == kth
        room = k - closer.sum(-1, keepdim=True, dtype=torch.int32)
        near = near & (closer | (tied & (tied.cumsum(-1, dtype=torch.int32) <= room)))
    return near


def relation_kinds(
    agent: Tensor,
    agent_valid: Tensor,
    lane: Tensor,
    lane_valid: Tensor,
    topology: Tensor,
    config: GraphConfig,
) -> dict[tuple[str, str, str], Tensor]:
    """Build the adjacency matrices of all relations; no node is its own neighbour.

    Args:
        agent: ``[..., A, 2]`` metres.
        agent_valid: ``[..., A]``, False for padding, which gets no edges.
        lane: ``[..., L, 2]`` metres.
        lane_valid: ``[..., L]``, likewise.
        topology: ``[..., L, L]`` integers, receiver by sender: 0, or 1 + index into ``TOPOLOGY``. Related
            lanes are connected at any distance and beyond ``lane_lane_k``.

    Returns:
        For each of :data:`RELATIONS` ``[..., receivers, senders]`` of the type of ``topology``: index into
        :data:`EDGE_KINDS`.
    """
    # Padding lies at infinity: beyond every radius, and NaN metres (inf - inf) from other padding.
    position = {
        "agent": torch.where(agent_valid[..., None], agent, torch.inf),
        "lane": torch.where(lane_valid[..., None], lane, torch.inf),
    }
    limits = {
        AGENT_TO_AGENT: (config.agent_agent_k, config.agent_radius_m),
        LANE_TO_AGENT: (config.lane_agent_k, config.lane_radius_m),
        AGENT_TO_LANE: (config.agent_lane_k, config.lane_radius_m),
        LANE_TO_LANE: (config.lane_lane_k, config.lane_radius_m),
    }
    kinds = {}
    for relation, (k, radius) in limits.items():
        sender, _, receiver = relation
        distance = distances(position[receiver], position[sender])
        if sender == receiver:
            loop = torch.eye(distance.shape[-1], dtype=torch.bool, device=distance.device)
            distance = distance.masked_fill_(loop, torch.inf)
        near = nearest(distance, k, radius)
        kinds[relation] = near.to(topology.dtype) * EDGE_KINDS.index(f"{sender}_{receiver}")
    related = topology + (EDGE_KINDS.index(TOPOLOGY[0]) - 1)
    kinds[LANE_TO_LANE] = torch.where(topology > 0, related, kinds[LANE_TO_LANE])
    return kinds


def edges_of(kinds: Tensor) -> tuple[Tensor, ...]:
    """List the edges of an adjacency matrix ``[..., R, S]`` of :func:`relation_kinds`.

    Returns:
        The index of each axis ``[E]``, of which the last two are receiver and sender, then the kind ``[E]``;
        sorted by receiver.
    """
    place = kinds.nonzero().unbind(1)
    return (*place, kinds[place])


def edge_features(sender: Tensor, receiver: Tensor, kind: Tensor, kinds: int) -> Tensor:
    """Compute edge features ``[C, ...]``, invariant to moving and rotating the whole scene.

    Args:
        sender, receiver: ``[4, ...]`` poses (:attr:`~trajpred.data.geometry.Pose.rows`) at both ends of each
            edge, which are broadcast: ``[4, 1, S]`` and ``[4, R, 1]`` give all pairs ``[R, S]``.
        kind: ``[...]`` int64 below ``kinds``.

    Returns:
        The channels of :func:`~trajpred.features.config.edge_channels`: the sender's pose in the receiver's
        frame, and the one-hot kind.
    """
    constants = _created_constants if torch.compiler.is_compiling() else _kept_constants
    centre, slope, place, number = constants(sender.device, sender.dtype, kinds, kind.ndim)
    # Displacement and direction of the sender, turned into the receiver's frame.
    moved = sender - receiver * place
    cos = receiver[2]
    sin = receiver[3]
    x = moved[0::2]
    y = moved[1::2]
    forward = torch.addcmul(x * cos, y, sin)
    left = torch.addcmul(y * cos, x, sin, value=-1)
    position, heading_vector = torch.stack((forward, left), 1)
    distance = position[0].hypot(position[1])  # vectorised, unlike a norm over the first axis
    # At most 9: exp of less than -87 is denormal, and products with denormal numbers are slow.
    gap = (distance - centre).mul_(slope).clamp_(-9.0, 9.0)
    parts = (
        gap.mul_(gap).neg_().exp_(),  # in place: fresh memory costs more than the arithmetic
        position / POSE_SCALE,
        # atan2 would depend on the sign of zero, which depends on the receiver's heading.
        position / distance.clamp(min=_NEAR),
        heading_vector,
        # Faster than one_hot, which checks its input.
        (kind == number).to(distance.dtype),
    )
    return torch.cat(parts)


def _created_constants(device: torch.device, dtype: torch.dtype, kinds: int, ndim: int) -> tuple[Tensor, ...]:
    """Return centres (m) of the Gaussian kernels, 1 / (√2 · width), which rows of poses are positions, and
    the numbers of the kinds: ``[C, 1, ...]`` to be broadcast over ``ndim`` axes."""
    shape = (-1, *[1] * ndim)
    slopes = [0.5**0.5 / width for width in _WIDTHS]
    is_position = (1.0, 1.0, 0.0, 0.0)
    constants = (DISTANCES, slopes, is_position, range(kinds))
    with torch.inference_mode(False):  # what inference created could not be used in training
        return tuple(torch.tensor(x, device=device, dtype=dtype).view(shape) for x in constants)


#: Copied to each device once, because every copy to a GPU holds it up.
_kept_constants = functools.cache(_created_constants)
