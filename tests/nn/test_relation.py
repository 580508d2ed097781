"""The ways to evaluate a relation are held equal to a plain loop over receivers, and to each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.nn.graphs import CHANNELS, HEADS, RAGGED, evaluated, loop_attend, padding, pairs, ragged
from trajpred.nn import EdgeRelation, GroupRelation, Relation

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
VALUES = 3
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
each_evaluation = pytest.mark.parametrize("evaluation", ["edges", "dense", "padded"])
each_batch = pytest.mark.parametrize(
    "scenes",
    [RAGGED, ((4, 4),), ((0, 3), (0, 2)), ((2, 0), (3, 2))],
    ids=["ragged", "one scene", "no senders anywhere", "a scene without receivers"],
)


def inputs(relation: EdgeRelation) -> tuple[Tensor, Tensor, Tensor]:
    def make(count: int, width: int) -> Tensor:
        return torch.randn(count, HEADS, width, dtype=relation.bias.dtype, requires_grad=True)

    S, R = relation.num_senders, relation.num_receivers
    return make(R, CHANNELS), make(S, CHANNELS), make(S, VALUES)


def values_and_gradients(out: Tensor, reached: Tensor, wanted: tuple[Tensor, ...]) -> list[Tensor]:
    """``out`` where reached, and the gradients of a fixed function of it."""
    out = torch.where(reached[..., None], out, 0.0)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    gradients = torch.autograd.grad((weight * out).sum(), wanted, allow_unused=True)
    return [out, *(torch.zeros_like(x) if g is None else g for g, x in zip(gradients, wanted, strict=True))]


@each_dtype
@each_evaluation
@each_batch
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_equals_a_loop_over_receivers(
    dtype: torch.dtype, evaluation: str, scenes: tuple[tuple[int, int], ...], share: float
) -> None:
    graph = ragged(scenes, share, dtype)
    edges = replace(graph[0], bias=graph[0].bias.requires_grad_())
    relation = evaluated((edges, *graph[1:]), evaluation)
    qkv = inputs(edges)
    wanted = (*qkv, edges.bias)
    incoming = torch.bincount(edges.index[1], minlength=edges.num_receivers)
    assert torch.equal(relation.reached[:, 0], incoming > 0)
    found = values_and_gradients(relation.attend(*qkv), relation.reached, wanted)
    expected = values_and_gradients(
        loop_attend(pairs(edges.index), edges.bias, *qkv), relation.reached, wanted
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=TOLERANCE[dtype])


@each_evaluation
def test_receivers_without_edges_stay_finite(evaluation: str) -> None:
    graph = ragged(share=0.3)
    assert not graph[0].reached.all()
    relation: Relation = evaluated(graph, evaluation)
    qkv = inputs(graph[0])
    relation.attend(*qkv).sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in qkv)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@each_evaluation
def test_half_precision_is_finite_and_near(evaluation: str, dtype: torch.dtype) -> None:
    graph = ragged(share=0.5)
    relation = evaluated(graph, evaluation)
    qkv = [x.detach() for x in inputs(graph[0])]
    expected = relation.attend(*qkv) * relation.reached[..., None]
    half = replace(relation, bias=relation.bias.to(dtype)) if evaluation == "edges" else relation
    found = half.attend(*(x.to(dtype) for x in qkv)) * relation.reached[..., None]
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.05)


@each_evaluation
def test_repeated_receivers_hear_the_same(evaluation: str) -> None:
    graph = ragged(share=0.5)
    relation = evaluated(graph, evaluation)
    repeated, times = relation.repeat_receivers(3), 3
    q, k, v = inputs(graph[0])
    query = torch.randn(len(q) * times, HEADS, CHANNELS)
    found = repeated.attend(query, k, v) * repeated.reached[..., None]
    for copy in range(times):  # every receiver's copies lie in a row
        expected = relation.attend(query[copy::times], k, v) * relation.reached[..., None]
        torch.testing.assert_close(found[copy::times], expected)
    assert repeated.poses is not None and relation.poses is not None
    expected = [pose.position.tolist() for pose in relation.poses]
    assert repeated.poses[0].position.tolist() == expected[0]
    assert repeated.poses[1].position.tolist() == [row for row in expected[1] for _ in range(times)]
    assert repeated.poses[1].heading[::times].equal(relation.poses[1].heading)


@each_evaluation
def test_copies_of_a_graph_do_not_hear_each_other(evaluation: str) -> None:
    graph, times = ragged(share=0.5), 3
    relation = evaluated(graph, evaluation)
    many = (graph[0].copies(times), *(nodes.copies(times) for nodes in graph[1:]))
    copied = evaluated(many, evaluation)
    q, k, v = (x.repeat_interleave(times, 0) + torch.randn(len(x) * times, 1, 1) for x in inputs(graph[0]))
    found = copied.attend(q, k, v) * copied.reached[..., None]
    for copy in range(times):  # copy c of node n is node n · times + c
        expected = relation.attend(*(x[copy::times] for x in (q, k, v))) * relation.reached[..., None]
        torch.testing.assert_close(found[copy::times], expected)
    assert copied.poses is not None and relation.poses is not None
    for ends, one in zip(copied.poses, relation.poses, strict=True):
        assert torch.equal(ends.heading, one.heading.repeat_interleave(times))
        assert torch.equal(ends.position[times - 1 :: times], one.position)


@each_evaluation
@pytest.mark.parametrize("times", [1, 3])
def test_weights_are_those_that_values_are_summed_with(evaluation: str, times: int) -> None:
    graph = ragged(share=0.5)
    relation, edges = (evaluated(graph, kind).repeat_receivers(times) for kind in (evaluation, "edges"))
    _, k, v = inputs(graph[0])
    q = torch.randn(edges.num_receivers, HEADS, CHANNELS)
    sender, receiver = edges.index
    weight = relation.weights(q, k)
    torch.testing.assert_close(weight, edges.weights(q, k))
    none = torch.zeros(edges.num_receivers, HEADS)
    torch.testing.assert_close(none.index_add(0, receiver, weight), edges.reached.expand_as(none).float())
    gathered = torch.zeros(len(q), HEADS, VALUES).index_add(0, receiver, weight[..., None] * v[sender])
    torch.testing.assert_close(gathered, relation.attend(q, k, v) * relation.reached[..., None])


def test_groups_are_complete_graphs() -> None:
    size, groups = 3, 4
    graph = ragged(((size, size),) * groups, share=1.0)
    edges = replace(graph[0], bias=torch.zeros_like(graph[0].bias))
    qkv = inputs(edges)
    torch.testing.assert_close(GroupRelation(size).attend(*qkv), edges.attend(*qkv), rtol=0, atol=1e-5)
    torch.testing.assert_close(GroupRelation(size).weights(*qkv[:2]), edges.weights(*qkv[:2]))


class TestPadding:
    SIZES = (3, 0, 5, 1)

    def test_pads_every_scene_by_itself(self) -> None:
        x = torch.arange(9.0)[:, None]
        padded = padding(list(self.SIZES)).pad(x, fill=-1)
        assert padded[..., 0].tolist() == [
            [0, 1, 2, -1, -1],
            [-1, -1, -1, -1, -1],
            [3, 4, 5, 6, 7],
            [8, -1, -1, -1, -1],
        ]

    def test_unpad_inverts_pad(self) -> None:
        x, place = torch.randn(9, 2, 3), padding(list(self.SIZES))
        assert torch.equal(place.unpad(place.pad(x)), x)

    @pytest.mark.parametrize("other", [(2, 1, 0, 4), (0, 0, 0, 0)])
    def test_beside_puts_the_other_nodes_behind(self, other: tuple[int, ...]) -> None:
        place, x = padding(list(self.SIZES)), torch.randn(9 + sum(other), 2)
        joint = place.beside(padding(list(other)))
        scenes = zip(x[:9].split(self.SIZES), x[9:].split(other), strict=True)
        found, expected = joint.pad(x), [torch.cat(nodes) for nodes in scenes]
        assert joint.size == max(map(len, expected)) and torch.equal(joint.unpad(found), x)
        for scene, nodes in zip(found, expected, strict=True):
            assert torch.equal(scene[: len(nodes)], nodes) and (scene[len(nodes) :] == 0).all()

    def test_repeat_keeps_copies_together(self) -> None:
        place, x = padding(list(self.SIZES)), torch.randn(9, 2)
        expected = place.pad(x).repeat_interleave(4, dim=1)
        assert torch.equal(place.repeat(4).pad(x.repeat_interleave(4, dim=0)), expected)

    def test_copies_are_scenes_of_their_own(self) -> None:
        place, x = padding(list(self.SIZES)), torch.randn(9, 2)
        copied = place.copies(3).pad(torch.stack((x, 2 * x, 3 * x), 1).flatten(0, 1))
        padded = place.pad(x)
        assert torch.equal(copied, torch.stack((padded, 2 * padded, 3 * padded), 1).flatten(0, 1))
