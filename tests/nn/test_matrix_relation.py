"""A relation as matrices is held equal to flattened edges and to a plain loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.nn.graphs import CHANNELS, HEADS, evaluated, loop_attend, pairs, ragged
from trajpred.nn import EdgeRelation, GraphAttention, MatrixRelation


def matrices(edges: EdgeRelation) -> tuple[MatrixRelation, Tensor]:
    """The same relation, and which pairs are edges ``[R, S]``; the others have a bias too."""
    sender, receiver = edges.index
    bias = torch.randn(HEADS, edges.num_receivers, edges.num_senders)
    bias[:, receiver, sender] = edges.bias.T
    edge = torch.zeros(edges.num_receivers, edges.num_senders, dtype=torch.bool)
    edge[receiver, sender] = True
    return MatrixRelation.of(bias, edge, edges.poses), edge


def inputs(edges: EdgeRelation, times: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    R, S = edges.num_receivers * times, edges.num_senders
    return torch.randn(R, HEADS, CHANNELS), torch.randn(S, HEADS, CHANNELS), torch.randn(S, HEADS, 3)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("scene", [(5, 4), (1, 1), (9, 2)])
def test_equals_a_loop(scene: tuple[int, int], share: float) -> None:
    edges = ragged((scene,), share)[0]
    relation, edge = matrices(edges)
    reached = edge.any(1)
    assert torch.equal(relation.reached, edges.reached) and torch.equal(relation.reached[:, 0], reached)
    query, key, value = inputs(edges)
    found, expected = (
        relation.attend(query, key, value),
        loop_attend(pairs(edges.index), edges.bias, query, key, value),
    )
    assert found.isfinite().all()
    torch.testing.assert_close(found[reached], expected[reached], rtol=0, atol=1e-5)
    weight = relation.weights(query, key).unflatten(0, edge.shape)[edge]
    torch.testing.assert_close(weight, edges.weights(query, key), rtol=0, atol=1e-5)


@pytest.mark.parametrize("evaluation", ["edges", "dense"])
def test_receivers_repeated(evaluation: str) -> None:
    graph = ragged(((6, 4),), 0.4)
    relation, edge = matrices(graph[0])
    found = relation.repeat_receivers(2).repeat_receivers(3)
    expected = evaluated(graph, evaluation).repeat_receivers(2).repeat_receivers(3)
    query, key, value = inputs(graph[0], 6)
    reached = edge.any(1).repeat_interleave(6)
    assert torch.equal(found.reached[:, 0], reached)
    torch.testing.assert_close(
        found.attend(query, key, value)[reached],
        expected.attend(query, key, value)[reached],
        rtol=0,
        atol=1e-5,
    )
    assert found.poses is not None and expected.poses is not None
    assert torch.equal(found.poses[1].position, expected.poses[1].position)


def test_attention_with_poses_is_the_same() -> None:
    edges = ragged(((6, 4),), 0.3)[0]
    relation, _ = matrices(edges)
    attention = GraphAttention(HEADS * CHANNELS, HEADS)
    receiver, sender = torch.randn(4, HEADS * CHANNELS), torch.randn(6, HEADS * CHANNELS)
    found, expected = (attention(receiver, sender, how) for how in (relation, edges))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
