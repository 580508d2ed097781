"""Transformer-M's biases beyond their vectors: masks, tables, gradients, node encoding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from tests.nn.published.random_graphs import TYPES, random_graph
from trajpred.nn import StructuralBias
from trajpred.nn.published.structural_bias import UNREACHABLE, EdgeBias2D, ShortestPathBias
from trajpred.nn.segment import LOWEST

HEADS = 2
K = 6
SMALL: dict[str, Any] = {
    "num_edges": TYPES,
    "num_spatial": 8,
    "num_edge_dis": 5,
    "num_3d_bias_kernel": K,
}
each_edge_type = pytest.mark.parametrize("edge_type", ["multi_hop", "single"])


def test_errors() -> None:
    values = {"edge_type": "both", "max_spd": 0, "multi_hop_max_dist": 0, "num_spatial": 2}
    for name, value in values.items():
        with pytest.raises(ValueError, match="multi_hop" if name == "edge_type" else name):
            StructuralBias(HEADS, **(SMALL | {name: value}))
    with pytest.raises(ValueError, match="num_edge_dis"):
        StructuralBias(HEADS, **(SMALL | {"multi_hop_max_dist": 6}))
    with pytest.raises(ValueError, match="direct"):
        EdgeBias2D(HEADS, TYPES, "single")(torch.zeros(1, 2, 2).long(), torch.zeros(1, 2, 2, 5, 1).long())


def test_far_hop_counts_share_a_row() -> None:
    bias = ShortestPathBias(HEADS, num_spatial=5)
    hops = torch.tensor([[[-1, 0, 1, 2, 3, 509, UNREACHABLE]]])
    assert_close(bias(hops)[0, :, 0].T, bias.table.weight[[0, 1, 2, 3, 3, 3, 4]])


@each_edge_type
def test_pairs_without_edges_have_no_edge_bias_and_no_gradient(edge_type: Any) -> None:
    bias = EdgeBias2D(HEADS, TYPES, edge_type)
    _, structure = random_graph([5, 3], edge_type=edge_type)
    out = bias(structure.hops, structure.edges)
    none = (structure.edges == 0).all(-1).all(-1)
    assert none.any()
    assert not out.permute(0, 2, 3, 1)[none].any()
    assert out.any()
    out.square().sum().backward()
    assert bias.table.weight.grad is not None
    assert not bias.table.weight.grad[0].any()
    assert bias.table.weight.grad[1:].any()


def test_max_spd_masks_far_pairs_but_never_the_token() -> None:
    mask, structure = random_graph([6])
    for max_spd, far in (
        (2, structure.hops >= 2),
        (None, structure.hops < 0),
        (511, structure.hops < 0),
    ):
        hidden = StructuralBias(HEADS, **SMALL, max_spd=max_spd)(mask, structure) == LOWEST
        assert (hidden[..., 1:, 1:] == far[:, None]).all()
        assert not hidden[..., 0].any()
        assert not hidden[..., 0, :].any()
    assert StructuralBias(HEADS, **SMALL).half()(mask, structure).dtype == torch.float32
