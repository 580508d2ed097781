"""The receiver-tag contract: tags, own convolutions, refused inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.nn.published.operators import EDGES
from trajpred.nn import (
    CONTEXT,
    SOURCE,
    TARGET,
    MultiHeadAttentionConv,
    ReceiverTag,
    segment_softmax,
)
from trajpred.nn.published.any_to_any import AnyToAnyConvolution
from trajpred.nn.segment import REDUCE_TYPES, reduce_items

N = 7
NODE = 5
EDGE = 3
CONTEXT_WIDTH = 4
BATCH = torch.tensor([0, 0, 0, 1, 1, 3, 3])  # graph 2 is empty
BY_EDGE: dict[str, Any] = {"sender_edge_feature": "hidden_state"}
OVER_EDGES: dict[str, Any] = {"sender_node_feature": None, **BY_EDGE}


def make(**options: Any) -> MultiHeadAttentionConv:
    return MultiHeadAttentionConv(num_heads=2, per_head_channels=4, **options).eval()


def features() -> tuple[Tensor, Tensor, Tensor]:
    """Nodes, edges and contexts."""
    return torch.randn(N, NODE), torch.randn(EDGES.shape[1], EDGE), torch.randn(4, CONTEXT_WIDTH)


def test_tag_at_construction_or_call() -> None:
    assert (SOURCE, TARGET, CONTEXT) == (0, 1, 2)
    x, *_ = features()
    conv = make()
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
        make(receiver_tag="NOWHERE")


def test_context_is_a_node_with_an_edge_from_every_item() -> None:
    x, edge_attr, context = features()
    nodes = make()
    edges = make(**OVER_EDGES)
    star = torch.stack((torch.arange(N), BATCH))
    out = nodes((x, context), batch=BATCH, receiver_tag=CONTEXT)
    assert_close(out, nodes((x, context), star, receiver_tag=TARGET))
    assert not out[2].any()  # without items
    edge_batch = BATCH[EDGES[0]]
    star = torch.stack((torch.arange(len(edge_attr)), edge_batch))
    assert_close(
        edges((None, context), edge_attr=edge_attr, edge_batch=edge_batch, receiver_tag=CONTEXT),
        edges((None, context), star, edge_attr, receiver_tag=TARGET),
    )


def test_tensors_that_do_not_fit() -> None:
    x, edge_attr, context = features()
    edge_batch = torch.zeros(EDGES.shape[1], dtype=torch.int64)
    target = make(receiver_tag=TARGET)
    by_context = make(receiver_tag=CONTEXT)
    wrong: list[tuple[MultiHeadAttentionConv, tuple[Any, ...], dict[str, Any]]] = [
        (target, (x,), {}),
        (target, (x, EDGES), {"batch": BATCH}),
        (target, (x, EDGES, edge_attr), {}),
        (target, ((None, x), EDGES), {}),
        (make(receiver_tag=TARGET, **BY_EDGE), (x, EDGES), {}),
        (by_context, (x,), {"batch": BATCH}),
        (by_context, ((x, context),), {}),
        (by_context, ((x, context),), {"batch": BATCH, "edge_batch": edge_batch}),
    ]
    for conv, args, call in wrong:
        with pytest.raises(ValueError):
            conv(*args, **call)


def test_a_convolution_of_the_user() -> None:
    class SoftmaxSum(AnyToAnyConvolution):
        def convolve(self, *, sender_node_input, broadcast_from_sender_node, pool_to_receiver, **rest):  # type: ignore
            message = broadcast_from_sender_node(sender_node_input)
            with pytest.raises(ValueError, match="reduce_type"):
                pool_to_receiver(message, reduce_type="median")
            ops = rest["extra_receiver_ops"]
            largest = ops["reduce"](message, reduce_type="max")
            assert torch.equal(largest, pool_to_receiver(message, reduce_type="max"))
            return pool_to_receiver(ops["softmax"](message), reduce_type="sum")

    operations = {"softmax": segment_softmax, "reduce": reduce_items}
    conv = SoftmaxSum(receiver_tag=TARGET, extra_receiver_ops=operations)
    reached = torch.zeros(N, 1).index_fill(0, EDGES[1], 1.0)
    assert_close(conv(torch.randn(N, NODE), EDGES), reached.expand(-1, NODE))


@pytest.mark.parametrize("kind", REDUCE_TYPES)
def test_every_reduce_type(kind: str) -> None:
    value = torch.tensor([[1.0, 5.0], [-3.0, 2.0], [4.0, 4.0]])
    receiver = torch.tensor([0, 0, 2])
    out = reduce_items(value, receiver, 3, kind)
    name = kind.partition("_")[0]
    function = {"max": "amax", "min": "amin"}.get(name, name)
    assert_close(out[0], getattr(value[:2], function)(0))
    assert_close(out[2], value[2])
    limits = torch.finfo(torch.float32)
    empty = {"max": limits.min, "min": limits.max, "prod": 1.0}.get(kind, 0.0)
    assert (out[1] == empty).all()
    assert torch.equal(reduce_items(value, receiver, 3, f"{kind}|sum")[:, :2], out)
