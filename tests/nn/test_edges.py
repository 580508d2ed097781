"""Every form of attention over edges against a plain loop, and published operators in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import jacobian
from torch.testing import assert_close

from tests.nn.graphs import CHANNELS, FORMS, HEADS, RAGGED, in_form, loop_attend, ragged
from trajpred.nn import EdgeAttention, Edges
from trajpred.nn.edge_attention import Operator

VALUES = 3
ONE_SCENE = ((6, 4),)
each_form = pytest.mark.parametrize("form", FORMS)


def inputs(edges: Edges, times: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    def make(count: int, width: int) -> Tensor:
        return torch.randn(count, HEADS, width, dtype=edges.bias.dtype, requires_grad=True)

    S = edges.senders.num_nodes
    R = edges.receivers.num_nodes * times
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
def test_attention_equals_a_loop(form: str, scenes: tuple[tuple[int, int], ...], share: float) -> None:
    if form == "pairs" and len(scenes) > 1:
        return  # all pairs are those of one scene
    graph = ragged(scenes, share, torch.float64)
    graph = replace(graph, bias=graph.bias.requires_grad_())
    edges = in_form(graph, form)
    qkv = inputs(graph)
    reached = torch.bincount(graph.index[1], minlength=graph.receivers.num_nodes)[:, None] > 0
    assert torch.equal(edges.reached, reached)
    raw = edges.attend(*qkv)
    for gradient in torch.autograd.grad(raw.sum(), qkv, retain_graph=True):
        assert gradient.isfinite().all()
    wanted = (*qkv, graph.bias)
    values = values_and_gradients(raw, reached, wanted)
    looped = loop_attend(graph.index, graph.bias, *qkv)
    expected = values_and_gradients(looped, reached, wanted)
    assert_close(values, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("form", FORMS[:3])
def test_nodes_in_any_order_of_scenes_attend_as_in_order(form: str) -> None:
    """Agents of all scenes come before lanes: the two kinds of a scene are not neighbours in a batch."""
    graph = ragged(((2, 5), (3, 1)))
    kinds = ragged(((1, 2), (2, 2))).senders.beside(ragged(((1, 2), (1, 1))).senders)
    assert not kinds.ordered
    ordered = torch.argsort(kinds.place)
    row_of = torch.argsort(ordered)
    shuffled = replace(graph, senders=kinds, index=torch.stack((ordered[graph.index[0]], graph.index[1])))
    q, k, v = inputs(graph)
    expected = in_form(graph, form).attend(q, k, v) * graph.reached[..., None]
    out = in_form(shuffled, form).attend(q, k[row_of], v[row_of]) * graph.reached[..., None]
    assert_close(out, expected)


@each_form
def test_repeated_receivers_share_their_edges(form: str) -> None:
    graph = ragged(ONE_SCENE if form == "pairs" else RAGGED)
    times = 6
    edges = in_form(graph, form)
    repeated = edges.repeat_receivers(2).repeat_receivers(3)
    query, k, v = inputs(graph, times)
    out = repeated.attend(query, k, v) * repeated.reached[..., None]
    for copy in range(times):  # the copies of a receiver are consecutive
        expected = edges.attend(query[copy::times], k, v) * edges.reached[..., None]
        assert_close(out[copy::times], expected)
        assert torch.equal(repeated.poses[1].position[copy::times], edges.poses[1].position)
    assert torch.equal(repeated.poses[0].position, edges.poses[0].position)
    assert torch.equal(repeated.poses[1].heading[::times], edges.poses[1].heading)


def test_nodes_within_groups_attend_to_all_of_their_group() -> None:
    q, k, v = torch.randn(3, 6, HEADS, CHANNELS)
    groups = Edges.within_groups(q, 3)
    everyone = {(j, i) for i in range(6) for j in range(6) if i // 3 == j // 3}
    assert set(map(tuple, groups.index.T.tolist())) == everyone
    expected = loop_attend(groups.index, torch.zeros(HEADS, groups.index.shape[1]), q, k, v)
    assert_close(groups.attend(q, k, v), expected)
    assert_close(replace(groups, group=0, dense=False).attend(q, k, v), expected)


def test_weights_are_those_that_values_are_summed_with() -> None:
    edges = ragged()
    q, k, v = inputs(edges)
    sender, receiver = edges.index
    weight = edges.weights(q, k)
    none = torch.zeros(len(q), HEADS)
    assert_close(none.index_add(0, receiver, weight), edges.reached.expand_as(none).float())
    summed = torch.zeros(len(q), HEADS, VALUES).index_add(0, receiver, weight[..., None] * v[sender])
    assert_close(summed, in_form(edges, "blocks").attend(q, k, v) * edges.reached[..., None])


each_operator = pytest.mark.parametrize("operator", get_args(Operator))


def example(operator: Operator) -> tuple[EdgeAttention, Tensor, Tensor, Edges]:
    edges = ragged()
    edges.features = torch.randn(edges.index.shape[1], 3)
    receiver = torch.randn(edges.receivers.num_nodes, 8)
    sender = torch.randn(edges.senders.num_nodes, 8)
    return EdgeAttention(operator, 8, heads=2, edge_channels=3), receiver, sender, edges


@each_operator
def test_a_receiver_reads_exactly_its_senders_and_the_features_of_its_edges(operator: Operator) -> None:
    attention, receiver, sender, edges = example(operator)
    j, i = edges.index
    number = torch.arange(edges.index.shape[1])
    count = torch.bincount(i, minlength=edges.receivers.num_nodes)
    assert (count == 0).any()
    assert (count > 1).any()

    def of_features(features: Tensor) -> Tensor:
        return attention(receiver, sender, replace(edges, features=features))

    changes = jacobian(lambda x: attention(receiver, x, edges), sender).abs().sum((1, 3)) > 0
    expected = torch.zeros_like(changes).index_put((i, j), torch.tensor(True))
    assert torch.equal(changes, expected)
    changes = jacobian(of_features, edges.features).abs().sum((1, 3)) > 0
    expected = torch.zeros_like(changes).index_put((i, number), torch.tensor(True))
    several = count > 1  # scores alone cannot change what comes from a single edge
    assert torch.equal(changes[several], expected[several])
    out = attention(receiver, sender, edges)
    assert (out[count == 0] == 0).all()
    assert (out[count > 0].abs().sum(1) > 0).all()


@each_operator
def test_weights_sum_to_one_over_the_edges_of_a_receiver(operator: Operator) -> None:
    attention, receiver, sender, edges = example(operator)
    weight = attention.weights(receiver, sender, edges)
    total = torch.zeros(len(receiver), 2).index_add(0, edges.index[1], weight)
    assert weight.shape == (edges.index.shape[1], 2)
    assert (weight >= 0).all()
    torch.testing.assert_close(total, edges.reached.float().expand(-1, 2), rtol=0, atol=1e-5)


@each_operator
def test_repeated_receivers_get_what_one_gets(operator: Operator) -> None:
    attention, receiver, sender, edges = example(operator)
    once = attention(receiver, sender, edges).repeat_interleave(3, 0)
    again = receiver.repeat_interleave(3, 0)
    torch.testing.assert_close(attention(again, sender, edges.repeat_receivers(3)), once)


@each_operator
def test_groups_do_not_mix(operator: Operator) -> None:
    attention = EdgeAttention(operator, 8, heads=2)
    x = torch.randn(6, 8)
    together = attention(x, x, Edges.within_groups(x, 3))
    alone = torch.cat([attention(group, group, Edges.within_groups(group, 3)) for group in x.split(3)])
    torch.testing.assert_close(together, alone)
