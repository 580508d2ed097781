"""TransformerConv beyond its vectors and the properties of all operators."""

from __future__ import annotations

import pytest
import torch

from tests.nn.graphs import EDGES
from trajpred.nn import TransformerConv

N = 6
E = EDGES.shape[1]


def test_errors() -> None:
    for options, words in (
        ({"in_": 4, "out": 2, "ein": 1, "add_self_loops": True}, "self_loops"),
        ({"in_": 4, "out": 3, "heads": 2, "skip_connection": True}, "skip_connection"),
        ({"in_": 4, "out": 2, "heads": 2, "concat": False, "skip_connection": True}, "skip_connection"),
        ({"in_": (4, 3), "out": 4, "skip_connection": True}, "skip_connection"),  # receivers have three
    ):
        with pytest.raises(ValueError, match=words):
            TransformerConv(**options)  # type: ignore[arg-type]
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
