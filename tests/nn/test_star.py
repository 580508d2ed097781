"""Stars and flattening, against a loop over graphs and PyG's Batch."""

from __future__ import annotations

import doctest

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import coalesce

from trajpred.nn import star
from trajpred.nn.star import FlatGraphs, flatten_edges, flatten_stars, star_edges

#: (nodes, edges) of each graph: ragged, without edges, without nodes.
SIZES = ((3, 2), (6, 16), (1, 0), (0, 0), (4, 3))


def graphs(sizes: tuple[tuple[int, int], ...] = SIZES) -> tuple[list[Tensor], Tensor, Tensor]:
    edges = [torch.randint(max(nodes, 1), (2, count)) for nodes, count in sizes]
    nodes = torch.tensor([nodes for nodes, _ in sizes])
    return edges, nodes, torch.tensor([max(int(n) - 1, 0) for n in nodes])


def one_by_one(edges: list[Tensor], nodes: Tensor, targets: Tensor) -> FlatGraphs:
    """The slow form: graph after graph, edge after edge."""
    columns, batch, ptr, target = [], [], [0], []
    for graph, index in enumerate(edges):
        columns += [(ptr[-1] + int(j), ptr[-1] + int(i)) for j, i in index.T]
        target.append(ptr[-1] + int(targets[graph]))
        batch += [graph] * int(nodes[graph])
        ptr.append(ptr[-1] + int(nodes[graph]))
    index = torch.tensor(columns, dtype=torch.int64).reshape(-1, 2).T
    return FlatGraphs(index, torch.tensor(batch), torch.tensor(ptr), torch.tensor(target))


def same(found: FlatGraphs, expected: FlatGraphs) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_examples() -> None:
    result = doctest.testmod(star)
    assert result.attempted and not result.failed


def test_published_star_has_17_edges_once_merged() -> None:
    neighbors, target = torch.arange(1, 9), torch.zeros(8, dtype=torch.int64)
    loop = torch.zeros(1, dtype=torch.int64)
    published = torch.stack(
        (torch.cat((loop, neighbors, loop, target)), torch.cat((loop, target, loop, neighbors)))
    )
    assert published.shape[1] == 18
    assert torch.equal(coalesce(published, sort_by_row=False), star_edges())
    assert star_edges().shape == (2, 17)


@pytest.mark.parametrize("neighbors", range(9))
def test_fewer_neighbours(neighbors: int) -> None:
    edges = star_edges(neighbors)
    pairs = {(int(j), int(i)) for j, i in edges.T}
    assert edges.shape == (2, 2 * neighbors + 1) == (2, len(pairs))
    assert pairs == {(0, 0)} | {p for k in range(1, neighbors + 1) for p in ((0, k), (k, 0))}
    assert torch.equal(edges[1], edges[1].sort().values)


def test_negative_number_of_neighbours() -> None:
    with pytest.raises(ValueError, match="num_neighbors"):
        star_edges(-1)


def test_flattened_equals_the_loop() -> None:
    given = graphs()
    same(flatten_edges(*given), one_by_one(*given))


def test_flattened_equals_pyg() -> None:
    edges, nodes, targets = graphs()
    batch = Batch.from_data_list(
        [Data(edge_index=index, num_nodes=int(n)) for index, n in zip(edges, nodes, strict=True)]
    )
    same(
        flatten_edges(edges, nodes, targets),
        FlatGraphs(batch.edge_index, batch.batch, batch.ptr, batch.ptr[:-1] + targets),
    )


def test_equal_graphs_may_come_stacked() -> None:
    edges, nodes, targets = graphs(((4, 5),) * 3)
    same(flatten_edges(torch.stack(edges), nodes, targets), one_by_one(edges, nodes, targets))


def test_no_graphs() -> None:
    for none in ([], torch.zeros(0, 2, 5, dtype=torch.int64)):
        flat = flatten_edges(none, torch.zeros(0, dtype=torch.int64))
        assert flat.edge_index.shape == (2, 0) and flat.ptr.tolist() == [0] and len(flat.target_index) == 0
        assert flat.edge_index.dtype == torch.int64


def test_target_is_the_first_node_by_default() -> None:
    edges, nodes, _ = graphs()
    flat = flatten_edges(edges, nodes)
    assert torch.equal(flat.target_index, flat.offsets)


def test_numbers_of_graphs_must_agree() -> None:
    edges, nodes, targets = graphs()
    with pytest.raises(ValueError, match="graphs"):
        flatten_edges(edges[1:], nodes, targets)


def test_stars_at_once_equal_stars_flattened() -> None:
    neighbors = torch.tensor([8, 0, 3, 8, 1])
    found = flatten_stars(neighbors)
    expected = flatten_edges([star_edges(int(m)) for m in neighbors], neighbors + 1)
    same(
        found._replace(edge_index=coalesce(found.edge_index)),
        expected._replace(edge_index=coalesce(expected.edge_index)),
    )
    assert found.edge_index.shape == expected.edge_index.shape
