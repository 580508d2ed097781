"""Every form of a relation against a plain loop over receivers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.nn.graphs import CHANNELS, FORMS, HEADS, RAGGED, Graph, in_form, loop_attend, ragged
from trajpred.nn import DenseRelation, EdgeRelation

VALUES = 3
each_form = pytest.mark.parametrize("form", FORMS)


def inputs(relation: EdgeRelation, times: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    def make(count: int, width: int) -> Tensor:
        return torch.randn(count, HEADS, width, dtype=relation.bias.dtype, requires_grad=True)

    S = relation.num_senders
    R = relation.num_receivers * times
    return make(R, CHANNELS), make(S, CHANNELS), make(S, VALUES)


def values_and_gradients(out: Tensor, reached: Tensor, wanted: tuple[Tensor, ...]) -> list[Tensor]:
    """``out`` where reached, and the gradients of a fixed function of it."""
    out = torch.where(reached[..., None], out, 0.0)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    gradients = torch.autograd.grad((weight * out).sum(), wanted, allow_unused=True, materialize_grads=True)
    return [out, *gradients]


@each_form
@pytest.mark.parametrize(
    "scenes",
    [RAGGED, ((4, 4),), ((0, 3), (0, 2)), ((2, 0), (3, 2))],
    ids=["ragged", "one scene", "no senders", "a scene without receivers"],
)
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_values_and_gradients_equal_a_loop(
    form: str, scenes: tuple[tuple[int, int], ...], share: float
) -> None:
    graph = ragged(scenes, share, torch.float64)
    edges = replace(graph[0], bias=graph[0].bias.requires_grad_())
    relation = in_form((edges, *graph[1:]), form)
    qkv = inputs(edges)
    reached = torch.bincount(edges.index[1], minlength=edges.num_receivers)[:, None] > 0
    assert relation.reached is not None
    assert torch.equal(relation.reached, reached)
    if not edges.num_senders and form == "matrix":
        return  # the exported form always has senders
    raw = relation.attend(*qkv)
    for gradient in torch.autograd.grad(raw.sum(), qkv, retain_graph=True):
        assert gradient.isfinite().all()
    wanted = (*qkv, edges.bias)
    values = values_and_gradients(raw, reached, wanted)
    looped = loop_attend(edges.index, edges.bias, *qkv)
    expected = values_and_gradients(looped, reached, wanted)
    assert_close(values, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", FORMS[:3])
def test_half_precision_is_near(form: str, dtype: torch.dtype) -> None:
    graph = ragged()
    relation = in_form(graph, form)
    query, k, v = inputs(graph[0])
    expected = relation.attend(query, k, v) * relation.reached[..., None]
    half = replace(relation, bias=relation.bias.to(dtype)) if form == "edges" else relation
    out = half.attend(query.to(dtype), k.to(dtype), v.to(dtype)) * relation.reached[..., None]
    assert out.dtype == dtype
    assert_close(out.float(), expected, rtol=0, atol=0.05)


def scenes_of(form: str) -> Graph:
    return ragged(((6, 4),) if form == "matrix" else RAGGED)


@each_form
def test_repeated_receivers_share_their_edges(form: str) -> None:
    graph = scenes_of(form)
    times = 6
    relation = in_form(graph, form)
    repeated = relation.repeat_receivers(2).repeat_receivers(3)
    query, k, v = inputs(graph[0], times)
    out = repeated.attend(query, k, v) * repeated.reached[..., None]
    for copy in range(times):  # the copies of a receiver are consecutive
        expected = relation.attend(query[copy::times], k, v) * relation.reached[..., None]
        assert_close(out[copy::times], expected)
        assert torch.equal(repeated.poses[1].position[copy::times], relation.poses[1].position)
    assert torch.equal(repeated.poses[0].position, relation.poses[0].position)
    assert torch.equal(repeated.poses[1].heading[::times], relation.poses[1].heading)


@pytest.mark.parametrize("form", FORMS[:3])
def test_copies_of_a_graph_are_separate(form: str) -> None:
    graph = ragged()
    times = 3
    relation = in_form((graph[0], *graph[1:]), form)
    copied = in_form((graph[0].with_copies(times), *graph[1:]), form)
    copies = [inputs(graph[0]) for _ in range(times)]
    query, key, value = zip(*copies, strict=True)
    out = copied.attend(torch.cat(query, 1), torch.cat(key, 1), torch.cat(value, 1))
    expected = torch.cat([relation.attend(*qkv) for qkv in copies], 1)
    reached = relation.reached[:, 0]
    assert_close(out[reached], expected[reached])
    assert torch.equal(copied.reached, relation.reached.repeat_interleave(times, 0))


def test_weights_are_those_that_values_are_summed_with() -> None:
    graph = ragged()
    edges = graph[0]
    q, k, v = inputs(graph[0])
    sender, receiver = edges.index
    weight = edges.weights(q, k)
    assert torch.equal(weight, DenseRelation.of(*graph).weights(q, k))
    none = torch.zeros(len(q), HEADS)
    assert_close(none.index_add(0, receiver, weight), edges.reached.expand_as(none).float())
    summed = torch.zeros(len(q), HEADS, VALUES).index_add(0, receiver, weight[..., None] * v[sender])
    assert_close(summed, edges.attend(q, k, v) * edges.reached[..., None])


def test_a_bool_bias_is_rejected() -> None:
    with pytest.raises(ValueError, match="leave out edges"):
        EdgeRelation(torch.zeros(2, 3, dtype=torch.long), torch.ones(3, 2, dtype=torch.bool), 1, 1)
