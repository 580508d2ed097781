"""What an edge tells of its sender: the pose relative to the receiver, and the kind of edge."""

from __future__ import annotations

import torch
from torch import Tensor

from trajpred.geometry import POSE_SCALE, Pose, norm, relative_pose, unit_vector
from trajpred.graph.channels import DISTANCES

#: Widths (m) of the Gaussian kernels: the gap to the next centre.
_WIDTHS = (2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 40.0)
#: Nearer than this (m) there is no bearing: its vector shrinks to zero.
_HERE = 0.1


def edge_features(sender: Pose[Tensor], receiver: Pose[Tensor], kind: Tensor, kinds: int) -> Tensor:
    """Features ``[..., C]`` of edges; nothing in them changes when the whole scene moves or turns.

    Args:
        sender, receiver: poses ``[..., 2]`` metres and ``[...]`` radians at both ends of each edge.
        kind: ``[...]`` int64 below ``kinds``.

    Returns:
        Gaussian kernels of the distance (8); position in the receiver's frame (2, in units of 30 m);
        bearing (2) and relative heading (2) as cosine and sine; one-hot kind.
    """
    relative = relative_pose(sender, receiver)
    return _features(relative.position, unit_vector(relative.heading), kind, kinds, -1)


def pair_features(sender: Pose[Tensor], receiver: Pose[Tensor], kind: Tensor, kinds: int) -> Tensor:
    """:func:`edge_features` of every sender ``[S]`` beside every receiver ``[R]``: ``[C, R, S]``.

    The channels come first and cosines and sines are taken of poses, not of pairs: on all pairs of a scene
    that is what costs least.
    """
    x, y = (sender.position[None, :, i] - receiver.position[:, i, None] for i in (0, 1))
    (sender_cos, sender_sin), (cos, sin) = (unit_vector(p.heading).unbind(-1) for p in (sender, receiver))
    cos, sin = cos[:, None], sin[:, None]
    position = torch.stack((x * cos + y * sin, y * cos - x * sin))
    ahead = torch.stack((sender_cos * cos + sender_sin * sin, sender_sin * cos - sender_cos * sin))
    return _features(position, ahead, kind, kinds, 0)


def _features(position: Tensor, ahead: Tensor, kind: Tensor, kinds: int, axis: int) -> Tensor:
    """From relative position (metres) and direction of heading; ``axis``: that of their two components."""
    distance = norm(position.movedim(axis, -1)).unsqueeze(axis)
    shape = [-1 if i == axis % distance.ndim else 1 for i in range(distance.ndim)]
    centre, width = (distance.new_tensor(x).reshape(shape) for x in (DISTANCES, _WIDTHS))
    parts = (
        torch.exp(-0.5 * ((distance - centre) / width) ** 2),
        position / POSE_SCALE,
        # Not by way of atan2, which tells (0, 0) from (-0, 0): the sign is that of the receiver's heading.
        position / distance.clamp(min=_HERE),
        ahead,
        torch.nn.functional.one_hot(kind, kinds).movedim(-1, axis).to(distance.dtype),
    )
    return torch.cat(parts, axis)
