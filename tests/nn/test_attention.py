"""GraphAttention against its formula written out edge by edge, and its symmetries."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.nn import graphs
from tests.nn.graphs import RAGGED, loop_attend, padding, pairs, poses, ragged
from trajpred.geometry import Pose, rotate
from trajpred.nn import DenseRelation, EdgeRelation, GraphAttention
from trajpred.nn.attention import POSE_SCALE

DIM, HEADS = 32, 4
each_evaluation = pytest.mark.parametrize("evaluation", ["edges", "dense", "padded"])
Graph = tuple[EdgeRelation, GraphAttention, Tensor, Tensor]


@pytest.fixture
def graph() -> Graph:
    """A ragged relation, an attention with weights of order one, receivers and senders."""
    relation = ragged(share=0.5, dtype=torch.float64, heads=HEADS)[0]
    attention = GraphAttention(DIM, HEADS).double()
    x, z = (torch.randn(n, DIM, dtype=torch.float64) for n in (relation.num_receivers, relation.num_senders))
    return relation, attention, x, z


def evaluated(relation: EdgeRelation, evaluation: str) -> EdgeRelation | DenseRelation:
    nodes = (padding([scene[i] for scene in RAGGED]) for i in range(2))
    return graphs.evaluated((relation, *nodes), evaluation)


@each_evaluation
def test_equals_its_formula_edge_by_edge(graph: Graph, evaluation: str) -> None:
    relation, attention, x, z = graph
    q, k, v = (
        layer(y).unflatten(-1, (HEADS, -1))
        for layer, y in ((attention.query, x), (attention.key, z), (attention.value, z))
    )
    assert relation.poses is not None
    expected = []
    for i in range(len(x)):
        # For this one receiver every sender's pose is known in its frame, so it can be a plain value.
        edges = [(e, (j, r)) for e, (j, r) in enumerate(pairs(relation.index)) if r == i]
        sender, frame = relation.poses[0], Pose(relation.poses[1].position[i], relation.poses[1].heading[i])
        place = rotate(sender.position - frame.position, -frame.heading) / POSE_SCALE
        turn = sender.heading - frame.heading
        seen = torch.cat((place, turn.cos()[:, None], turn.sin()[:, None]), -1)
        value = torch.cat((v, seen[:, None].expand(-1, HEADS, -1)), -1)
        chosen = relation.bias[[e for e, _ in edges]]
        pooled = loop_attend([(j, 0) for _, (j, _) in edges], chosen, q[i : i + 1], k, value)
        # The columns of W_o: per head its values, then its poses.
        expected.append(pooled.flatten(1) @ attention.out.weight.T)
    found = attention(x, z, evaluated(relation, evaluation))
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-9)


@each_evaluation
def test_weights_sum_to_one_over_the_edges_of_a_receiver(graph: Graph, evaluation: str) -> None:
    relation, attention, x, z = graph
    weights = attention.weights(x, z, evaluated(relation, evaluation))
    torch.testing.assert_close(weights, attention.weights(x, z, relation), rtol=0, atol=1e-9)
    total = torch.zeros(len(x), HEADS, dtype=torch.float64).index_add(0, relation.index[1], weights)
    torch.testing.assert_close(total, relation.reached.double().expand_as(total))


@each_evaluation
def test_moving_and_turning_everything_changes_nothing(graph: Graph, evaluation: str) -> None:
    relation, attention, x, z = graph
    assert relation.poses is not None
    shift, angle = torch.tensor([1e3, -2e3], dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)
    moved = [Pose(rotate(p.position, angle) + shift, p.heading + angle) for p in relation.poses]
    before, after, bent = (
        attention(x, z, evaluated(replace(relation, poses=ends), evaluation))
        for ends in (relation.poses, tuple(moved), (moved[0], relation.poses[1]))
    )
    torch.testing.assert_close(after, before, rtol=0, atol=1e-9)
    assert (bent - before).abs().max() > 1e-2


def test_without_poses_places_play_no_part(graph: Graph) -> None:
    relation, _, x, z = graph
    attention = GraphAttention(DIM, HEADS, poses=False).double()
    elsewhere = (poses(len(z), torch.float64), poses(len(x), torch.float64))
    before, after, none = (
        attention(x, z, replace(relation, poses=p)) for p in (relation.poses, elsewhere, None)
    )
    assert torch.equal(before, after) and torch.equal(before, none)


@each_evaluation
def test_receivers_without_edges_get_exactly_zero(graph: Graph, evaluation: str) -> None:
    relation, attention, x, z = graph
    heard = torch.zeros(len(x), dtype=torch.bool)
    heard[relation.index[1]] = True
    out = attention(x, z, evaluated(relation, evaluation))
    assert 0 < heard.sum() < len(x)
    assert (out[~heard] == 0).all() and (out[heard].abs().amax(1) > 0).all()


def test_order_of_nodes_and_edges_does_not_matter(graph: Graph) -> None:
    relation, attention, x, z = graph
    assert relation.poses is not None
    new_x, new_z = torch.randperm(len(x)), torch.randperm(len(z))
    order = torch.randperm(relation.index.shape[1])
    index = torch.stack((new_z.argsort()[relation.index[0]], new_x.argsort()[relation.index[1]]))
    ends = tuple(
        Pose(p.position[n], p.heading[n]) for p, n in zip(relation.poses, (new_z, new_x), strict=True)
    )
    shuffled = replace(relation, index=index[:, order], bias=relation.bias[order], poses=ends)
    found = attention(x[new_x], z[new_z], shuffled)
    torch.testing.assert_close(found, attention(x, z, relation)[new_x], rtol=0, atol=1e-9)


@each_evaluation
def test_a_batch_equals_its_scenes_one_by_one(graph: Graph, evaluation: str) -> None:
    relation, attention, x, z = graph
    assert relation.poses is not None
    together = attention(x, z, evaluated(relation, evaluation))
    s = r = 0
    for senders, receivers in RAGGED:
        inside = (relation.index[1] >= r) & (relation.index[1] < r + receivers)
        here = [slice(s, s + senders), slice(r, r + receivers)]
        ends = tuple(Pose(p.position[h], p.heading[h]) for p, h in zip(relation.poses, here, strict=True))
        index = relation.index[:, inside] - torch.tensor([[s], [r]])
        alone = EdgeRelation(index, relation.bias[inside], senders, receivers, ends)
        torch.testing.assert_close(
            attention(x[here[1]], z[here[0]], alone), together[here[1]], rtol=0, atol=1e-9
        )
        s, r = s + senders, r + receivers


@each_evaluation
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_gradients_are_finite(graph: Graph, evaluation: str, share: float) -> None:
    _, attention, x, z = graph
    relation = ragged(share=share, dtype=torch.float64, heads=HEADS)[0]
    x.requires_grad_()
    z.requires_grad_()
    attention(x, z, evaluated(relation, evaluation)).sum().backward()
    gradients = [y.grad for y in (x, z, *attention.parameters())]
    assert all(g is not None and g.isfinite().all() for g in gradients)
    if share == 0:  # an attention that hears nobody teaches nothing
        assert all((g == 0).all() for g in gradients if g is not None)


def test_heads_must_divide_channels() -> None:
    with pytest.raises(ValueError, match="multiple of heads"):
        GraphAttention(30, 4)


@each_evaluation
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_poses_and_softmax_stay_in_float32_under_autocast(evaluation: str, dtype: torch.dtype) -> None:
    graph = ragged(share=0.5, heads=HEADS)
    attention, relation = GraphAttention(DIM, HEADS), graph[0]
    x, z = torch.randn(relation.num_receivers, DIM), torch.randn(relation.num_senders, DIM)
    # Two kilometres away bfloat16 tells nothing nearer apart than 8 m.
    assert relation.poses is not None
    far = tuple(Pose(p.position + 2000.0, p.heading) for p in relation.poses)
    with torch.no_grad():
        attention.value.weight.zero_()
        attention.out.weight.copy_(torch.eye(DIM, attention.out.in_features).roll(DIM // HEADS, 1))
        expected = attention(x, z, evaluated(replace(relation, poses=far), evaluation))
        with torch.autocast("cpu", dtype):
            half = replace(relation, bias=relation.bias.to(dtype), poses=far)
            found = attention(x, z, evaluated(half, evaluation))
    assert (expected.abs().amax(1) > 0.1).sum() > 3
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.03)
