"""The Graph Transformer beyond its vectors: layers, network, and positional encodings against PyG's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE
from torch_geometric.utils import to_undirected

from tests.nn.graphs import EDGES
from trajpred.data.geometry import normalized_laplacian
from trajpred.nn import (
    DwivediGraphTransformerEdgeLayer,
    DwivediGraphTransformerLayer,
    GraphTransformerNet,
    laplacian_positional_encoding,
    random_walk_positional_encoding,
)
from trajpred.nn.published.graph_transformer import adjacency, clamped_softmax

DIM = 6
N = 6
E = EDGES.shape[1]
each_layer = pytest.mark.parametrize("kind", [DwivediGraphTransformerLayer, DwivediGraphTransformerEdgeLayer])


def outputs(layer: Any, x: Any, **options: Any) -> tuple[torch.Tensor, ...]:
    """Of a layer with or without an edge stream, on fixed edge features."""
    edge_features = (torch.linspace(-1, 1, E * DIM).reshape(E, DIM),)
    out = layer(x, EDGES, *(edge_features if hasattr(layer, "edges") else ()), **options)
    return out if isinstance(out, tuple) else (out,)


@each_layer
def test_errors(kind: type) -> None:
    for sizes in ((6, 8, 2), ((8, 6), 8, 2)):
        with pytest.raises(ValueError, match="residual"):
            kind(*sizes)
    for heads in (0, 3):
        with pytest.raises(ValueError, match="num_heads"):
            kind(8, 8, heads)


def test_edges_that_are_not_updated_stay() -> None:
    e = torch.randn(E, 3)
    layer = DwivediGraphTransformerEdgeLayer(DIM, DIM, 2, edge_dim=3, update_edges=False)
    assert layer(torch.randn(N, DIM), EDGES, e)[1].equal(e)


def test_clamped_scores_have_no_gradient() -> None:
    score = torch.tensor([-9.0, 1.0, 9.0], requires_grad=True)
    weight = clamped_softmax(score, torch.tensor([0, 0, 0]), 1)
    assert_close(weight, torch.softmax(torch.tensor([-5.0, 1.0, 5.0]), 0))
    weight[1].backward()
    assert score.grad[[0, 2]].tolist() == [0, 0]
    assert score.grad[1] > 0


@each_layer
def test_pairs_of_different_widths_and_attention_on_request(kind: type) -> None:
    layer = kind((4, DIM), DIM, 2)
    pair = (torch.randn(N, 4), torch.randn(N, DIM))
    *out, weight = outputs(layer, pair, return_attention=True)
    assert_close(tuple(out), outputs(layer, pair))
    total = torch.zeros(N, 2).index_add(0, EDGES[1], weight)
    assert_close(total[:4], torch.ones(4, 2), rtol=0, atol=1e-3)
    assert not layer.attention(pair, EDGES, *([torch.randn(E, DIM)] * (len(out) - 1)))[0][4:].any()


NO_EDGES = torch.zeros(2, 0, dtype=torch.int64)
#: Graphs of very different sizes; a random graph has simple eigenvalues, a complete one has not.
SIZES = (7, 1, 12, 2, 5)
NODE_TYPE = torch.tensor([0, 4, 2, 1, 3, 0])
EDGE_TYPE = torch.tensor([0, 3, 1, 2, 2, 0, 1, 1])
BATCH = torch.zeros(6, dtype=torch.int64)


def net(**options: Any) -> GraphTransformerNet:
    small = {"hidden_dim": 8, "out_dim": 8, "n_heads": 2, "L": 2, "pos_enc_dim": 3}
    if not {"in_dim", "edge_dim", "edge_feat"} & options.keys():
        small |= {"num_atom_type": 5, "num_bond_type": 4}
    return GraphTransformerNet(**(small | options))


def random_graphs() -> list[Tensor]:
    pairs = [torch.combinations(torch.arange(n)) for n in SIZES]
    share = (0.5, 1, 0.5, 1, 1)
    edges = [p[torch.rand(len(p)) <= s].T.reshape(2, -1) for p, s in zip(pairs, share, strict=True)]
    return [to_undirected(index, num_nodes=n) for index, n in zip(edges, SIZES, strict=True)]


def flatten(graphs: list[Tensor]) -> tuple[Tensor, Tensor]:
    sizes = torch.tensor(SIZES)
    offsets = (sizes.cumsum(0) - sizes).tolist()
    edge_index = torch.cat([graph + offset for graph, offset in zip(graphs, offsets, strict=True)], 1)
    return edge_index[:, torch.randperm(edge_index.shape[1])], torch.repeat_interleave(sizes)


def alone(nodes: int) -> Tensor:
    return torch.zeros(nodes, dtype=torch.int64)


def test_net_errors() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        *(({"readout": "median"}, "readout"), ({"L": 0}, "L must"), ({"out_dim": 4}, "residual")),
        *(({"edge_dim": 3}, "num_atom_type or in_dim"), ({"in_dim": 3}, "num_bond_type or edge_dim")),
        ({"out_dim": 2, "residual": False}, "halved"),
    ]
    for options, message in wrong:
        with pytest.raises(ValueError, match=message):
            net(**options)


@pytest.mark.parametrize("readout", ["mean", "sum", "max"])
def test_net_on_a_batch_equals_graphs_one_by_one_and_trains_every_parameter(readout: Any) -> None:
    model = net(readout=readout, n_classes=3, layer_norm=True).double()
    model(NODE_TYPE, EDGES, EDGE_TYPE, BATCH).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    model = net(readout=readout, lap_pos_enc=False).double().eval()
    connected = model(NODE_TYPE, EDGES, EDGE_TYPE)
    without_edges = model(NODE_TYPE[:2], EDGES[:, :0], EDGE_TYPE[:0])
    batch = torch.tensor([0, 0, 2, 2, 2, 2, 2, 2])  # graphs 1, 3 and 4 have no nodes
    out = model(torch.cat((NODE_TYPE[:2], NODE_TYPE)), EDGES + 2, EDGE_TYPE, batch, batch_size=5)
    assert_close(out[[0, 2]], torch.cat((without_edges, connected)), rtol=1e-12, atol=1e-12)
    assert_close(out[[1, 3, 4]], model.mlp(torch.zeros(8).double()).expand(3, -1))


def test_net_adds_its_positional_encoding_after_the_dropout_of_the_nodes() -> None:
    model = net(in_feat_dropout=0.999999, batch_norm=False)
    inputs = NODE_TYPE, EDGES, EDGE_TYPE, BATCH
    encoding = laplacian_positional_encoding(EDGES, BATCH, 3)
    out = model.eval().encode(*inputs, pos_enc=None)
    expected = model.eval().encode(*inputs, pos_enc=encoding)
    assert out.equal(expected)
    assert not out.allclose(model.encode(*inputs, pos_enc=0 * encoding))
    dropped = model.train().encode(*inputs, pos_enc=encoding)
    torch.nn.init.zeros_(model.node_in.weight)
    assert dropped.equal(model.eval().encode(*inputs, pos_enc=encoding))


@pytest.mark.parametrize("k", [1, 4, 20])
def test_laplacian_encoding_of_a_batch_is_that_of_each_graph(k: int) -> None:
    graphs = random_graphs()
    edge_index, batch = flatten(graphs)
    encoding = laplacian_positional_encoding(edge_index, batch, k).double()
    assert encoding.shape == (sum(SIZES), k)
    for i, (graph, n) in enumerate(zip(graphs, SIZES, strict=True)):
        laplacian = torch.from_numpy(normalized_laplacian(adjacency(graph, alone(n))[0][0].numpy()))
        out = encoding[batch == i]
        columns = min(k, n - 1)
        values = torch.linalg.eigvalsh(laplacian)[1 : columns + 1]
        # Orthonormal eigenvectors of the right eigenvalues: equal up to signs and bases of eigenspaces.
        vectors = out[:, :columns]
        assert_close(laplacian @ vectors, vectors * values, rtol=0, atol=1e-6)
        assert_close(vectors.T @ vectors, torch.eye(columns).double(), rtol=0, atol=1e-6)
        assert not out[:, columns:].any()
        if n in (7, 12) and k == 4:  # PyG's needs more nodes than columns and simple eigenvalues
            data = Data(edge_index=graph, num_nodes=n)
            expected = AddLaplacianEigenvectorPE(k, attr_name="pe", is_undirected=True)(data).pe
            assert_close(out.abs(), expected.double().abs(), rtol=0, atol=1e-5)


def test_laplacian_of_directed_parallel_and_loop_edges_and_of_padding() -> None:
    # A directed edge counts in both directions, parallel edges count twice, a loop is kept.
    edge_index = torch.tensor([[0, 0, 1], [1, 1, 1]])
    batch = torch.tensor([0, 0, 0, 2, 2])
    either = torch.tensor([[0.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 0.0]]).double()
    scale = torch.tensor([2.0, 3.0, 1.0]).double().rsqrt()
    count, mask = adjacency(edge_index, batch)
    assert mask.tolist() == [[True] * 3, [False] * 3, [True, True, False]]
    assert not count[1:].any()
    laplacian = torch.from_numpy(normalized_laplacian(count[0].numpy()))
    assert_close(laplacian, torch.eye(3).double() - scale[:, None] * either * scale)
    assert normalized_laplacian(count[2, :2, :2].numpy()).tolist() == [[1, 0], [0, 1]]


def test_random_walk_encoding_of_a_batch_is_pygs_of_each_graph() -> None:
    graphs = random_graphs()
    graphs[0] = torch.randint(0, 7, (2, 15)).unique(dim=1)  # directed, with loops
    edge_index, batch = flatten(graphs)
    encoding = random_walk_positional_encoding(edge_index, batch, 6)
    for i, (graph, n) in enumerate(zip(graphs, SIZES, strict=True)):
        expected = AddRandomWalkPE(6, attr_name="pe")(Data(edge_index=graph, num_nodes=n)).pe
        assert_close(encoding[batch == i], expected)
    parallel = torch.tensor([[0, 0, 0, 1, 2], [1, 1, 2, 0, 0]])  # twice as likely as single ones
    out = random_walk_positional_encoding(parallel, alone(3), 2)[:, 1]
    assert_close(out, torch.tensor([1, 2 / 3, 1 / 3]))


@pytest.mark.parametrize("nodes", [0, 1, 3])
def test_encodings_of_graphs_without_edges(nodes: int) -> None:
    laplacian = laplacian_positional_encoding(NO_EDGES, alone(nodes), 2)
    walk = random_walk_positional_encoding(NO_EDGES, alone(nodes), 2)
    assert laplacian.shape == walk.shape == (nodes, 2)
    assert laplacian.isfinite().all()
    assert not walk.any()
