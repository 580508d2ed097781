"""The Graph Transformer layers against their formulas written out, their symmetries, and hollow graphs."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from trajpred.nn.published import graph_transformer
from trajpred.nn.published.graph_transformer import (
    ClampedAttention,
    DwivediGraphTransformerEdgeLayer,
    DwivediGraphTransformerLayer,
    clamped_softmax,
)

DIM, HEADS, NODES = 6, 2, 5
#: Node 0 hears three edges, two of them parallel; 3 only sends, 4 has no edge; one loop.
EDGES = torch.tensor([[3, 1, 1, 2, 0, 2], [0, 0, 0, 1, 2, 2]])
LAYERS = [DwivediGraphTransformerLayer, DwivediGraphTransformerEdgeLayer]
each_layer = pytest.mark.parametrize("kind", LAYERS)


def inputs(kind: type, nodes: int = NODES, edges: Tensor = EDGES, scale: float = 1.0) -> tuple[Tensor, ...]:
    """Nodes, edges and, for the layer with a stream for them, their features."""
    x = (scale * torch.randn(nodes, DIM, dtype=torch.float64)).requires_grad_()
    edge_attr = torch.randn(edges.shape[1], DIM, dtype=torch.float64, requires_grad=True)
    return (x, edges, edge_attr) if kind is DwivediGraphTransformerEdgeLayer else (x, edges)


def outputs(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def make(kind: type, **options: Any) -> Any:
    return kind(DIM, DIM, HEADS, **options).double()


@each_layer
def test_constructor_is_the_published_one(kind: type) -> None:
    published = {
        "in_dim": inspect.Parameter.empty,
        "out_dim": inspect.Parameter.empty,
        "num_heads": inspect.Parameter.empty,
        "dropout": 0.0,
        "layer_norm": False,
        "batch_norm": True,
        "residual": True,
        "use_bias": False,
    }
    parameters = inspect.signature(kind).parameters
    assert {name: p.default for name, p in list(parameters.items())[:8]} == published
    assert all(p.kind is p.KEYWORD_ONLY for p in list(parameters.values())[8:])


@each_layer
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_dim": 6, "out_dim": 8, "num_heads": 2}, "residual"),
        ({"in_dim": (8, 6), "out_dim": 8, "num_heads": 2}, "residual"),
        ({"in_dim": 8, "out_dim": 8, "num_heads": 3}, "num_heads"),
        ({"in_dim": 8, "out_dim": 8, "num_heads": 0}, "num_heads"),
    ],
)
def test_widths_that_do_not_fit(kind: type, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_edge_features_only_where_there_is_a_stream_for_them() -> None:
    with pytest.raises(ValueError, match="no edge stream"):
        make(DwivediGraphTransformerLayer)(*inputs(DwivediGraphTransformerEdgeLayer))
    with pytest.raises(ValueError, match="edge_attr is required"):
        make(DwivediGraphTransformerEdgeLayer)(*inputs(DwivediGraphTransformerLayer))
    with pytest.raises(ValueError, match="residual"):
        make(DwivediGraphTransformerEdgeLayer, edge_dim=DIM + 1)
    make(DwivediGraphTransformerEdgeLayer, edge_dim=DIM + 1, update_edges=False)


@pytest.mark.parametrize("scale", [1.0, 30.0], ids=["free", "limited"])
@pytest.mark.parametrize("edge_dim", [None, DIM])
def test_attention_equals_its_formula_edge_by_edge(edge_dim: int | None, scale: float) -> None:
    epsilon = 0.1
    attention = ClampedAttention(DIM, DIM, HEADS, True, edge_dim, epsilon).double()
    x, index, edge_attr = inputs(DwivediGraphTransformerEdgeLayer, scale=scale)
    C = DIM // HEADS
    q, k, v = (layer(x).reshape(-1, HEADS, C) for layer in (attention.query, attention.key, attention.value))
    expected = torch.zeros(NODES, HEADS, C, dtype=torch.float64)
    limited = 0
    for h in range(HEADS):
        for i in range(NODES):
            weighted, total = torch.zeros(C, dtype=torch.float64), epsilon
            for e, (sender, receiver) in enumerate(index.T.tolist()):
                if receiver == i:
                    score = q[i, h] * k[sender, h] / C**0.5
                    if attention.edge is not None:
                        score = score * attention.edge(edge_attr[e]).reshape(HEADS, C)[h]
                    limited += int(score.sum().abs() > 5)
                    weight = torch.exp(score.sum().clamp(-5, 5))
                    weighted, total = weighted + weight * v[sender, h], total + weight
            expected[i, h] = weighted / total
    pooled, score, weight = attention(x, index, edge_attr if edge_dim else None)
    torch.testing.assert_close(pooled, expected.flatten(1), rtol=1e-12, atol=1e-12)
    assert limited > 0 or scale == 1
    assert score.shape == (index.shape[1], DIM) and weight.shape == (index.shape[1], HEADS)
    assert not pooled[3:].any()


def test_scores_beyond_the_limit_have_no_gradient() -> None:
    score = torch.tensor([-9.0, 1.0, 9.0], requires_grad=True)
    weight = clamped_softmax(score, torch.tensor([0, 0, 0]), 1)
    torch.testing.assert_close(weight, torch.softmax(torch.tensor([-5.0, 1.0, 5.0]), 0))
    weight[1].backward()
    assert score.grad is not None and score.grad[[0, 2]].tolist() == [0, 0] and score.grad[1] > 0


@each_layer
def test_gradient_is_that_of_finite_differences(kind: type) -> None:
    layer = make(kind, layer_norm=True, use_bias=True).eval()
    x, index, *edge_attr = inputs(kind)
    assert torch.autograd.gradcheck(lambda x, *e: layer(x, index, *e), (x, *edge_attr))


@each_layer
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("nodes", "edges"),
    [(NODES, EDGES), (3, EDGES[:, :0]), (1, EDGES[:, :0]), (0, EDGES[:, :0]), (4, EDGES[:, :1])],
)
def test_hollow_graphs_are_finite_forward_and_backward(
    kind: type, training: bool, nodes: int, edges: Tensor
) -> None:
    layer = make(kind, layer_norm=True, use_bias=True).train(training)
    x, index, *edge_attr = inputs(kind, nodes, edges)
    found = outputs(layer(x, index, *edge_attr))
    sum(part.square().sum() for part in found).backward()
    gradients = [x.grad, *(p.grad for p in layer.parameters())]
    assert all(g is not None and g.isfinite().all() for g in gradients)
    assert all(part.isfinite().all() for part in (*found, *layer.buffers()))
    reached = torch.isin(torch.arange(nodes), edges[1])
    assert not layer.attention(x, index, *edge_attr)[0][~reached].any()


@each_layer
def test_order_of_nodes_and_edges_does_not_matter(kind: type) -> None:
    layer = make(kind)
    x, index, *edge_attr = inputs(kind)
    node, edge = torch.randperm(NODES), torch.randperm(index.shape[1])
    place = torch.argsort(node)  # where each node went
    expected = outputs(layer(x, index, *edge_attr))
    found = outputs(layer(x[node], place[index[:, edge]], *(e[edge] for e in edge_attr)))
    for part, before, order in zip(found, expected, (node, edge), strict=False):
        torch.testing.assert_close(part, before[order], rtol=1e-12, atol=1e-12)


@each_layer
def test_a_batch_equals_its_graphs_one_by_one(kind: type) -> None:
    layer = make(kind, layer_norm=True).eval()
    graphs = [inputs(kind), inputs(kind, 3, EDGES[:, :0]), inputs(kind, 4, EDGES[:, 1:4])]
    expected = [outputs(layer(*graph)) for graph in graphs]
    offsets = [0, NODES, NODES + 3]
    index = torch.cat([graph[1] + offset for graph, offset in zip(graphs, offsets, strict=True)], 1)
    x, *edge_attr = (torch.cat([graph[i] for graph in graphs]) for i in (0, 2)[: len(graphs[0]) - 1])
    for part, parts in zip(outputs(layer(x, index, *edge_attr)), zip(*expected, strict=True), strict=True):
        torch.testing.assert_close(part, torch.cat(parts), rtol=1e-12, atol=1e-12)


@each_layer
def test_pairs_of_senders_and_receivers(kind: type) -> None:
    layer = make(kind, layer_norm=True).eval()
    x, index, *edge_attr = inputs(kind)
    both = outputs(layer((x, x), index, *edge_attr))
    torch.testing.assert_close(both, outputs(layer(x, index, *edge_attr)))
    # Seen as one graph of senders and receivers, the receivers are the same.
    receivers = torch.randn(3, DIM, dtype=torch.float64)
    index = torch.stack((index[0], index[1] % 3))
    found = outputs(layer((x, receivers), index, *edge_attr))
    offset = torch.tensor([[0], [NODES]])
    whole = outputs(layer(torch.cat((x, receivers)), index + offset, *edge_attr))
    torch.testing.assert_close((found[0], *found[1:]), (whole[0][NODES:], *whole[1:]))


@each_layer
def test_pairs_of_different_widths_and_attention_on_request(kind: type) -> None:
    layer = kind((4, DIM), DIM, HEADS).double()
    x, index, *edge_attr = inputs(kind)
    pair = torch.randn(NODES, 4, dtype=torch.float64), x
    *found, weight = layer(pair, index, *edge_attr, return_attention=True)
    torch.testing.assert_close(tuple(found), outputs(layer(pair, index, *edge_attr)))
    total = torch.zeros(NODES, HEADS, dtype=torch.float64).index_add(0, index[1], weight)
    torch.testing.assert_close(total[:3], torch.ones(3, HEADS).double(), rtol=0, atol=1e-3)


@each_layer
def test_dropout_only_in_training_and_from_the_generator(kind: type) -> None:
    layer = make(kind, dropout=0.5, batch_norm=False)
    given = inputs(kind)
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(outputs(layer(*given)))
    for first, again, other in zip(*runs, strict=True):
        assert first.equal(again) and not first.equal(other)
    layer.eval()
    assert outputs(layer(*given))[0].equal(outputs(layer(*given))[0])


@each_layer
def test_half_precision(kind: type) -> None:
    layer = make(kind, layer_norm=True).float()
    given = [part.detach().float() if part.is_floating_point() else part for part in inputs(kind)]
    expected = outputs(layer(*given))
    with torch.autocast("cpu", torch.bfloat16):
        found = outputs(layer(*given))
    torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1, check_dtype=False)


def test_examples_of_the_docstrings() -> None:
    result = doctest.testmod(graph_transformer)
    assert result.attempted and not result.failed
