"""Transformer-M's biases beyond their vectors: hops, paths and degrees by a plain search, masks, tables."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.nn.published.random_graphs import TYPES, random_edges, random_graph
from trajpred.nn import GraphStructure, Layout, StructuralBias, shortest_paths
from trajpred.nn.published.structural_bias import (
    UNREACHABLE,
    EdgeBias2D,
    ShortestPathBias,
    direct_edges,
    path_edges,
)
from trajpred.nn.segment import LOWEST

HEADS = 2
K = 6
SMALL: dict[str, Any] = {
    "num_edges": TYPES,
    "num_spatial": 8,
    "num_edge_dis": 5,
    "num_3d_bias_kernel": K,
}
each_edge_type = pytest.mark.parametrize("edge_type", ["multi_hop", "single"])


def test_errors() -> None:
    values = {"edge_type": "both", "max_spd": 0, "multi_hop_max_dist": 0, "num_spatial": 2}
    for name, value in values.items():
        with pytest.raises(ValueError, match="multi_hop" if name == "edge_type" else name):
            StructuralBias(HEADS, **(SMALL | {name: value}))
    with pytest.raises(ValueError, match="num_edge_dis"):
        StructuralBias(HEADS, **(SMALL | {"multi_hop_max_dist": 6}))
    with pytest.raises(ValueError, match="direct"):
        EdgeBias2D(HEADS, TYPES, "single")(torch.zeros(1, 2, 2).long(), torch.zeros(1, 2, 2, 5, 1).long())


def test_far_hop_counts_share_a_row() -> None:
    bias = ShortestPathBias(HEADS, num_spatial=5)
    hops = torch.tensor([[[-1, 0, 1, 2, 3, 509, UNREACHABLE]]])
    assert_close(bias(hops)[0, :, 0].T, bias.table.weight[[0, 1, 2, 3, 3, 3, 4]])


@each_edge_type
def test_pairs_without_edges_have_no_edge_bias_and_no_gradient(edge_type: Any) -> None:
    bias = EdgeBias2D(HEADS, TYPES, edge_type)
    _, structure = random_graph([5, 3], edge_type=edge_type)
    out = bias(structure.hops, structure.edges)
    none = (structure.edges == 0).all(-1).all(-1)
    assert none.any()
    assert not out.permute(0, 2, 3, 1)[none].any()
    assert out.any()
    out.square().sum().backward()
    assert bias.table.weight.grad is not None
    assert not bias.table.weight.grad[0].any()
    assert bias.table.weight.grad[1:].any()


def test_max_spd_masks_far_pairs_but_never_the_token() -> None:
    mask, structure = random_graph([6])
    for max_spd, far in (
        (2, structure.hops >= 2),
        (None, structure.hops < 0),
        (511, structure.hops < 0),
    ):
        hidden = StructuralBias(HEADS, **SMALL, max_spd=max_spd)(mask, structure) == LOWEST
        assert (hidden[..., 1:, 1:] == far[:, None]).all()
        assert not hidden[..., 0].any()
        assert not hidden[..., 0, :].any()
    assert StructuralBias(HEADS, **SMALL).half()(mask, structure).dtype == torch.float32


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
