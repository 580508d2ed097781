"""GraphAttention against its formula edge by edge, its symmetries; the layer around it, export."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm
from torch.testing import assert_close

from tests.nn.graphs import FORMS, RAGGED, in_form, loop_attend, ragged
from trajpred.data.geometry import POSE_SCALE, Pose, rotate
from trajpred.nn import Edges, GraphAttention, GraphTransformerLayer

DIM = 32
HEADS = 4
Setting = tuple[Edges, GraphAttention, Tensor, Tensor]


def setting(form: str, dtype: torch.dtype = torch.float64, share: float = 0.5) -> Setting:
    """A graph, an attention with weights of order one, receivers and senders."""
    graph = ragged(((6, 5),) if form == "pairs" else RAGGED, share, dtype, HEADS)
    attention = GraphAttention(DIM, HEADS).to(dtype)
    x = torch.randn(graph.receivers.num_nodes, DIM, dtype=dtype)
    z = torch.randn(graph.senders.num_nodes, DIM, dtype=dtype)
    return graph, attention, x, z


@pytest.mark.parametrize("form", FORMS)
def test_equals_its_formula_edge_by_edge(form: str) -> None:
    graph, attention, x, z = setting(form)
    index = graph.index
    bias = graph.bias
    sender, receiver = graph.poses
    q = attention.query(x).unflatten(-1, (HEADS, -1))
    k = attention.key(z).unflatten(-1, (HEADS, -1))
    v = attention.value(z).unflatten(-1, (HEADS, -1))
    expected = []
    for i in range(len(x)):
        # For one receiver, the pose of every sender in its frame is a plain value.
        here = index[1] == i
        place = rotate(sender.position - receiver.position[i], -receiver.heading[i]) / POSE_SCALE
        turn = sender.heading - receiver.heading[i]
        pose = torch.cat((place, turn.cos()[:, None], turn.sin()[:, None]), -1)
        value = torch.cat((v, pose[:, None].expand(-1, HEADS, -1)), -1)
        edges = index[:, here] * torch.tensor([[1], [0]])
        pooled = loop_attend(edges, bias[:, here], q[i : i + 1], k, value)
        # The columns of W_o: per head its values, then its poses.
        expected.append(pooled.flatten(1) @ attention.out.weight.T)
    out = attention(x.requires_grad_(), z, in_form(graph, form))
    assert_close(out, torch.cat(expected), rtol=0, atol=1e-9)
    for gradient in torch.autograd.grad(out.square().sum(), (x, *attention.parameters())):
        assert gradient.isfinite().all()
    reached = graph.reached[:, 0]
    assert not out[~reached].any()
    assert out[reached].abs().amax(1).all()


@pytest.mark.parametrize("form", FORMS[:3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_poses_and_softmax_stay_in_float32_under_autocast(form: str, dtype: torch.dtype) -> None:
    graph, attention, x, z = setting(form, torch.float32)
    # At 2 km bfloat16 cannot resolve less than 8 m.
    senders, receivers = graph.poses
    far_senders = Pose(senders.position + 2000.0, senders.heading)
    far_receivers = Pose(receivers.position + 2000.0, receivers.heading)
    far = replace(graph, poses=(far_senders, far_receivers))
    with torch.no_grad():
        attention.value.weight.zero_()
        attention.out.weight.copy_(torch.eye(DIM, attention.out.in_features).roll(DIM // HEADS, 1))
        expected = attention(x, z, in_form(far, form))
        with torch.autocast("cpu", dtype):
            half = replace(far, bias=graph.bias.to(dtype))
            out = attention(x, z, in_form(half, form))
    assert (expected.abs().amax(1) > 0.1).sum() > 3
    assert_close(out.float(), expected, rtol=0.02, atol=0.03)


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
    edges: Edges,
    z: Tensor | None = None,
    attended: float = 1,
    fed: float = 1,
) -> Tensor:
    """The two branches written out, each times a factor."""

    def ln(norm: nn.LayerNorm, x: Tensor) -> Tensor:
        return layer_norm(x, (DIM,), norm.weight, norm.bias)

    def feed_forward(x: Tensor) -> Tensor:
        first = layer.feed_forward[0]
        last = layer.feed_forward[-1]
        return gelu(x @ first.weight.T + first.bias) @ last.weight.T + last.bias

    if layer.pre:
        normed = ln(layer.norm1, x)
        x = x + attended * layer.attention(normed, normed if z is None else z, edges)
        return x + fed * feed_forward(ln(layer.norm2, x))
    x = ln(layer.norm1, x + attended * layer.attention(x, x if z is None else z, edges))
    return ln(layer.norm2, x + fed * feed_forward(x))


@each_norm
@pytest.mark.parametrize("bipartite", [False, True])
def test_formula(norm: Norm, bipartite: bool) -> None:
    layer = layer_of(norm)
    edges = ragged(SQUARE, heads=HEADS)
    x = torch.randn(9, DIM)
    z = torch.randn(9, DIM) if bipartite else None
    assert_close(layer(x, edges, z), formula(layer, x, edges, z))


@each_norm
def test_dropped_paths_omit_branches_of_receivers(norm: Norm) -> None:
    """Each receiver is one of four: with or without either branch, which count double where they stay."""
    edges = ragged(((40, 40),), heads=HEADS)
    x = torch.randn(40, DIM)
    layer = layer_of(norm, drop_path=0.5)
    assert_close(layer(x, edges), formula(layer, x, edges))  # no path is dropped in evaluation
    out = layer.train()(x, edges)
    factors = product((0, 2), repeat=2)
    branches = torch.stack([formula(layer, x, edges, attended=a, fed=f) for a, f in factors])
    same = torch.isclose(out, branches, atol=1e-4).all(2)
    assert same.any(0).all()
    assert same.sum(1).min() > 2
    x = torch.randn(9, DIM)
    assert_close(layer_of("pre", dropout=0.999999).train()(x, ragged(SQUARE, heads=HEADS)), x)
