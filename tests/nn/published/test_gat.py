"""The stacked GAT encoder, and that PyG's convolutions are what we take them for."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv

from trajpred.nn.published import gat
from trajpred.nn.published.gat import GATEncoder, GATLayer
from trajpred.nn.star import flatten_edges, flatten_stars, star_edges

CONVS = ("gat", "gatv2")
CHANNELS, HEADS = 4, 3
NEIGHBORS = torch.tensor([8, 0, 2])


def encoder(conv: str = "gatv2", layers: int = 2, **options: Any) -> GATEncoder:
    built = GATEncoder(CHANNELS, HEADS, layers, conv=conv, **options).double()
    for parameter in built.parameters():  # biases and norms too
        torch.nn.init.normal_(parameter)
    return built


def stars(edge_channels: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    flat = flatten_stars(NEIGHBORS)
    x = torch.randn(len(flat.batch), CHANNELS, dtype=torch.float64, requires_grad=True)
    edges = flat.edge_index.shape[1]
    e = torch.randn(edges, edge_channels, dtype=torch.float64) if edge_channels else None
    return x, flat.edge_index, flat.target_index, e


def test_names_and_defaults() -> None:
    parameters = inspect.signature(GATEncoder).parameters
    assert {name: p.default for name, p in parameters.items() if name != "channels"} == {
        "heads": 3,
        "layers": 1,
        "conv": "gatv2",
        "edge_channels": 0,
        "leaky_slope": 0.3,
        "dropout": 0.0,
        "repeat_input": True,
    }


def test_examples() -> None:
    result = doctest.testmod(gat)
    assert result.attempted and not result.failed


def test_errors() -> None:
    with pytest.raises(ValueError, match="conv"):
        GATEncoder(4, conv="gcn")  # type: ignore[arg-type]
    x, index, target, e = stars(2)
    with pytest.raises(ValueError, match="channels"):
        encoder()(x[:, 1:], index, target)
    for channels, given in ((0, e), (2, None), (3, e)):
        with pytest.raises(ValueError, match="edge_attr"):
            encoder(edge_channels=channels)(x, index, target, given)


@pytest.mark.parametrize("conv", CONVS)
def test_layer_is_the_two_residuals(conv: str) -> None:
    layer = GATLayer(CHANNELS, HEADS, conv=conv).double()  # type: ignore[arg-type]
    x, index = torch.randn(3, CHANNELS * HEADS, dtype=torch.float64), star_edges(2)
    first, _, second = layer.feed_forward[0], layer.feed_forward[1], layer.feed_forward[3]
    h = layer.norm1(x + layer.conv(x, index))
    inner = first(h)
    expected = layer.norm2(h + second(torch.where(inner > 0, inner, 0.3 * inner)))
    torch.testing.assert_close(layer(x, index)[0], expected)


@pytest.mark.parametrize("conv", CONVS)
def test_targets_are_rows_of_all_nodes_and_attention_comes_on_request(conv: str) -> None:
    model = encoder(conv)
    x, index, target, _ = stars()
    nodes, _ = model.encode(x, index)
    found, attention = model(x, index, target, return_attention=True)
    torch.testing.assert_close(found, model.out(nodes[target]))
    torch.testing.assert_close(found, model(x, index, target))
    assert len(attention) == 2
    for edges, weight in attention:
        total = torch.zeros(len(x), HEADS, dtype=torch.float64).index_add(0, edges[1], weight)
        torch.testing.assert_close(total, torch.ones_like(total))  # every node has a loop


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("edge_channels", [0, 2])
def test_a_batch_equals_its_graphs_one_by_one(conv: str, edge_channels: int) -> None:
    model = encoder(conv, edge_channels=edge_channels)
    edges = [star_edges(int(m)) for m in NEIGHBORS]
    xs = [torch.randn(int(m) + 1, CHANNELS, dtype=torch.float64) for m in NEIGHBORS]
    es = [torch.randn(index.shape[1], edge_channels, dtype=torch.float64) for index in edges]
    first = torch.zeros(1, dtype=torch.int64)
    apart = [
        model(x, index, first, e if edge_channels else None)
        for x, index, e in zip(xs, edges, es, strict=True)
    ]
    flat = flatten_edges(edges, NEIGHBORS + 1)
    together = model(
        torch.cat(xs), flat.edge_index, flat.target_index, torch.cat(es) if edge_channels else None
    )
    torch.testing.assert_close(together, torch.cat(apart))


@pytest.mark.parametrize("conv", CONVS)
def test_order_of_nodes_and_edges_does_not_matter(conv: str) -> None:
    model = encoder(conv, edge_channels=2)
    x, index, target, e = stars(2)
    assert e is not None
    nodes, edges = torch.randperm(len(x)), torch.randperm(len(e))
    place = nodes.argsort()
    found = model(x[nodes], place[index[:, edges]], place[target], e[edges])
    torch.testing.assert_close(found, model(x, index, target, e))


@pytest.mark.parametrize("conv", CONVS)
def test_the_doubled_loop_of_the_published_star_changes_nothing(conv: str) -> None:
    model, x = encoder(conv), torch.randn(9, CHANNELS, dtype=torch.float64)
    first = torch.zeros(1, dtype=torch.int64)
    doubled = torch.cat((star_edges(), torch.zeros(2, 1, dtype=torch.int64)), 1)
    torch.testing.assert_close(model(x, doubled, first), model(x, star_edges(), first))


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("edge_channels", [0, 2])
def test_gradients(conv: str, edge_channels: int) -> None:
    model = encoder(conv, layers=1, edge_channels=edge_channels)
    x, index, target, e = stars(edge_channels)
    assert torch.autograd.gradcheck(lambda x: model(x, index, target, e), x)
    model(x, index, target, e).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("edge_channels", [0, 2])
@pytest.mark.parametrize("nodes", [0, 1, 3])
def test_graphs_without_edges_are_finite(conv: str, edge_channels: int, nodes: int) -> None:
    model = encoder(conv, edge_channels=edge_channels)
    x = torch.randn(nodes, CHANNELS, dtype=torch.float64, requires_grad=True)
    none = torch.zeros(2, 0, dtype=torch.int64)
    e = torch.zeros(0, edge_channels, dtype=torch.float64) if edge_channels else None
    out = model(x, none, torch.arange(nodes), e)
    out.sum().backward()
    assert out.shape == (nodes, CHANNELS) and out.isfinite().all()
    assert x.grad is not None and x.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_dropout_in_training_only() -> None:
    model = encoder(dropout=0.5)
    x, index, target, _ = stars()
    assert not torch.equal(model(x, index, target), model(x, index, target))
    model.eval()
    assert torch.equal(model(x, index, target), model(x, index, target))
    assert all(layer.conv.dropout == 0.5 for layer in model.layers)


def test_input_may_come_wide() -> None:
    model = encoder(repeat_input=False)
    narrow = encoder()
    narrow.load_state_dict(model.state_dict())
    x, index, target, _ = stars()
    torch.testing.assert_close(model(torch.cat((x, x, x), 1), index, target), narrow(x, index, target))


@pytest.mark.parametrize("conv", [GATConv, GATv2Conv])
@pytest.mark.parametrize("loops", [True, False])
def test_pyg_gives_isolated_nodes_their_bias_and_takes_pairs(conv: Any, loops: bool) -> None:
    layer = conv((3, 5), 2, heads=2, add_self_loops=loops, edge_dim=2)
    torch.nn.init.normal_(layer.bias)
    sender = torch.randn(4, 3, requires_grad=True)
    receiver = torch.randn(6, 5, requires_grad=True)
    out = layer((sender, receiver), torch.tensor([[0, 1, 3], [0, 0, 1]]), torch.randn(3, 2))
    out.sum().backward()
    assert sender.grad is not None and sender.grad.isfinite().all()
    isolated = range(4 if loops else 2, 6)  # PyG gives loops to the first min(S, R) nodes
    assert all(torch.equal(out[i], layer.bias) for i in isolated)
