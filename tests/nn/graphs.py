"""Random ragged graphs, and attention over them as plain loops that share nothing with the package."""

from __future__ import annotations

import torch
from torch import Tensor

from trajpred.geometry import Pose
from trajpred.nn import DenseRelation, EdgeRelation, Padding

HEADS, CHANNELS = 2, 4
#: Senders and receivers of each scene of a batch: sizes differ, some scenes have none of a kind.
RAGGED = ((3, 2), (0, 4), (5, 1), (1, 3))


def padding(sizes: list[int]) -> Padding:
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return Padding.of(batch, torch.tensor([0, *sizes]).cumsum(0))


def poses(count: int, dtype: torch.dtype = torch.float32) -> Pose[Tensor]:
    return Pose(40 * torch.randn(count, 2, dtype=dtype), 6.3 * torch.rand(count, dtype=dtype))


def ragged(
    scenes: tuple[tuple[int, int], ...] = RAGGED,
    share: float = 0.6,
    dtype: torch.dtype = torch.float32,
    heads: int = HEADS,
) -> tuple[EdgeRelation, Padding, Padding]:
    """Edges within scenes, a ``share`` of all pairs, with poses; where senders and receivers lie."""
    senders, receivers = padding([s for s, _ in scenes]), padding([r for _, r in scenes])
    scene_of = [torch.repeat_interleave(torch.tensor(n)) for n in zip(*scenes, strict=True)]
    together = scene_of[1][:, None] == scene_of[0]
    receiver, sender = (together & (torch.rand(together.shape) < share)).nonzero(as_tuple=True)
    bias = torch.randn(len(sender), heads, dtype=dtype)
    S, R = len(scene_of[0]), len(scene_of[1])
    ends = poses(S, dtype), poses(R, dtype)
    return EdgeRelation(torch.stack((sender, receiver)), bias, S, R, ends), senders, receivers


def evaluated(graph: tuple[EdgeRelation, Padding, Padding], evaluation: str) -> EdgeRelation | DenseRelation:
    """``edges``; ``dense``, scene by scene as on a CPU; ``padded``, all scenes together as on a GPU."""
    return graph[0] if evaluation == "edges" else DenseRelation.of(*graph, together=evaluation == "padded")


def loop_attend(
    edges: list[tuple[int, int]], bias: Tensor, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Attention receiver by receiver; zeros where there is no edge."""
    rows = []
    for i in range(len(query)):
        incoming = [(e, j) for e, (j, receiver) in enumerate(edges) if receiver == i]
        total = value.new_zeros(value.shape[1:]) + 0 * query[i].sum()  # part of the graph even without edges
        if incoming:
            score = [(query[i] * key[j]).sum(-1) / query.shape[-1] ** 0.5 + bias[e] for e, j in incoming]
            for weight, (_, j) in zip(torch.softmax(torch.stack(score), 0), incoming, strict=True):
                total = total + weight[:, None] * value[j]
        rows.append(total)
    return torch.stack(rows)


def pairs(index: Tensor) -> list[tuple[int, int]]:
    return [(int(j), int(i)) for j, i in index.T]
