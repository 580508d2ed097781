"""Positional encodings against their definitions, graph by graph, and PyG's own."""

from __future__ import annotations

import doctest

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE
from torch_geometric.utils import to_undirected

from trajpred.nn.published import graph_transformer_net as positional
from trajpred.nn.published.graph_transformer_net import (
    LaplacianPositionalEncoding,
    laplacian_positional_encoding,
    normalized_laplacian,
    random_walk_positional_encoding,
)

NO_EDGES = torch.zeros(2, 0, dtype=torch.int64)
#: Graphs of very different sizes; a random graph has simple eigenvalues, the others have not.
SIZES = (7, 1, 12, 2, 5)


def random_graph(nodes: int, share: float = 0.5) -> Tensor:
    """Undirected, without loops and parallel edges."""
    pairs = torch.combinations(torch.arange(nodes))
    return to_undirected(pairs[torch.rand(len(pairs)) < share].T, num_nodes=nodes)


@pytest.fixture
def graphs() -> list[Tensor]:
    complete = torch.combinations(torch.arange(5)).T
    return [
        random_graph(7),
        NO_EDGES,
        random_graph(12),
        torch.tensor([[0, 1], [1, 0]]),
        to_undirected(complete),
    ]


def flatten(graphs: list[Tensor]) -> tuple[Tensor, Tensor]:
    sizes = torch.tensor(SIZES)
    offsets = (sizes.cumsum(0) - sizes).tolist()
    edge_index = torch.cat([graph + offset for graph, offset in zip(graphs, offsets, strict=True)], 1)
    return edge_index[:, torch.randperm(edge_index.shape[1])], torch.repeat_interleave(sizes)


def alone(nodes: int) -> Tensor:
    return torch.zeros(nodes, dtype=torch.int64)


@pytest.mark.parametrize("k", [1, 4, 20])
def test_batched_laplacian_encoding_is_that_of_each_graph(graphs: list[Tensor], k: int) -> None:
    edge_index, batch = flatten(graphs)
    encoding = laplacian_positional_encoding(edge_index, batch, k).double()
    assert encoding.shape == (sum(SIZES), k)
    for i, (graph, n) in enumerate(zip(graphs, SIZES, strict=True)):
        laplacian = normalized_laplacian(graph, alone(n))[0][0]
        found, columns = encoding[batch == i], min(k, n - 1)
        values = torch.linalg.eigvalsh(laplacian)[1 : columns + 1]
        # Eigenvectors of the right eigenvalues, orthonormal: the same up to signs and bases of eigenspaces.
        torch.testing.assert_close(
            laplacian @ found[:, :columns], found[:, :columns] * values, rtol=0, atol=1e-6
        )
        gram = found.T @ found
        torch.testing.assert_close(gram[:columns, :columns], torch.eye(columns).double(), rtol=0, atol=1e-6)
        assert not found[:, columns:].any()


def test_laplacian_encoding_equals_pyg_where_that_is_defined(graphs: list[Tensor]) -> None:
    edge_index, batch = flatten(graphs)
    encoding = laplacian_positional_encoding(edge_index, batch, 3).double()
    for i in (0, 2):
        data = AddLaplacianEigenvectorPE(3, attr_name="pe", is_undirected=True)(
            Data(edge_index=graphs[i], num_nodes=SIZES[i])
        )
        torch.testing.assert_close(encoding[batch == i].abs(), data.pe.double().abs(), rtol=0, atol=1e-5)


def test_laplacian_of_directed_parallel_and_loop_edges() -> None:
    # A directed edge counts both ways; two parallel ones count twice; a loop stays.
    edge_index = torch.tensor([[0, 0, 1], [1, 1, 1]])
    adjacency = torch.tensor([[0.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    scale = torch.tensor([2.0, 3.0, 1.0], dtype=torch.float64).rsqrt()
    expected = torch.eye(3).double() - scale[:, None] * adjacency * scale
    laplacian, mask = normalized_laplacian(edge_index, alone(3))
    torch.testing.assert_close(laplacian[0], expected)
    assert mask.tolist() == [[True, True, True]]


def test_laplacian_is_zero_on_the_padding() -> None:
    laplacian, mask = normalized_laplacian(torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0, 2, 2, 2]))
    assert mask.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert not laplacian[0, 2].any() and not laplacian[0, :, 2].any() and not laplacian[1].any()
    assert laplacian[2].equal(torch.eye(3).double())


def test_encodings_follow_the_nodes(graphs: list[Tensor]) -> None:
    node = torch.randperm(12)
    moved = torch.argsort(node)[graphs[2]]
    before, after = (laplacian_positional_encoding(g, alone(12), 4) for g in (graphs[2], moved))
    torch.testing.assert_close(after.abs(), before[node].abs(), rtol=0, atol=1e-5)
    before, after = (random_walk_positional_encoding(g, alone(12), 4) for g in (graphs[2], moved))
    torch.testing.assert_close(after, before[node])


def test_batched_random_walk_encoding_is_pygs_of_each_graph(graphs: list[Tensor]) -> None:
    graphs[0] = torch.randint(0, 7, (2, 15)).unique(dim=1)  # directed, with loops
    edge_index, batch = flatten(graphs)
    encoding = random_walk_positional_encoding(edge_index, batch, 6)
    for i, (graph, n) in enumerate(zip(graphs, SIZES, strict=True)):
        data = AddRandomWalkPE(6, attr_name="pe")(Data(edge_index=graph, num_nodes=n))
        torch.testing.assert_close(encoding[batch == i], data.pe)


def test_random_walk_takes_parallel_edges_for_more_likely() -> None:
    edge_index = torch.tensor([[0, 0, 0, 1, 2], [1, 1, 2, 0, 0]])
    encoding = random_walk_positional_encoding(edge_index, alone(3), 2)
    torch.testing.assert_close(encoding[:, 1], torch.tensor([1, 2 / 3, 1 / 3]))


@pytest.mark.parametrize("nodes", [0, 1, 3])
def test_graphs_without_edges_and_without_nodes(nodes: int) -> None:
    laplacian = laplacian_positional_encoding(NO_EDGES, alone(nodes), 2)
    walk = random_walk_positional_encoding(NO_EDGES, alone(nodes), 2)
    assert laplacian.shape == walk.shape == (nodes, 2)
    assert laplacian.isfinite().all() and not walk.any()
    assert LaplacianPositionalEncoding(2)(NO_EDGES, alone(nodes)).shape == (nodes, 2)


def test_signs_are_flipped_in_training_only_by_column() -> None:
    edge_index, batch = random_graph(9), alone(9)
    module = LaplacianPositionalEncoding(4)
    fixed = module.eval()(edge_index, batch)
    assert fixed.equal(laplacian_positional_encoding(edge_index, batch, 4))
    module.train()
    drawn = torch.stack([module(edge_index, batch) for _ in range(200)])
    sign = (drawn * fixed).sum(1).sign()
    torch.testing.assert_close(drawn, sign[:, None] * fixed)
    assert len(sign.unique(dim=0)) == 16  # every combination occurs
    torch.manual_seed(1)
    first = module(edge_index, batch)
    torch.manual_seed(1)
    assert module(edge_index, batch).equal(first)


def test_no_columns() -> None:
    for call in (
        lambda: LaplacianPositionalEncoding(0),
        lambda: laplacian_positional_encoding(NO_EDGES, alone(2), 0),
        lambda: random_walk_positional_encoding(NO_EDGES, alone(2), 0),
    ):
        with pytest.raises(ValueError, match="at least 1"):
            call()


def test_examples_of_the_docstrings() -> None:
    result = doctest.testmod(positional)
    assert result.attempted and not result.failed
