"""TransformerConv beyond its vectors and the properties of all operators."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from tests.nn.published.operators import EDGES
from trajpred.nn import TransformerConv, routing_block

N = 6
E = EDGES.shape[1]


def test_errors() -> None:
    for options, words in (
        ({"in_": 4, "out": 2, "ein": 1, "add_self_loops": True}, "self_loops"),
        ({"in_": 4, "out": 3, "heads": 2, "skip_connection": True}, "skip_connection"),
        (
            {"in_": 4, "out": 2, "heads": 2, "concat": False, "skip_connection": True},
            "skip_connection",
        ),
        (
            {"in_": (4, 3), "out": 4, "skip_connection": True},
            "skip_connection",
        ),  # receivers have three
    ):
        with pytest.raises(ValueError, match=words):
            TransformerConv(**options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="multiple"):
        routing_block(7, heads=2)
    x = torch.randn(N, 4)
    e = torch.randn(E, 3)
    loops = TransformerConv(4, 2, add_self_loops=True)
    with pytest.raises(ValueError, match="loop"):
        loops(x, EDGES, e)
    with pytest.raises(ValueError, match="same nodes"):
        loops((x, torch.randn(N, 4)), EDGES)
    for wrong in (None, e[:, :1], e[:-1]):
        with pytest.raises(ValueError, match="edge_attr"):
            TransformerConv(4, 2, ein=3)(x, EDGES, wrong)


def test_initialiser_fills_every_matrix_and_no_bias() -> None:
    init = lambda w: torch.nn.init.constant_(w, 7.0)  # noqa: E731
    conv = TransformerConv(4, 2, ein=1, heads=2, gating=True, ff_channels=3, init=init)
    assert all((p == (7.0 if p.ndim == 2 else 0.0)).all() for p in conv.parameters())


@pytest.mark.parametrize("bias_qkv", [True, False])
@pytest.mark.parametrize("edge_bias", [None, True, False])
def test_edge_bias_follows_that_of_the_nodes_unless_given(bias_qkv: bool, edge_bias: bool | None) -> None:
    conv = TransformerConv(4, 2, ein=1, bias_qkv=bias_qkv, edge_bias=edge_bias)
    assert (conv.query.bias is not None) == bias_qkv
    assert conv.edge is not None
    assert (conv.edge.bias is not None) == (bias_qkv if edge_bias is None else edge_bias)


def test_routing_block_is_attention_and_feed_forward_with_batch_norm() -> None:
    block = routing_block(4, heads=2, ff_channels=5).double()
    x = torch.randn(N, 4).double()
    h = block.norm1(block.attend(x, EDGES)[0] + x)
    assert_close(block(x, EDGES), block.norm2(h + block.feed_forward(h)))
    assert block.root is None
    assert block.add_self_loops


def test_attention_stays_in_float32_under_autocast() -> None:
    conv = TransformerConv(4, 2, heads=2)
    x = torch.randn(N, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert conv(x, EDGES, return_attention=True)[1].dtype == torch.float32
    assert conv.bfloat16()(x.bfloat16(), EDGES).dtype == torch.bfloat16
