"""The stacked GAT encoder beyond its vectors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from trajpred.nn import GATEncoder, flatten_stars, star_edges

CHANNELS = 4
HEADS = 3
each_conv = pytest.mark.parametrize("conv", ["gat", "gatv2"])


def encoder(conv: str = "gatv2", **options: Any) -> GATEncoder:
    built = GATEncoder(CHANNELS, HEADS, 2, conv=conv, **options).double()  # type: ignore[arg-type]
    for parameter in built.parameters():  # biases and norms too
        torch.nn.init.normal_(parameter)
    return built


def stars() -> tuple[Tensor, Tensor, Tensor]:
    flat = flatten_stars(torch.tensor([8, 0, 2]))
    return torch.randn(len(flat.batch), CHANNELS).double(), flat.edge_index, flat.target_index


@each_conv
def test_targets_are_rows_of_all_nodes_and_attention_sums_to_one(conv: str) -> None:
    model = encoder(conv)
    x, index, target = stars()
    nodes, _ = model.encode(x, index)
    out, attention = model(x, index, target, return_attention=True)
    assert_close(out, model.out(nodes[target]))
    assert_close(out, model(x, index, target))
    assert len(attention) == 2
    for edges, weight in attention:
        total = torch.zeros(len(x), HEADS).double().index_add(0, edges[1], weight)
        assert_close(total, torch.ones_like(total))  # every node has a loop


@each_conv
def test_the_duplicate_loop_of_the_published_star_changes_nothing(conv: str) -> None:
    model = encoder(conv)
    x = torch.randn(9, CHANNELS).double()
    first = torch.zeros(1).long()
    duplicate = torch.cat((star_edges(), torch.zeros(2, 1).long()), 1)
    assert_close(model(x, duplicate, first), model(x, star_edges(), first))


@pytest.mark.parametrize("option", ["dropout", "attention_dropout"])
def test_each_dropout_applies_in_training_only(option: str) -> None:
    model = encoder(**{option: 0.5})
    graph = stars()
    assert not torch.equal(model(*graph), model(*graph))
    model.eval()
    assert torch.equal(model(*graph), model(*graph))
    for layer in model.layers:
        assert layer.conv.dropout == (0.5 if option == "attention_dropout" else 0.0)
        assert layer.dropout.p == (0.5 if option == "dropout" else 0.0)


def test_errors() -> None:
    with pytest.raises(ValueError, match="conv"):
        encoder("gcn")
    with pytest.raises(ValueError, match="share_weights"):
        encoder("gat", share_weights=True)
    x, index, target = stars()
    with pytest.raises(ValueError, match="channels"):
        encoder()(x[:, 1:], index, target)
    edges = torch.randn(index.shape[1], 2)
    for channels, e in ((0, edges), (2, None), (3, edges)):
        with pytest.raises(ValueError, match="edge_attr"):
            encoder(edge_channels=channels)(x, index, target, e)
