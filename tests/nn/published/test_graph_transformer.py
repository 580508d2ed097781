"""The Graph Transformer layers beyond their vectors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from tests.nn.published.operators import EDGES
from trajpred.nn import DwivediGraphTransformerEdgeLayer, DwivediGraphTransformerLayer
from trajpred.nn.published.graph_transformer import clamped_softmax

DIM = 6
N = 6
E = EDGES.shape[1]
each_layer = pytest.mark.parametrize("kind", [DwivediGraphTransformerLayer, DwivediGraphTransformerEdgeLayer])


def outputs(layer: Any, x: Any, *, seed: int = 0, **options: Any) -> tuple[torch.Tensor, ...]:
    """Of a layer with or without an edge stream, on fixed edge features."""
    torch.manual_seed(seed)
    edge_features = (torch.linspace(-1, 1, E * DIM).reshape(E, DIM),)
    out = layer(x, EDGES, *(edge_features if hasattr(layer, "edges") else ()), **options)
    return out if isinstance(out, tuple) else (out,)


@each_layer
def test_errors(kind: type) -> None:
    for sizes, words in (((6, 8, 2), "residual"), (((8, 6), 8, 2), "residual")):
        with pytest.raises(ValueError, match=words):
            kind(*sizes)
    for heads in (0, 3):
        with pytest.raises(ValueError, match="num_heads"):
            kind(8, 8, heads)


def test_edge_features_need_an_edge_stream_and_it_needs_them() -> None:
    x = torch.randn(N, DIM)
    e = torch.randn(E, DIM)
    with pytest.raises(ValueError, match="no edge stream"):
        DwivediGraphTransformerLayer(DIM, DIM, 2)(x, EDGES, e)
    with pytest.raises(ValueError, match="edge_attr is required"):
        DwivediGraphTransformerEdgeLayer(DIM, DIM, 2)(x, EDGES)
    with pytest.raises(ValueError, match="residual"):
        DwivediGraphTransformerEdgeLayer(DIM, DIM, 2, edge_dim=DIM + 1)
    layer = DwivediGraphTransformerEdgeLayer(DIM, DIM, 2, edge_dim=3, update_edges=False)
    assert layer(x, EDGES, e[:, :3])[1].equal(e[:, :3])


def test_clamped_scores_have_no_gradient() -> None:
    score = torch.tensor([-9.0, 1.0, 9.0], requires_grad=True)
    weight = clamped_softmax(score, torch.tensor([0, 0, 0]), 1)
    assert_close(weight, torch.softmax(torch.tensor([-5.0, 1.0, 5.0]), 0))
    weight[1].backward()
    assert score.grad is not None
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


@each_layer
def test_dropout_applies_in_training_and_follows_the_seed(kind: type) -> None:
    layer = kind(DIM, DIM, 2, dropout=0.5, batch_norm=False)
    x = torch.randn(N, DIM)
    for first, again, other in zip(*(outputs(layer, x, seed=seed) for seed in (1, 1, 2)), strict=True):
        assert first.equal(again)
        assert not first.equal(other)
    layer.eval()
    assert outputs(layer, x, seed=1)[0].equal(outputs(layer, x, seed=2)[0])
