"""Stars and flattening against PyG's Batch and coalesce."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import coalesce

from trajpred.nn import FlatGraphs, flatten_edges, flatten_stars, star_edges


def same(found: FlatGraphs, expected: FlatGraphs) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_published_star_has_17_edges_once_coalesced() -> None:
    neighbors, target = torch.arange(1, 9), torch.zeros(8, dtype=torch.int64)
    loop = torch.zeros(1, dtype=torch.int64)
    published = torch.stack(
        (torch.cat((loop, neighbors, loop, target)), torch.cat((loop, target, loop, neighbors)))
    )
    assert published.shape[1] == 18
    assert torch.equal(coalesce(published, sort_by_row=False), star_edges())


@pytest.mark.parametrize("neighbors", range(9))
def test_star_with_fewer_neighbours(neighbors: int) -> None:
    edges = star_edges(neighbors)
    expected = {(0, 0)} | {p for k in range(1, neighbors + 1) for p in ((0, k), (k, 0))}
    assert {(j, i) for j, i in edges.T.tolist()} == expected
    assert edges.shape[1] == len(expected) and torch.equal(edges[1], edges[1].sort().values)


#: Nodes and edges of each graph: ragged, with graphs without edges or nodes; equal; none at all.
@pytest.mark.parametrize("sizes", [((3, 2), (6, 16), (1, 0), (0, 0), (4, 3)), ((4, 5),) * 3, ()])
def test_flattened_graphs_equal_pygs_batch(sizes: tuple[tuple[int, int], ...]) -> None:
    edges = [torch.randint(max(nodes, 1), (2, count)) for nodes, count in sizes]
    nodes = torch.tensor([nodes for nodes, _ in sizes], dtype=torch.int64)
    targets = (nodes - 1).clamp(min=0)
    if not sizes:
        expected = FlatGraphs(torch.zeros(2, 0, dtype=torch.int64), nodes, torch.zeros(1).long(), nodes)
    else:
        graphs = [Data(edge_index=index, num_nodes=n) for index, (n, _) in zip(edges, sizes, strict=True)]
        batch = Batch.from_data_list(graphs)
        expected = FlatGraphs(batch.edge_index, batch.batch, batch.ptr, batch.ptr[:-1] + targets)
    forms: list[list[Tensor] | Tensor] = [edges]
    if len({index.shape for index in edges}) == 1:
        forms.append(torch.stack(edges))
    for form in forms:
        same(flatten_edges(form, nodes, targets), expected)
        flat = flatten_edges(form, nodes)
        assert torch.equal(flat.target_index, flat.offsets)  # by default the first node


def test_stars_at_once_equal_stars_flattened() -> None:
    neighbors = torch.tensor([8, 0, 3, 8, 1])
    found = flatten_stars(neighbors)
    expected = flatten_edges([star_edges(int(m)) for m in neighbors], neighbors + 1)
    assert found.edge_index.shape == expected.edge_index.shape
    same(*(graphs._replace(edge_index=coalesce(graphs.edge_index)) for graphs in (found, expected)))


def test_errors() -> None:
    with pytest.raises(ValueError, match="num_neighbors"):
        star_edges(-1)
    with pytest.raises(ValueError, match="edge_indices"):
        flatten_edges([star_edges()], torch.tensor([9, 9]))
