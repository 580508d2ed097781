"""Flattened graphs: softmax and sum over the edges of each receiver, many graphs in one, stars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

#: Finite stand-in for -inf. Differences stay finite, so a receiver without edges never produces NaN.
LOWEST = -1e30

T = TypeVar("T", int, Tensor)


def both(x: T | tuple[T, T]) -> tuple[T, T]:
    """Return (value of the senders, value of the receivers) from such a pair or from one value for both."""
    if isinstance(x, (int, Tensor)):
        return x, x
    return x


def segment_softmax(score: Tensor, receiver: Tensor, num_receivers: int) -> Tensor:
    r"""Normalise scores over the edges of each receiver.

    .. math:: α_e = \frac{\exp(s_e)}{\sum_{e' \to i(e)} \exp(s_{e'})}

    The maximum of each receiver is subtracted first; computed in float32 or wider. A score of -inf excludes
    an edge; the edges of a receiver with all edges excluded get 0.

    Args:
        score: ``[E, ...]``.
        receiver: ``[E]`` int64, i(e).
        num_receivers: number of receivers R.

    Returns:
        ``[E, ...]`` in the dtype of ``score``.

    Example:
        >>> segment_softmax(torch.tensor([0.0, 0.0, 5.0]), torch.tensor([0, 0, 2]), 3)
        tensor([0.5000, 0.5000, 1.0000])
    """
    logits = score
    if score.dtype in (torch.float16, torch.bfloat16):
        logits = score.float()
    shape = (num_receivers, *score.shape[1:])
    channels = logits.ndim - 1
    index = receiver.reshape(-1, *[1] * channels).expand_as(logits)
    lowest = logits.new_full(shape, LOWEST)
    # The maximum cancels in the quotient, so it needs no gradient.
    highest = lowest.scatter_reduce(0, index, logits.detach(), "amax", include_self=True)
    weight = torch.exp(logits - highest.index_select(0, receiver))
    total = logits.new_zeros(shape).index_add(0, receiver, weight)
    total = total.masked_fill(total == 0, 1)  # all edges are excluded, or there is none
    return (weight / total.index_select(0, receiver)).to(score.dtype)


def segment_sum(value: Tensor, receiver: Tensor, num_receivers: int) -> Tensor:
    """Sum the values of the edges into each receiver; exactly 0 for a receiver without edges.

    Shapes: ``[E, ...]``, ``[E]`` int64 -> ``[num_receivers, ...]``.
    """
    zeros = value.new_zeros(num_receivers, *value.shape[1:])
    return zeros.index_add(0, receiver, value)


def segment_mean(value: Tensor, segment: Tensor, num_segments: int) -> Tensor:
    """Average ``value`` ``[N, K]`` over the rows of each segment ``[N]``: ``[num_segments, K]``."""
    # Unlike bincount, this does not stall a GPU.
    count = segment_sum(value.new_ones(len(segment)), segment, num_segments)
    return segment_sum(value, segment, num_segments) / count.clamp(min=1)[:, None]


class FlatGraphs(NamedTuple):
    """B graphs in one, numbered as in PyG's ``Batch``.

    Attributes:
        edge_index: ``[2, ΣE]`` int64, rows of the stacked nodes.
        batch: ``[ΣN]``, graph of each node.
        ptr: ``[B + 1]``, first node of each graph, and the total at the end.
        target_index: ``[B]``, row of the target of each graph.
    """

    edge_index: Tensor
    batch: Tensor
    ptr: Tensor
    target_index: Tensor

    @property
    def offsets(self) -> Tensor:
        """``[B]``, first node of each graph."""
        return self.ptr[:-1]


def flatten_edges(
    edge_indices: Sequence[Tensor] | Tensor, num_nodes: Tensor, target_local: Tensor | int = 0
) -> FlatGraphs:
    """Flatten B graphs of any sizes: shift the nodes of graph b by offset_b = Σ_{b' < b} N_b'.

    The published formula uses the index of the target as the offset, which collapses all graphs onto the
    first one when targets come first; here target_index = offset + target_local.

    Args:
        edge_indices: ``[2, E_b]`` of each graph in its own numbering; or ``[B, 2, E]``.
        num_nodes: ``[B]`` int64.
        target_local: target of each graph in its own numbering, ``[B]`` or one number for all.

    >>> flat = flatten_edges([star_edges(1), star_edges(2)], torch.tensor([2, 3]))
    >>> flat.edge_index
    tensor([[0, 1, 0, 2, 3, 4, 2, 2],
            [0, 0, 1, 2, 2, 2, 3, 4]])
    >>> flat.batch, flat.ptr, flat.target_index
    (tensor([0, 0, 1, 1, 1]), tensor([0, 2, 5]), tensor([0, 2]))
    """
    if len(edge_indices) != len(num_nodes):
        raise ValueError(f"edge_indices has {len(edge_indices)} graphs, num_nodes {len(num_nodes)}")
    device = num_nodes.device
    batch, ptr = _batch_and_ptr(num_nodes)
    offset = ptr[:-1]
    num_edges = [edges.shape[1] for edges in edge_indices]
    counts = torch.tensor(num_edges, dtype=torch.int64, device=device)
    no_edges = torch.zeros(2, 0, dtype=torch.int64, device=device)  # if there are no graphs
    local_edges = torch.cat((no_edges, *edge_indices), 1)
    edges = local_edges + offset.repeat_interleave(counts)
    return FlatGraphs(edges, batch, ptr, target_index=offset + target_local)


def flatten_stars(num_neighbors: Tensor) -> FlatGraphs:
    """Build B flattened stars at once: each target's loop, and edges from and to its neighbours.

    The edges into targets come first, those of all stars; then the edges into neighbours.

    Args:
        num_neighbors: ``[B]`` int64, neighbours of each target. The target is the first node of its graph.
    """
    batch, ptr = _batch_and_ptr(num_neighbors + 1)
    node = torch.arange(batch.shape[0], device=batch.device)
    target = ptr[batch]
    is_neighbor = node != target
    # To the targets, from themselves and their neighbours; then to the neighbours.
    sender = torch.cat((node, target[is_neighbor]))
    receiver = torch.cat((target, node[is_neighbor]))
    edges = torch.stack((sender, receiver))
    return FlatGraphs(edges, batch, ptr, target_index=ptr[:-1])


def star_edges(num_neighbors: int = 8) -> Tensor:
    """Connect a target (node 0) with its neighbours (1 to M) in both directions, and with itself.

    The published list for eight neighbours has 18 columns because it contains the loop of the target twice;
    here every edge occurs once. Neighbours have no loop.

    Returns:
        ``[2, 2 · num_neighbors + 1]``, sorted by receiver.

    >>> star_edges(2)
    tensor([[0, 1, 2, 0, 0],
            [0, 0, 0, 1, 2]])
    """
    if num_neighbors < 0:
        raise ValueError(f"num_neighbors must be 0 or more, not {num_neighbors}")
    return flatten_stars(torch.tensor([num_neighbors])).edge_index


def _batch_and_ptr(num_nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``batch`` and ``ptr`` of graphs with these numbers of nodes."""
    graph = torch.arange(num_nodes.shape[0], device=num_nodes.device)
    ptr = torch.cat((num_nodes.new_zeros(1), num_nodes.cumsum(0)))
    return graph.repeat_interleave(num_nodes), ptr
