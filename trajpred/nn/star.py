"""Many small graphs as one: ego/neighbour stars, and flattening by offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class FlatGraphs(NamedTuple):
    """Graphs side by side, numbered as PyG's ``Batch`` numbers them.

    Attributes:
        edge_index: ``[2, ΣE]``, rows of the stacked nodes.
        batch: ``[ΣN]``, the graph of every node.
        ptr: ``[B + 1]``, the first node of every graph, and their number at the end.
        target_index: ``[B]``, row of every graph's target.
    """

    edge_index: Tensor
    batch: Tensor
    ptr: Tensor
    target_index: Tensor

    @property
    def offsets(self) -> Tensor:
        """``[B]``, the first node of every graph."""
        return self.ptr[:-1]


def flatten_edges(
    edge_indices: Sequence[Tensor] | Tensor, num_nodes: Tensor, target_local: Tensor | int = 0
) -> FlatGraphs:
    """Number the nodes of B graphs through: those of graph b by offset_b = Σ_{b' < b} N_b'.

    Sizes may differ, graphs may have no edges or no nodes besides. The offsets are added to all edges at
    once. The article takes the target's index for the offset, which puts every graph onto the first one if
    targets come first; here the two are separate: target_index = offset + target_local.

    Args:
        edge_indices: of every graph, ``[2, E_b]`` with its own numbering; or ``[B, 2, E]``.
        num_nodes: ``[B]`` int64.
        target_local: ``[B]``, or one number for all, in the graph's own numbering.

    Raises:
        ValueError: not as many ``edge_indices`` as ``num_nodes``.

    >>> flat = flatten_edges([star_edges(1), star_edges(2)], torch.tensor([2, 3]))
    >>> flat.edge_index
    tensor([[0, 1, 0, 2, 3, 4, 2, 2],
            [0, 0, 1, 2, 2, 2, 3, 4]])
    >>> flat.batch, flat.ptr, flat.target_index
    (tensor([0, 0, 1, 1, 1]), tensor([0, 2, 5]), tensor([0, 2]))
    """
    if len(edge_indices) != len(num_nodes):
        raise ValueError(f"{len(edge_indices)} graphs by their edges, {len(num_nodes)} by their nodes")
    device = num_nodes.device
    batch, ptr = _number(num_nodes)
    counts = torch.tensor([edges.shape[1] for edges in edge_indices], dtype=torch.int64, device=device)
    none = torch.zeros(2, 0, dtype=torch.int64, device=device)
    edges = torch.cat((none, *edge_indices), 1) + ptr[:-1].repeat_interleave(counts)
    return FlatGraphs(edges, batch, ptr, ptr[:-1] + target_local)


def flatten_stars(num_neighbors: Tensor) -> FlatGraphs:
    """B stars at once, without building one of them: :func:`flatten_edges` of :func:`star_edges`, in
    another order of the edges.

    Args:
        num_neighbors: ``[B]`` int64, of each target. Each target is the first node of its graph.

    >>> flatten_stars(torch.tensor([1, 2])).edge_index
    tensor([[0, 1, 2, 3, 4, 0, 2, 2],
            [0, 0, 2, 2, 2, 1, 3, 4]])
    """
    batch, ptr = _number(num_neighbors + 1)
    node, target = torch.arange(len(batch), device=batch.device), ptr[batch]
    neighbor = node != target
    sender, receiver = torch.cat((node, target[neighbor])), torch.cat((target, node[neighbor]))
    return FlatGraphs(torch.stack((sender, receiver)), batch, ptr, ptr[:-1])


def star_edges(num_neighbors: int = 8) -> Tensor:
    """A target (node 0), its neighbours (1 to M), edges both ways, and the target's loop, each once.

    The published list of 18 columns for eight neighbours has the loop twice; an operator that does not
    merge equal edges would then hear the target twice. Neighbours have no loop.

    Args:
        num_neighbors: M; 0 leaves the loop alone.

    Raises:
        ValueError: ``num_neighbors`` below 0.

    Returns:
        ``[2, 2M + 1]``, sorted by receiver.

    >>> star_edges(2)
    tensor([[0, 1, 2, 0, 0],
            [0, 0, 0, 1, 2]])
    >>> star_edges().shape
    torch.Size([2, 17])
    """
    if num_neighbors < 0:
        raise ValueError(f"num_neighbors must be 0 or more, not {num_neighbors}")
    return flatten_stars(torch.tensor([num_neighbors])).edge_index


def _number(num_nodes: Tensor) -> tuple[Tensor, Tensor]:
    """``batch`` and ``ptr`` of graphs with so many nodes."""
    graph = torch.arange(len(num_nodes), device=num_nodes.device)
    ptr = torch.cat((num_nodes.new_zeros(1), num_nodes.cumsum(0)))
    return graph.repeat_interleave(num_nodes), ptr
