"""Random ragged graphs, and attention over them as plain loops, independent of the package."""

from __future__ import annotations

import torch
from torch import Tensor

from trajpred.data.geometry import Pose
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
    num_senders, num_receivers = zip(*scenes, strict=True)
    senders = Padding.of_counts(list(num_senders))
    receivers = Padding.of_counts(list(num_receivers))
    scene_of_sender = torch.repeat_interleave(torch.tensor(num_senders))
    scene_of_receiver = torch.repeat_interleave(torch.tensor(num_receivers))
    together = scene_of_receiver[:, None] == scene_of_sender
    drawn = torch.rand(together.shape) < share
    receiver, sender = (together & drawn).nonzero(as_tuple=True)
    edges = EdgeRelation(
        index=torch.stack((sender, receiver)),
        bias=torch.randn(len(sender), heads, dtype=dtype),
        num_senders=len(scene_of_sender),
        num_receivers=len(scene_of_receiver),
        poses=(poses(len(scene_of_sender), dtype), poses(len(scene_of_receiver), dtype)),
    )
    return edges, senders, receivers


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
        scores = []
        senders = []
        for edge, (sender, receiver) in enumerate(index.T.tolist()):
            if receiver == i:
                product = (query[i] * key[sender]).sum(-1)
                scores.append(product / query.shape[-1] ** 0.5 + bias[edge])
                senders.append(sender)
        total = value.new_zeros(value.shape[1:]) + 0 * query[i].sum()  # part of the graph even without edges
        if scores:
            weights = torch.softmax(torch.stack(scores), 0)
            for weight, sender in zip(weights, senders, strict=True):
                total = total + weight[:, None] * value[sender]
        rows.append(total)
    return torch.stack(rows)
