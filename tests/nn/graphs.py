"""Random ragged graphs, and attention over them as plain loops, independent of the package."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from trajpred.data.geometry import Pose
from trajpred.nn import Edges, Layout
from trajpred.nn.attention import reached_by
from trajpred.nn.segment import LOWEST

HEADS = 2
CHANNELS = 4
#: Senders and receivers of each scene: sizes differ, some scenes have none of a kind.
RAGGED = ((3, 2), (0, 4), (5, 1), (1, 3))
#: Node 0 has a loop and two parallel edges, 4 only sends, 5 has no edge; columns in no order.
EDGES = torch.tensor([[1, 2, 0, 0, 3, 4, 4, 2], [0, 0, 0, 1, 2, 2, 3, 0]])
NODES = 6
#: Forms of attention: edge by edge; as matrices scene by scene (CPU), all together (GPU), and of all pairs,
#: which a graph of fixed sizes lists.
FORMS = ("edges", "blocks", "padded", "pairs")


def poses(count: int, dtype: torch.dtype = torch.float32) -> Pose[Tensor]:
    return Pose(40 * torch.randn(count, 2, dtype=dtype), 6.3 * torch.rand(count, dtype=dtype))


def ragged(
    scenes: tuple[tuple[int, int], ...] = RAGGED,
    share: float = 0.5,
    dtype: torch.dtype = torch.float32,
    heads: int = HEADS,
) -> Edges:
    """Edges within scenes, a ``share`` of all pairs, with poses; evaluated edge by edge."""
    num_senders, num_receivers = zip(*scenes, strict=True)
    senders = Layout.of_counts(list(num_senders))
    receivers = Layout.of_counts(list(num_receivers))
    together = receivers.scene[:, None] == senders.scene
    drawn = torch.rand(together.shape) < share
    receiver, sender = (together & drawn).nonzero(as_tuple=True)
    return Edges(
        index=torch.stack((sender, receiver)),
        bias=torch.randn(heads, len(sender), dtype=dtype),
        senders=senders,
        receivers=receivers,
        poses=(poses(senders.num_nodes, dtype), poses(receivers.num_nodes, dtype)),
        reached=reached_by(receiver, receivers.num_nodes),
        dense=False,
    )


def in_form(edges: Edges, form: str) -> Edges:
    """The same graph in one of ``FORMS``."""
    if form == "edges":
        return edges
    if form == "padded":
        senders = replace(edges.senders, together=True)
        return replace(edges, senders=senders, receivers=replace(edges.receivers, together=True), dense=True)
    if form == "blocks":
        return replace(edges, dense=True)
    R = edges.receivers.num_nodes
    S = edges.senders.num_nodes
    receiver, sender = torch.ones(R, S).nonzero().T
    cell = edges.index[1] * S + edges.index[0]
    none = torch.full((len(edges.bias), R * S), LOWEST, dtype=edges.bias.dtype)
    bias = none.index_copy(1, cell, edges.bias)
    reached = reached_by(receiver, R, bias[0] > LOWEST)
    return replace(edges, index=torch.stack((sender, receiver)), bias=bias, reached=reached, dense=True)


def loop_attend(index: Tensor, bias: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention receiver by receiver; zeros where there is no edge."""
    rows = []
    for i in range(len(query)):
        scores = []
        senders = []
        for edge, (sender, receiver) in enumerate(index.T.tolist()):
            if receiver == i:
                product = (query[i] * key[sender]).sum(-1)
                scores.append(product / query.shape[-1] ** 0.5 + bias[:, edge])
                senders.append(sender)
        total = value.new_zeros(value.shape[1:]) + 0 * query[i].sum()  # part of the graph even without edges
        if scores:
            weights = torch.softmax(torch.stack(scores), 0)
            for weight, sender in zip(weights, senders, strict=True):
                total = total + weight[:, None] * value[sender]
        rows.append(total)
    return torch.stack(rows)
