"""Random ragged graphs, and attention over them as plain loops, independent of the package."""

from __future__ import annotations

import torch
from torch import Tensor

from trajpred.geometry import Pose
from trajpred.nn import DenseRelation, EdgeRelation, Padding, Relation

HEADS = 2
CHANNELS = 4
#: Senders and receivers of each scene: sizes differ, some scenes have none of a kind.
RAGGED = ((3, 2), (0, 4), (5, 1), (1, 3))
#: Forms of a relation: flattened edges; dense scene by scene (CPU) and all together (GPU); one matrix.
FORMS = ("edges", "dense", "padded", "matrix")

Graph = tuple[EdgeRelation, Padding, Padding]


def poses(count: int, dtype: torch.dtype = torch.float32) -> Pose[Tensor]:
    return Pose(40 * torch.randn(count, 2, dtype=dtype), 6.3 * torch.rand(count, dtype=dtype))


def ragged(
    scenes: tuple[tuple[int, int], ...] = RAGGED,
    share: float = 0.5,
    dtype: torch.dtype = torch.float32,
    heads: int = HEADS,
) -> Graph:
    """Edges within scenes, a ``share`` of all pairs, with poses; places of senders and receivers."""
    senders, receivers = (Padding.of_counts(list(sizes)) for sizes in zip(*scenes, strict=True))
    scene_of = [torch.repeat_interleave(torch.tensor(n)) for n in zip(*scenes, strict=True)]
    together = scene_of[1][:, None] == scene_of[0]
    receiver, sender = (together & (torch.rand(together.shape) < share)).nonzero(as_tuple=True)
    bias = torch.randn(len(sender), heads, dtype=dtype)
    S = len(scene_of[0])
    R = len(scene_of[1])
    ends = poses(S, dtype), poses(R, dtype)
    return EdgeRelation(torch.stack((sender, receiver)), bias, S, R, ends), senders, receivers


def in_form(graph: Graph, form: str) -> Relation:
    """The graph in one of ``FORMS``."""
    edges, senders, receivers = graph
    if form == "edges":
        return edges
    if form != "matrix":
        return DenseRelation.of(edges, senders, receivers, together=form == "padded")
    pair = edges.index[1], edges.index[0]
    edge = torch.zeros(edges.num_receivers, edges.num_senders, dtype=torch.bool).index_put(
        pair, torch.tensor(True)
    )
    bias = torch.randn(edges.bias.shape[1], *edge.shape, dtype=edges.bias.dtype)  # of other pairs: no effect
    bias = bias.permute(1, 2, 0).index_put(pair, edges.bias).permute(2, 0, 1)
    return DenseRelation.of_pairs(bias, edge, edges.poses)


def loop_attend(index: Tensor, bias: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention receiver by receiver; zeros where there is no edge."""
    rows = []
    for i in range(len(query)):
        incoming = [(e, j) for e, (j, receiver) in enumerate(index.T.tolist()) if receiver == i]
        total = value.new_zeros(value.shape[1:]) + 0 * query[i].sum()  # part of the graph even without edges
        if incoming:
            score = [(query[i] * key[j]).sum(-1) / query.shape[-1] ** 0.5 + bias[e] for e, j in incoming]
            for weight, (_, j) in zip(torch.softmax(torch.stack(score), 0), incoming, strict=True):
                total = total + weight[:, None] * value[j]
        rows.append(total)
    return torch.stack(rows)
