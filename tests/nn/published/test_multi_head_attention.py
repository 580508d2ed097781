"""MultiHeadAttentionConv and the receiver-tag contract beyond their vectors."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from tests.nn.graphs import EDGES
from trajpred.nn import CONTEXT, SOURCE, TARGET, MultiHeadAttentionConv, ReceiverTag

N = 7
NODE = 5
EDGE = 3
WIDTHS = {"receiver_channels": NODE, "sender_node_channels": NODE, "sender_edge_channels": EDGE}


def make(**options: Any) -> MultiHeadAttentionConv:
    sizes = {"num_heads": 2, "per_head_channels": 4, "receiver_tag": "target"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # attention_activation with score_scaling
        return MultiHeadAttentionConv(**{**sizes, **WIDTHS, "sender_edge_feature": "edge", **options}).eval()


def with_weights(**options: Any) -> MultiHeadAttentionConv:
    """With random weights and biases."""
    conv = make(**options)
    for parameter in conv.parameters():
        nn.init.normal_(parameter, std=0.5)
    return conv


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(N, NODE), EDGES, torch.randn(EDGES.shape[1], EDGE)


def test_errors() -> None:
    wrong: list[dict[str, Any]] = [
        *({"num_heads": 0}, {"per_head_channels": -1}, {"edge_dropout": 1.5}, {"inputs_dropout": -0.1}),
        *({"activation": "unknown"}, {"kernel_initializer": "unknown"}, {"kernel_regularizer": "l3"}),
        *({"activation": 123}, {"kernel_initializer": 123}, {"kernel_regularizer": 123}),
        *({"kernel_initializer": {"class_name": "Zeros"}}, {"kernel_regularizer": {"l3": 1.0}}),
        {"sender_edge_channels": None},
        {"sender_node_feature": None, "sender_edge_feature": None},
    ]
    for options in wrong:
        with pytest.raises(ValueError):
            make(**options)
    with pytest.raises(ValueError, match="score_scaling"):
        make(score_scaling="unknown")
    with pytest.warns(UserWarning, match="score_scaling"):
        MultiHeadAttentionConv(num_heads=2, per_head_channels=4, attention_activation="tanh", **WIDTHS)


def test_penalty_is_that_of_every_kernel_and_no_bias() -> None:
    conv = with_weights(kernel_regularizer={"l2": 0.3}, score_scaling="trainable_elup1")
    kernels = [p for name, p in conv.named_parameters() if name.endswith(".weight")]
    assert_close(conv.penalty(), 0.3 * torch.stack([w.square().sum() for w in kernels]).sum())
    conv.penalty().backward()
    assert all(w.grad is not None and w.grad.any() for w in kernels)
    assert conv.query.bias.grad is None
    assert with_weights().penalty() == 0


def test_edge_dropout_is_per_edge_and_head() -> None:
    # One receiver, all values one: the sum over the edges of a head is that of its weights after dropout.
    E = 400
    H = 3
    p = 0.25
    options = {"edge_dropout": p, "activation": None, "use_bias": False, "sender_edge_feature": None}
    conv = make(**options, num_heads=H, per_head_channels=1, receiver_channels=1, sender_node_channels=1)
    nn.init.ones_(conv.value_node.weight)
    x = torch.ones(E, 1)
    index = torch.stack((torch.arange(E), torch.zeros(E, dtype=torch.int64)))
    out, attention = conv.train()((x, x[:1]), index, return_attention=True)
    assert_close(attention, torch.full((E, H), 1 / E))
    kept = out[0] * E * (1 - p)
    assert_close(kept, kept.round(), atol=1e-2, rtol=0)
    assert len(set(kept.round().tolist())) > 1  # heads drop different edges
    assert_close(kept.mean() / E, torch.tensor(1 - p), atol=0.1, rtol=0)
    assert_close(conv.eval()((x, x[:1]), index), torch.ones(1, H))


def test_inputs_dropout_applies_in_training_only() -> None:
    conv = with_weights(inputs_dropout=0.5, activation=None)
    graph = inputs()
    expected = conv(*graph)
    assert torch.equal(conv(*graph), expected)
    assert not torch.equal(conv(*graph, training=True), expected)
    assert not torch.equal(conv.train()(*graph), expected)
    assert torch.equal(conv(*graph, training=False), expected)


def test_receivers_without_items_get_the_activation_of_zero_or_of_the_bias() -> None:
    x, index, edge_attr = inputs()
    rest = [5, 6]
    assert not with_weights(activation=None)(x, index, edge_attr)[rest].any()
    conv = with_weights(activation="sigmoid", transform_values_after_pooling=True)
    expected = torch.sigmoid(conv.value_pooled.bias).expand(2, -1)
    assert_close(conv(x, index, edge_attr)[rest], expected)


def test_extra_dimensions_are_carried_along() -> None:
    conv = with_weights()
    x, index, edge_attr = inputs()
    x = torch.stack((x, -x), 1)
    edge_attr = torch.stack((edge_attr, 2 * edge_attr), 1)
    out = conv(x, index, edge_attr)
    for i in range(2):
        assert_close(out[:, i], conv(x[:, i], index, edge_attr[:, i]))


CONTEXT_WIDTH = 4
BATCH = torch.tensor([0, 0, 0, 1, 1, 3, 3])


def bare(**options: Any) -> MultiHeadAttentionConv:
    """Without a tag, of nodes alone."""
    return make(**{"receiver_tag": None, "sender_edge_feature": None} | options)


def test_tag_at_construction_or_call() -> None:
    x, *_ = inputs()
    conv = bare()
    with pytest.raises(ValueError, match="neither"):
        conv(x, EDGES)
    expected = conv(x, EDGES, receiver_tag=TARGET)
    for tag in (1, "TARGET", "target", ReceiverTag.TARGET):
        assert_close(conv(x, EDGES, receiver_tag=tag), expected)
    conv.receiver_tag = TARGET
    assert_close(conv(x, EDGES, receiver_tag="target"), expected)
    with pytest.raises(ValueError, match="differ"):
        conv(x, EDGES, receiver_tag=SOURCE)
    with pytest.raises(ValueError):
        bare(receiver_tag="NOWHERE")


def test_tensors_that_do_not_fit() -> None:
    x, _, edge_attr = inputs()
    context = torch.randn(4, CONTEXT_WIDTH)
    edge_batch = torch.zeros(EDGES.shape[1], dtype=torch.int64)
    target = bare(receiver_tag=TARGET)
    by_context = bare(receiver_tag=CONTEXT, receiver_channels=CONTEXT_WIDTH)
    wrong: list[tuple[MultiHeadAttentionConv, tuple[Any, ...], dict[str, Any]]] = [
        (target, (x,), {}),
        (target, (x, EDGES), {"batch": BATCH}),
        (target, (x, EDGES, edge_attr), {}),
        (target, ((None, x), EDGES), {}),
        (make(receiver_tag=TARGET), (x, EDGES), {}),
        (by_context, (x,), {"batch": BATCH}),
        (by_context, ((x, context),), {}),
        (by_context, ((x, context),), {"batch": BATCH, "edge_batch": edge_batch}),
    ]
    for conv, args, call in wrong:
        with pytest.raises(ValueError):
            conv(*args, **call)
