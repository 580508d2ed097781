"""Hop counts, paths and degrees against a plain search over each graph."""

from __future__ import annotations

import doctest

import pytest
import torch
from torch import Tensor

from tests.nn.graphs import padding as padding_of
from trajpred.nn import Padding
from trajpred.nn.published import graph_structure as shortest_path
from trajpred.nn.published.graph_structure import (
    UNREACHABLE,
    GraphStructure,
    direct_edges,
    path_edges,
    shortest_paths,
)

SIZES = [6, 1, 9, 4]


def random_edges(sizes: list[int], share: float = 0.2) -> Tensor:
    graph = torch.repeat_interleave(torch.tensor(sizes))
    chosen = (graph[:, None] == graph) & (torch.rand(len(graph), len(graph)) < share)
    edges = chosen.nonzero().T  # self loops among them
    return edges[:, torch.randperm(edges.shape[1])]


def search(edges: Tensor, start: int) -> dict[int, int]:
    """Hops from ``start`` to every node that can be reached."""
    found, front = {start: 0}, [start]
    while front:
        node = front.pop(0)
        for sender, receiver in edges.T.tolist():
            if sender == node and receiver not in found:
                found[receiver] = found[node] + 1
                front.append(receiver)
    return found


def test_doctests() -> None:
    assert doctest.testmod(shortest_path).failed == 0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 1.0])
def test_hops_and_paths_are_those_of_a_plain_search(share: float) -> None:
    edges, padding = random_edges(SIZES, share), padding_of(SIZES)
    hops, first = shortest_paths(edges, padding)
    path = path_edges(first, edges, padding, length=8)
    for i in range(sum(SIZES)):
        found = search(edges, i)
        for place in range(padding.size):
            j = i - int(padding.slot[i]) % padding.size + place
            length = found.get(j, UNREACHABLE)
            assert hops[i, place] == length
            steps = [edges[:, e].tolist() for e in path[i, place].tolist() if e >= 0]
            assert len(steps) == (0 if length == UNREACHABLE else length)
            assert [a for a, _ in steps] + [j] == [i] + [b for _, b in steps] or not steps


def test_a_path_is_cut_off() -> None:
    edges = torch.stack((torch.arange(5), torch.arange(1, 6)))
    _, first = shortest_paths(edges, padding_of([6]))
    assert path_edges(first, edges, padding_of([6]), 2)[0, 5].tolist() == [0, 1]


def test_what_is_too_far_is_unreachable() -> None:
    n = UNREACHABLE + 3
    edges = torch.stack((torch.arange(n - 1), torch.arange(1, n)))
    hops = shortest_paths(edges, padding_of([n]))[0][0]
    assert hops.tolist() == [*range(UNREACHABLE), UNREACHABLE, UNREACHABLE, UNREACHABLE]
    near = shortest_paths(edges[:, :5], padding_of([6]), max_hops=2)[0][0]
    assert near.tolist() == [0, 1, 2, UNREACHABLE, UNREACHABLE, UNREACHABLE]


def test_parallel_edges_and_self_loops() -> None:
    edges = torch.tensor([[0, 0, 1, 0], [1, 1, 1, 1]])
    padding, types = padding_of([2]), torch.tensor([5, 6, 7, 8])
    assert direct_edges(edges, padding).tolist() == [[-1, 3], [-1, 2]]
    many = GraphStructure.of(edges, types, padding)
    assert many.hops.tolist() == [[[0, 1], [UNREACHABLE, 0]]]
    assert many.edges[0, :, :, 0, 0].tolist() == [[0, 8], [0, 0]]
    assert many.out_degree.tolist() == [[1, 1]] and many.in_degree.tolist() == [[0, 2]]
    single = GraphStructure.of(edges, types, padding, edge_type="single")
    assert single.edges[0, :, :, 0, 0].tolist() == [[0, 8], [0, 7]]


def test_padding_is_marked() -> None:
    edges = torch.tensor([[0, 2], [1, 3]])
    structure = GraphStructure.of(edges, torch.tensor([[1, 2], [3, 4]]), padding_of([2, 3]))
    assert structure.hops[0].tolist() == [[0, 1, -1], [UNREACHABLE, 0, -1], [-1, -1, -1]]
    assert structure.edges.shape == (2, 3, 3, 5, 2) and structure.edges[1, 0, 1, 0].tolist() == [3, 4]
    assert structure.in_degree.tolist() == [[0, 1, -1], [0, 1, 0]]


@pytest.mark.parametrize("edge_type", ["multi_hop", "single"])
def test_a_batch_is_its_graphs_one_by_one(edge_type: str) -> None:
    edges, padding = random_edges(SIZES), padding_of(SIZES)
    types, start = torch.randint(1, 5, (edges.shape[1], 2)), 0
    batch = GraphStructure.of(edges, types, padding, edge_type=edge_type)  # type: ignore[arg-type]
    for b, n in enumerate(SIZES):
        own = (edges[0] >= start) & (edges[0] < start + n)
        graph = edges[:, own] - start
        alone = GraphStructure.of(graph, types[own], padding_of([n]), edge_type=edge_type)  # type: ignore[arg-type]
        assert (batch.hops[b, :n, :n] == alone.hops[0]).all()
        assert (batch.edges[b, :n, :n] == alone.edges[0]).all()
        assert (batch.in_degree[b, :n] == alone.in_degree[0]).all()
        assert (batch.out_degree[b, :n] == alone.out_degree[0]).all()
        start += n


def test_nodes_and_edges_in_another_order() -> None:
    n, edges = 9, random_edges([9])
    order, types = torch.randperm(9), torch.ones(edges.shape[1], dtype=torch.long)
    place = order.argsort()
    shuffled = place[edges][:, torch.randperm(edges.shape[1])]
    first = GraphStructure.of(edges, types, padding_of([n]))
    second = GraphStructure.of(shuffled, types, padding_of([n]))
    assert (second.hops[0] == first.hops[0][order][:, order]).all()
    assert (second.edges[0] == first.edges[0][order][:, order]).all()  # one type: any path will do
    assert (second.in_degree[0] == first.in_degree[0][order]).all()


@pytest.mark.parametrize("sizes", [[0, 2], [1], []])
def test_graphs_without_edges_or_nodes(sizes: list[int]) -> None:
    padding = padding_of(sizes) if sizes else Padding(torch.zeros(0, dtype=torch.long), 0, 0)
    n = max(sizes, default=0)
    for edge_attr in (torch.zeros(0).long(), torch.zeros(0, 3).long()):
        structure = GraphStructure.of(torch.zeros(2, 0).long(), edge_attr, padding)
        assert structure.hops.shape == (len(sizes), n, n) and not structure.edges.any()
        assert structure.edges.shape[4] == (1 if edge_attr.ndim == 1 else 3)


def test_an_unknown_edge_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="multi_hop"):
        GraphStructure.of(torch.zeros(2, 0).long(), torch.zeros(0).long(), padding_of([1]), edge_type="two")  # type: ignore[arg-type]
