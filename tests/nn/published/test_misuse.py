"""Options and inputs that an operator cannot use are a ValueError that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.nn.graphs import EDGES, NODES
from trajpred import nn
from trajpred.nn import TransformerConv

X = torch.randn(NODES, 4)
E = torch.randn(EDGES.shape[1], 3)
FIRST = torch.tensor([0])


def gat(**options: Any) -> nn.GATEncoder:
    return nn.GATEncoder(4, 3, 2, **options)


MISUSE: list[tuple[str, Callable[[], object]]] = [
    ("conv", lambda: gat(conv="gcn")),
    ("share_weights", lambda: gat(conv="gat", share_weights=True)),
    ("channels", lambda: gat()(X[:, 1:], EDGES, FIRST)),
    ("edge_attr", lambda: gat()(X, EDGES, FIRST, E)),
    ("edge_attr", lambda: gat(edge_channels=2)(X, EDGES, FIRST)),
    ("edge_attr", lambda: gat(edge_channels=2)(X, EDGES, FIRST, E)),
    ("self_loops", lambda: TransformerConv(4, 2, ein=1, add_self_loops=True)),
    ("skip_connection", lambda: TransformerConv(4, 3, heads=2, skip_connection=True)),
    ("skip_connection", lambda: TransformerConv(4, 2, heads=2, concat=False, skip_connection=True)),
    ("skip_connection", lambda: TransformerConv((4, 3), 4, skip_connection=True)),  # receivers have three
    ("loop", lambda: TransformerConv(4, 2, add_self_loops=True)(X, EDGES, E)),
    ("same nodes", lambda: TransformerConv(4, 2, add_self_loops=True)((X, X + 1), EDGES)),
    ("edge_attr", lambda: TransformerConv(4, 2, ein=3)(X, EDGES, None)),
    ("edge_attr", lambda: TransformerConv(4, 2, ein=3)(X, EDGES, E[:, :1])),
    ("edge_attr", lambda: TransformerConv(4, 2, ein=3)(X, EDGES, E[:-1])),
    ("no edge stream", lambda: nn.DwivediGraphTransformerLayer(4, 4, 2)(X, EDGES, E)),
    ("edge_attr is required", lambda: nn.DwivediGraphTransformerEdgeLayer(4, 4, 2)(X, EDGES)),
    ("residual", lambda: nn.DwivediGraphTransformerEdgeLayer(4, 4, 2, edge_dim=5)),
    ("at least 1", lambda: nn.laplacian_positional_encoding(EDGES, torch.zeros(NODES).long(), 0)),
    ("at least 1", lambda: nn.random_walk_positional_encoding(EDGES, torch.zeros(NODES).long(), 0)),
    ("num_attention_heads", lambda: nn.PaddedAttention(6, None, 4)),
    ("num_attention_heads", lambda: nn.PaddedAttention(6, None, 0)),
    ("num_attention_heads", lambda: nn.PaddedAttention(6, 2, 0)),
    ("divisible", lambda: nn.BiasedEncoderLayer(8, num_attention_heads=3)),
    ("hidden_size", lambda: nn.merge_tensors([None])),
    ("hidden_size", lambda: nn.merge_tensors([torch.randn(2, 3)], hidden_size=4)),
    ("num_neighbors", lambda: nn.star_edges(-1)),
    ("edge_indices", lambda: nn.flatten_edges([nn.star_edges()], torch.tensor([9, 9]))),
]


@pytest.mark.parametrize(("words", "call"), MISUSE)
def test_what_cannot_be_used_is_named(words: str, call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("name", ["mask", "key_mask", "attention_mask"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_masks_that_are_not_bool_are_rejected(name: str, dtype: torch.dtype) -> None:
    shape = (2, 5, 5) if name == "attention_mask" else (2, 5)
    with pytest.raises(ValueError, match=f"^{name} must be bool"):
        nn.PaddedAttention(8)(torch.randn(2, 5, 8), **{name: torch.ones(shape, dtype=dtype)})
