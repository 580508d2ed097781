"""Published operators as the attention of a layer: what each receiver reads, groups."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from tests.nn.graphs import ragged
from trajpred.nn import EdgeAttention, Edges
from trajpred.nn.edge_attention import Operator

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
