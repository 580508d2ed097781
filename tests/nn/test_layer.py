"""GraphTransformerLayer: its two formulas, lonely receivers, export."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm

from tests.nn.graphs import evaluated, ragged
from trajpred.nn import EdgeBias, GraphAttention, GraphTransformerLayer, mlp

DIM, HEADS = 32, 4
SQUARE = ((3, 3), (1, 1), (5, 5))


def layer_of(norm: Literal["post", "pre"], **dropout: float) -> GraphTransformerLayer:
    torch.manual_seed(2)
    layer = GraphTransformerLayer(GraphAttention(DIM, HEADS), DIM, norm=norm, **dropout)
    for parameter in layer.parameters():  # norms that start as the identity would hide a norm left out
        nn.init.normal_(parameter, std=0.3)
    return layer.eval()


def feed_forward(layer: GraphTransformerLayer, x: Tensor) -> Tensor:
    first, last = layer.feed_forward[0], layer.feed_forward[-1]
    return gelu(x @ first.weight.T + first.bias) @ last.weight.T + last.bias


def ln(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    return layer_norm(x, (DIM,), norm.weight, norm.bias)


@pytest.mark.parametrize("bipartite", [False, True])
def test_post_norm_formula(bipartite: bool) -> None:
    layer, relation = layer_of("post"), ragged(SQUARE, heads=HEADS)[0]
    x, z = torch.randn(9, DIM), torch.randn(9, DIM) if bipartite else None
    heard = ln(layer.norm1, x + layer.attention(x, x if z is None else z, relation))
    expected = ln(layer.norm2, heard + feed_forward(layer, heard))
    torch.testing.assert_close(layer(x, relation, z), expected)


@pytest.mark.parametrize("bipartite", [False, True])
def test_pre_norm_formula(bipartite: bool) -> None:
    layer, relation = layer_of("pre"), ragged(SQUARE, heads=HEADS)[0]
    x, z = torch.randn(9, DIM), torch.randn(9, DIM) if bipartite else None
    normed = ln(layer.norm1, x)
    heard = x + layer.attention(normed, normed if z is None else z, relation)
    torch.testing.assert_close(layer(x, relation, z), heard + feed_forward(layer, ln(layer.norm2, heard)))


@pytest.mark.parametrize("evaluation", ["edges", "dense", "padded"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_receiver_that_hears_nobody_keeps_its_own_features(
    norm: Literal["post", "pre"], evaluation: str
) -> None:
    layer, graph = layer_of(norm), ragged(SQUARE, share=0.0, heads=HEADS)
    x = torch.randn(9, DIM, requires_grad=True)
    own = ln(layer.norm1, x) if norm == "post" else x
    out = own + feed_forward(layer, own if norm == "post" else ln(layer.norm2, own))
    expected = ln(layer.norm2, out) if norm == "post" else out
    found = layer(x, evaluated(graph, evaluation))
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all() and (x.grad != 0).any()


def test_dropout_is_on_both_branches() -> None:
    layer, relation = layer_of("pre", dropout=0.999999).train(), ragged(SQUARE, heads=HEADS)[0]
    x = torch.randn(9, DIM)
    torch.testing.assert_close(layer(x, relation), x)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_drop_path_leaves_out_a_branch_of_some_receivers(norm: Literal["post", "pre"]) -> None:
    """Each receiver is one of four: with or without either branch, which count double where they stay."""
    relation, x = ragged(((40, 40),), heads=HEADS)[0], torch.randn(40, DIM)
    plain, layer = layer_of(norm), layer_of(norm, drop_path=0.5)
    torch.testing.assert_close(layer(x, relation), plain(x, relation))  # nothing is left out in evaluation
    found, same, counts = layer.train()(x, relation), [], []
    for heard in (0, 2):
        for fed in (0, 2):
            if norm == "post":
                one = ln(plain.norm1, x + heard * plain.attention(x, x, relation))
                expected = ln(plain.norm2, one + fed * feed_forward(plain, one))
            else:
                normed = ln(plain.norm1, x)
                one = x + heard * plain.attention(normed, normed, relation)
                expected = one + fed * feed_forward(plain, ln(plain.norm2, one))
            same.append(torch.isclose(found, expected, atol=1e-4).all(1))
            counts.append(int(same[-1].sum()))
    assert torch.stack(same).any(0).all() and min(counts) > 2, counts


def test_edge_bias_formula() -> None:
    bias = EdgeBias(5, HEADS, hidden=7)
    first, last = bias.net[0], bias.net[2]
    x = torch.randn(11, 5)
    assert bias(x).shape == (11, HEADS)
    torch.testing.assert_close(bias(x), gelu(x @ first.weight.T + first.bias) @ last.weight.T)


@pytest.mark.parametrize("norm", [False, True])
def test_mlp_ends_in_a_linear_layer(norm: bool) -> None:
    kinds = [type(layer) for layer in mlp(4, 5, 6, 7, norm=norm)]
    between = [nn.LayerNorm, nn.GELU] if norm else [nn.GELU]
    assert kinds == [nn.Linear, *between, nn.Linear, *between, nn.Linear]


def test_the_dense_layer_exports() -> None:
    layer, graph = layer_of("post"), ragged(SQUARE, heads=HEADS)

    class Exported(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor, bias: Tensor) -> Tensor:
            edges = graph[0]
            made = type(edges)(edges.index, bias, edges.num_senders, edges.num_receivers, edges.poses)
            return self.layer(x, evaluated((made, *graph[1:]), "padded"))

    module, inputs = Exported(), (torch.randn(9, DIM), graph[0].bias)
    exported = torch.export.export(module, inputs).module()
    torch.testing.assert_close(exported(*inputs), module(*inputs))


@pytest.mark.slow
@pytest.mark.parametrize("evaluation", ["edges", "dense", "padded"])
def test_the_default_operator_compiles(evaluation: str) -> None:
    """Compiled equals eager, values and gradients, for other sizes of graph too."""
    layer = layer_of("post")
    compiled = torch.compile(layer, dynamic=True)
    for adjacency in (SQUARE, SQUARE[:2]):
        graph = ragged(adjacency, heads=HEADS)
        relation = evaluated(graph, evaluation)
        x = torch.randn(relation.reached.shape[0], DIM, requires_grad=True)
        results = [f(x, relation) for f in (layer, compiled)]
        gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in results]
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)
