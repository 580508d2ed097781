"""The small network of Graph Transformer layers: inputs, readouts, batches, gradients."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pytest
import torch
from torch import nn

from trajpred.nn.published import graph_transformer_net
from trajpred.nn.published.graph_transformer_net import GraphTransformerNet

NODES = 5
EDGES = torch.tensor([[3, 1, 1, 2, 0, 2], [0, 0, 0, 1, 2, 2]])
NODE_TYPE, EDGE_TYPE = torch.tensor([0, 4, 2, 1, 3]), torch.tensor([0, 3, 1, 2, 2, 0])
BATCH = torch.zeros(NODES, dtype=torch.int64)


def net(**options: Any) -> GraphTransformerNet:
    small = {"hidden_dim": 8, "out_dim": 8, "n_heads": 2, "L": 2, "pos_enc_dim": 3}
    sources = (
        {} if {"in_dim", "edge_dim", "edge_feat"} & set(options) else {"num_atom_type": 5, "num_bond_type": 4}
    )
    return GraphTransformerNet(**{**small, **sources, **options})


def test_net_takes_the_published_parameters() -> None:
    published = {
        *("num_atom_type", "num_bond_type", "hidden_dim", "out_dim", "n_heads", "in_feat_dropout", "dropout"),
        *("L", "readout", "layer_norm", "batch_norm", "residual", "edge_feat", "lap_pos_enc", "pos_enc_dim"),
    }
    assert set(inspect.signature(GraphTransformerNet).parameters) - published == {
        "in_dim",
        "edge_dim",
        "n_classes",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readout": "median"}, "readout"),
        ({"L": 0}, "L must"),
        ({"edge_dim": 3}, "num_atom_type or in_dim"),
        ({"edge_dim": 3, "in_dim": 2, "num_atom_type": 5}, "num_atom_type or in_dim"),
        ({"in_dim": 3}, "num_bond_type or edge_dim"),
        ({"out_dim": 4}, "residual"),
        ({"out_dim": 2, "residual": False}, "halved"),
    ],
)
def test_net_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        net(**options)


def test_net_needs_the_edge_features_it_was_made_for() -> None:
    with pytest.raises(ValueError, match="edge_attr"):
        net()(NODE_TYPE, EDGES)


@pytest.mark.parametrize("readout", ["mean", "sum", "max"])
def test_every_parameter_of_the_net_gets_a_gradient(readout: Any) -> None:
    model = net(readout=readout, n_classes=3, layer_norm=True)
    out = model(NODE_TYPE, EDGES, EDGE_TYPE, BATCH)
    assert out.shape == (1, 3)
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_net_on_features_and_without_edge_features() -> None:
    x, edge_attr = torch.randn(NODES, 3), torch.randn(EDGES.shape[1], 2)
    options = {"residual": False, "out_dim": 4, "lap_pos_enc": False}
    assert net(in_dim=3, edge_dim=2, **options)(x, EDGES, edge_attr).shape == (1, 1)
    model = net(num_atom_type=5, edge_feat=False).eval()
    assert model(NODE_TYPE, EDGES).equal(model(NODE_TYPE, EDGES, EDGE_TYPE))


def test_input_dropout_is_on_the_nodes_only() -> None:
    model = net(in_feat_dropout=0.999999, batch_norm=False)
    encoding = torch.randn(NODES, 3)
    found = model.encode(NODE_TYPE, EDGES, EDGE_TYPE, BATCH, pos_enc=encoding)
    torch.nn.init.zeros_(model.node_in.weight)
    assert found.equal(model.eval().encode(NODE_TYPE, EDGES, EDGE_TYPE, BATCH, pos_enc=encoding))


def test_net_computes_its_positional_encoding() -> None:
    model = net()
    assert model.position is not None
    encoding = model.position.eval()(EDGES, BATCH)
    found, expected = (
        model.eval().encode(NODE_TYPE, EDGES, EDGE_TYPE, BATCH, pos_enc=given) for given in (None, encoding)
    )
    assert found.equal(expected)
    assert not found.allclose(model.encode(NODE_TYPE, EDGES, EDGE_TYPE, BATCH, pos_enc=0 * encoding))


@pytest.mark.parametrize("readout", ["mean", "sum", "max"])
def test_net_on_a_batch_equals_graphs_one_by_one(readout: Any) -> None:
    model = net(readout=readout, lap_pos_enc=False).double().eval()
    one = model(NODE_TYPE, EDGES, EDGE_TYPE)
    other = model(NODE_TYPE[:2], EDGES[:, :0], EDGE_TYPE[:0])
    batch = torch.tensor([0, 0, 2, 2, 2, 2, 2])  # graph 1 has no nodes, 3 and 4 neither
    found = model(torch.cat((NODE_TYPE[:2], NODE_TYPE)), EDGES + 2, EDGE_TYPE, batch, batch_size=5)
    torch.testing.assert_close(found[[0, 2]], torch.cat((other, one)), rtol=1e-12, atol=1e-12)
    nothing = model.mlp(torch.zeros(8, dtype=torch.float64))
    torch.testing.assert_close(found[[1, 3, 4]], nothing.expand(3, -1))


@pytest.mark.parametrize("training", [True, False])
def test_net_on_nothing(training: bool) -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    model = net().train(training)
    out = model(empty, EDGES[:, :0], empty, empty)
    assert out.shape == (0, 1)
    out.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_initialisation_follows_the_global_generator() -> None:
    torch.manual_seed(3)
    first = net()
    torch.manual_seed(3)
    assert all(a.equal(b) for a, b in zip(first.parameters(), net().parameters(), strict=True))
    assert isinstance(first.mlp[0], nn.Linear) and first.mlp[0].out_features == 4


def test_examples_of_the_docstrings() -> None:
    result = doctest.testmod(graph_transformer_net)
    assert result.attempted and not result.failed
