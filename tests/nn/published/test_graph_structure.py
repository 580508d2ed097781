"""Hop counts, paths and degrees against a plain search over each graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.nn.published.random_graphs import random_edges
from trajpred.nn import GraphStructure, Layout, shortest_paths
from trajpred.nn.published.structural_bias import UNREACHABLE, direct_edges, path_edges

SIZES = [6, 1, 9, 4]


def search(edges: Tensor, start: int) -> dict[int, int]:
    """Hops from ``start`` to every reachable node."""
    hops_to = {start: 0}
    front = [start]
    while front:
        node = front.pop(0)
        for sender, receiver in edges.T.tolist():
            if sender == node and receiver not in hops_to:
                hops_to[receiver] = hops_to[node] + 1
                front.append(receiver)
    return hops_to


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 1.0])
def test_hops_and_paths_are_those_of_a_plain_search(share: float) -> None:
    edges = random_edges(SIZES, share)
    padding = Layout.of_counts(SIZES)
    hops, first = shortest_paths(edges, padding)
    path = path_edges(first, edges, padding, length=8)
    for i in range(sum(SIZES)):
        hops_to = search(edges, i)
        for place in range(padding.size):
            j = i - int(padding.within[i]) + place
            length = hops_to.get(j, UNREACHABLE)
            steps = [edges[:, e].tolist() for e in path[i, place].tolist() if e >= 0]
            assert hops[i, place] == length
            assert len(steps) == (0 if length == UNREACHABLE else length)
            assert [a for a, _ in steps] + [j] == [i] + [b for _, b in steps] or not steps


def test_paths_are_cut_off_and_far_nodes_unreachable() -> None:
    edges = torch.stack((torch.arange(5), torch.arange(1, 6)))
    padding = Layout.of_counts([6])
    assert path_edges(shortest_paths(edges, padding)[1], edges, padding, 2)[0, 5].tolist() == [0, 1]
    near = shortest_paths(edges, padding, max_hops=2)[0][0]
    assert near.tolist() == [0, 1, 2, UNREACHABLE, UNREACHABLE, UNREACHABLE]


def test_parallel_edges_self_loops_and_padding() -> None:
    edges = torch.tensor([[0, 0, 1, 0], [1, 1, 1, 1]])
    types = torch.arange(5, 9)
    padding = Layout.of_counts([2, 1])
    assert direct_edges(edges, padding)[:2].tolist() == [[-1, 3], [-1, 2]]
    many = GraphStructure.of(edges, types, padding)
    assert many.hops.tolist() == [[[0, 1], [UNREACHABLE, 0]], [[0, -1], [-1, -1]]]
    assert many.edges.shape == (2, 2, 2, 5, 1)
    assert many.edges[0, :, :, 0, 0].tolist() == [
        [0, 8],
        [0, 0],
    ]
    assert many.out_degree.tolist() == [[1, 1], [0, -1]]
    assert many.in_degree.tolist() == [
        [0, 2],
        [0, -1],
    ]
    single = GraphStructure.of(edges, types, padding, edge_type="single")
    assert single.edges[0, :, :, 0, 0].tolist() == [[0, 8], [0, 7]]
    wrong: Any = "two"
    with pytest.raises(ValueError, match="multi_hop"):
        GraphStructure.of(edges, types, padding, edge_type=wrong)
