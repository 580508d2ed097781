"""GraphTransformerLayer: both formulas, dropped paths, receivers without edges, export."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm
from torch.testing import assert_close

from tests.nn.graphs import in_form, ragged
from trajpred.nn import GraphAttention, GraphTransformerLayer, Relation
from trajpred.nn.attention import DropPath

DIM, HEADS = 32, 4
SQUARE = ((3, 3), (1, 1), (5, 5))
Norm = Literal["post", "pre"]
each_norm = pytest.mark.parametrize("norm", ["post", "pre"])


def layer_of(norm: Norm, **rates: float) -> GraphTransformerLayer:
    torch.manual_seed(2)
    layer = GraphTransformerLayer(GraphAttention(DIM, HEADS), DIM, norm=norm, **rates)
    for parameter in layer.parameters():  # norms that start as the identity would hide a missing norm
        nn.init.normal_(parameter, std=0.3)
    return layer.eval()


def formula(
    layer: GraphTransformerLayer,
    x: Tensor,
    relation: Relation,
    z: Tensor | None = None,
    attended: float = 1,
    fed: float = 1,
) -> Tensor:
    """The two branches written out, each times a factor."""

    def ln(norm: nn.LayerNorm, x: Tensor) -> Tensor:
        return layer_norm(x, (DIM,), norm.weight, norm.bias)

    def feed_forward(x: Tensor) -> Tensor:
        first, last = layer.feed_forward[0], layer.feed_forward[-1]
        return gelu(x @ first.weight.T + first.bias) @ last.weight.T + last.bias

    if layer.pre:
        normed = ln(layer.norm1, x)
        x = x + attended * layer.attention(normed, normed if z is None else z, relation)
        return x + fed * feed_forward(ln(layer.norm2, x))
    x = ln(layer.norm1, x + attended * layer.attention(x, x if z is None else z, relation))
    return ln(layer.norm2, x + fed * feed_forward(x))


@each_norm
@pytest.mark.parametrize("bipartite", [False, True])
def test_formula(norm: Norm, bipartite: bool) -> None:
    layer, relation = layer_of(norm), ragged(SQUARE, heads=HEADS)[0]
    x, z = torch.randn(9, DIM), torch.randn(9, DIM) if bipartite else None
    assert_close(layer(x, relation, z), formula(layer, x, relation, z))


@each_norm
@pytest.mark.parametrize("form", ["edges", "dense", "padded"])
def test_a_receiver_without_edges_keeps_its_own_features(norm: Norm, form: str) -> None:
    layer, relation = layer_of(norm), in_form(ragged(SQUARE, share=0.0, heads=HEADS), form)
    x = torch.randn(9, DIM, requires_grad=True)
    found = layer(x, relation)
    assert_close(found, formula(layer, x, relation, attended=0))
    (gradient,) = torch.autograd.grad(found.square().sum(), x)
    assert gradient.isfinite().all() and gradient.any()


@each_norm
def test_dropped_paths_omit_branches_of_receivers(norm: Norm) -> None:
    """Each receiver is one of four: with or without either branch, which count double where they stay."""
    relation, x = ragged(((40, 40),), heads=HEADS)[0], torch.randn(40, DIM)
    layer = layer_of(norm, drop_path=0.5)
    assert_close(layer(x, relation), formula(layer, x, relation))  # no path is dropped in evaluation
    found = layer.train()(x, relation)
    branches = [formula(layer, x, relation, None, a, f) for a in (0, 2) for f in (0, 2)]
    same = torch.stack([torch.isclose(found, branch, atol=1e-4).all(1) for branch in branches])
    assert same.any(0).all() and same.sum(1).min() > 2
    x = torch.randn(9, DIM)
    assert_close(layer_of("pre", dropout=0.999999).train()(x, ragged(SQUARE, heads=HEADS)[0]), x)


def test_drop_path_drops_whole_samples_and_keeps_the_mean() -> None:
    x, drop = torch.ones(4000, 3, 2), DropPath(0.25)
    out = drop(x)
    assert ((out == 0).all((1, 2)) | (out == 1 / 0.75).all((1, 2))).all()
    assert out.mean() == pytest.approx(1, abs=0.05)
    assert torch.equal(drop.eval()(x), x) and drop.train()(x[:, :0]).shape == (4000, 0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["edges", "dense", "padded"])
def test_the_default_operator_compiles(form: str) -> None:
    """Compiled equals eager, values and gradients, for several sizes of graph."""
    layer = layer_of("post")
    compiled = torch.compile(layer, dynamic=True)
    for scenes in (SQUARE, SQUARE[:2]):
        relation = in_form(ragged(scenes, heads=HEADS), form)
        x = torch.randn(relation.reached.shape[0], DIM, requires_grad=True)
        results = [f(x, relation) for f in (layer, compiled)]
        gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in results]
        assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
        assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)
