"""2-D structure of a batch of graphs: hop distances, edges along shortest paths, and degrees."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from trajpred.nn.edges import Layout

#: Published hop count that stands for "no path".
UNREACHABLE = 510

EdgeEncoding = Literal["multi_hop", "single"]


def shortest_paths(
    edge_index: Tensor, padding: Layout, max_hops: int = UNREACHABLE - 1
) -> tuple[Tensor, Tensor]:
    r"""Search breadth-first from every node to every node of its graph, in all graphs at once.

    .. math::
        d_{ii} = 0, \quad d_{ij} = 1 + \min_{i → k} d_{kj}

    One step per hop: each edge i → k offers i the nodes that k reaches, in O(E · n). Among several shortest
    paths, the one whose first edge comes last in ``edge_index`` is taken.

    Args:
        edge_index: ``[2, E]`` int64 of the flattened batch, each edge within one graph.
        padding: place of each of the N nodes among graphs of ``n`` places.
        max_hops: nodes farther apart count as unreachable.

    Returns:
        hops ``[N, n]`` int64 from each node to each place of its graph (``UNREACHABLE``: no path), and the
        first edge of the path ``[N, n]`` int64, a column of ``edge_index`` (-1: no edge).
    """
    sender, receiver = edge_index
    n = padding.size
    place = padding.within
    hops = edge_index.new_full((place.shape[0], n), UNREACHABLE)
    hops = hops.scatter(1, place[:, None], 0)
    exporting = torch.compiler.is_exporting()  # the number of steps may then depend on no data
    if not exporting:
        max_hops = min(max_hops, n - 1)
    for hop in range(1, max_hops + 1):
        front = (hops == hop - 1).float()
        steps_to_front = front.index_select(0, receiver)
        reached = torch.zeros_like(front).index_add(0, sender, steps_to_front) > 0
        new = reached & (hops == UNREACHABLE)
        if not exporting and not new.any():
            break
        hops = hops.masked_fill(new, hop)
    # The first edge of a path i → j: the last i → k of those with d_kj = d_ij - 1.
    before = hops.index_select(0, sender)
    after = hops.index_select(0, receiver)
    is_first = (after == before - 1) & (before < UNREACHABLE)
    edge = torch.arange(sender.shape[0], device=hops.device)[:, None]
    candidate = torch.where(is_first, edge, -1)
    node = sender[:, None].expand_as(candidate)
    no_edge = torch.full_like(hops, -1)
    first_edge = no_edge.scatter_reduce(0, node, candidate, "amax")
    return hops, first_edge


def path_edges(first: Tensor, edge_index: Tensor, padding: Layout, length: int) -> Tensor:
    """List the edges of all shortest paths by following ``first``: ``[N, n, length]``, -1 after the end."""
    receiver = torch.cat((edge_index[1], edge_index.new_zeros(1)))  # the last one stands in for edge -1
    place = torch.arange(padding.size, device=first.device)
    node = torch.arange(first.shape[0], device=first.device)[:, None].expand_as(first)
    path = first.new_full((*first.shape, length), -1)
    for hop in range(length):
        edge = first[node, place]
        path[..., hop] = edge
        node = torch.where(edge < 0, node, receiver[edge])
    return path


def direct_edges(edge_index: Tensor, padding: Layout) -> Tensor:
    """Find the edge from each node to each place of its graph: column ``[N, n]`` int64, -1 if none.

    Of parallel edges the last counts; a self loop is an edge.
    """
    sender, receiver = edge_index
    N = padding.within.shape[0]
    n = padding.size
    cell = sender * n + padding.within.index_select(0, receiver)
    edge = torch.arange(sender.shape[0], device=sender.device)
    no_edge = edge_index.new_full((N * n,), -1)
    return no_edge.scatter_reduce(0, cell, edge, "amax").reshape(N, n)


class GraphStructure(NamedTuple):
    """2-D structure of a padded batch of B graphs with at most n nodes; integers, computed once per batch.

    Attributes:
        hops: ``[B, n, n]`` hops from i to j, ``UNREACHABLE`` without a path, -1 at padding.
        edges: ``[B, n, n, L, F]`` types of the first L edges on a shortest path from i to j, or (L = 1) of
            the direct edge; 0 where there is none.
        in_degree: ``[B, n]`` number of nodes with an edge to this one, -1 at padding.
        out_degree: ``[B, n]`` number of nodes this one has an edge to, -1 at padding.
    """

    hops: Tensor
    edges: Tensor
    in_degree: Tensor
    out_degree: Tensor

    @classmethod
    def of(
        cls,
        edge_index: Tensor,
        edge_attr: Tensor,
        padding: Layout,
        *,
        edge_type: EdgeEncoding = "multi_hop",
        multi_hop_max_dist: int = 5,
        max_hops: int = UNREACHABLE - 1,
    ) -> GraphStructure:
        """Build from flattened edges.

        Args:
            edge_index: ``[2, E]`` int64 of the flattened batch; undirected edges in both directions.
            edge_attr: ``[E]`` or ``[E, F]`` int64 edge types from 1 on, all columns from one table.
            padding: place of each node in the padded batch.
            edge_type: ``multi_hop`` (edges along the path) or ``single`` (the direct edge).
            multi_hop_max_dist: L, the cut-off of the path.
            max_hops: nodes farther apart count as unreachable.

        Example: a path of three nodes and an isolated node; edge types 3 and 4.
            >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
            >>> one_graph = Layout.of_counts([4])
            >>> graph = GraphStructure.of(edges, torch.tensor([3, 3, 4, 4]), one_graph, multi_hop_max_dist=2)
            >>> graph.hops[0, 0], graph.edges[0, 0, 2, :, 0], graph.in_degree[0]
            (tensor([  0,   1,   2, 510]), tensor([3, 4]), tensor([1, 2, 1, 0]))
        """
        if edge_type not in ("multi_hop", "single"):
            raise ValueError(f"edge_type must be 'multi_hop' or 'single', not {edge_type!r}")
        hops, first = shortest_paths(edge_index, padding, max_hops)
        direct = direct_edges(edge_index, padding)
        if edge_type == "single":
            path = direct[..., None]
        else:
            path = path_edges(first, edge_index, padding, multi_hop_max_dist)
        types = edge_attr
        if types.ndim == 1:
            types = types[:, None]
        no_type = types.new_zeros(1, types.shape[1])
        types = torch.cat((types, no_type))  # the last row belongs to edge -1
        valid = padding.pad(torch.ones_like(padding.within)).bool()
        valid_pair = valid[:, None] & valid[:, :, None]
        adjacent = padding.pad((direct >= 0).long())
        return cls(
            hops=padding.pad(hops).masked_fill(~valid_pair, -1),
            edges=padding.pad(types[path]),
            in_degree=adjacent.sum(1).masked_fill(~valid, -1),
            out_degree=adjacent.sum(2).masked_fill(~valid, -1),
        )
