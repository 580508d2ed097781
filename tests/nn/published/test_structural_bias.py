"""Each term of Transformer-M's bias against its formula, then their sum with token and masks."""

from __future__ import annotations

import doctest
import inspect
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from tests.nn.graphs import padding as padding_of
from tests.nn.published.test_shortest_path import random_edges
from trajpred.nn.published import structural_bias
from trajpred.nn.published.graph_structure import UNREACHABLE, GraphStructure
from trajpred.nn.published.structural_bias import (
    DistanceBias,
    EdgeBias2D,
    GaussianDistanceKernel,
    ShortestPathBias,
    StructuralBias,
    relative_positions,
)
from trajpred.nn.segment import LOWEST

HEADS, TYPES, K = 2, 4, 6
SIZES = [5, 3]
SMALL: dict[str, Any] = {"num_edges": TYPES, "num_spatial": 8, "num_edge_dis": 5, "num_3d_bias_kernel": K}


def graph(sizes: list[int] = SIZES, columns: int = 2, **options: Any) -> tuple[Tensor, GraphStructure]:
    edges, padding = random_edges(sizes, 0.3), padding_of(sizes)
    types = torch.randint(1, TYPES + 1, (edges.shape[1], columns))
    mask = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
    return mask, GraphStructure.of(edges, types, padding, **options)


def wide(module: nn.Module) -> Any:
    for parameter in module.parameters():  # biases of 0.02 would hide much
        nn.init.normal_(parameter)
    return module.double()


def test_doctests() -> None:
    assert doctest.testmod(structural_bias).failed == 0


def test_names_and_defaults_are_the_publication_s() -> None:
    defaults = {name: p.default for name, p in inspect.signature(StructuralBias).parameters.items()}
    assert defaults == {
        "num_heads": inspect.Parameter.empty,
        "num_edges": 1536,
        "num_spatial": 512,
        "num_edge_dis": 128,
        "edge_type": "multi_hop",
        "multi_hop_max_dist": 5,
        "num_3d_bias_kernel": 128,
        "mode": "2d+3d",
        "max_spd": None,
    }
    kernel = inspect.signature(GaussianDistanceKernel).parameters
    assert {name: p.default for name, p in kernel.items()} == {"K": 128, "edge_types": 1536}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"edge_type": "both"}, "multi_hop"),
        ({"mode": "4d"}, "2d"),
        ({"max_spd": 0}, "max_spd"),
        ({"multi_hop_max_dist": 0}, "multi_hop_max_dist"),
        ({"multi_hop_max_dist": 6}, "num_edge_dis"),
        ({"num_spatial": 2}, "num_spatial"),
    ],
)
def test_errors(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        StructuralBias(HEADS, **(SMALL | wrong))


def test_single_takes_direct_edges_only() -> None:
    with pytest.raises(ValueError, match="direct"):
        EdgeBias2D(HEADS, TYPES, "single")(torch.zeros(1, 2, 2).long(), torch.zeros(1, 2, 2, 5, 1).long())


def test_kernel_formula() -> None:
    kernel = wide(GaussianDistanceKernel(K, edge_types=5)).requires_grad_(False)
    distance, pair = torch.rand(2, 3, 3).double(), torch.randint(5, (2, 3, 3, 2))
    out = kernel(distance, pair)
    for place in torch.ones_like(distance).nonzero().tolist():
        a, b = pair[tuple(place)].tolist()
        gamma, beta = kernel.scale[a] + kernel.scale[b], kernel.offset[a] + kernel.offset[b]
        x = float(gamma * distance[tuple(place)] + beta)
        for k in range(K):
            std = abs(float(kernel.std[k])) + 0.01
            power = -0.5 * ((x - float(kernel.mean[k])) / std) ** 2
            expected = math.exp(power) / (math.sqrt(2 * 3.14159) * std)
            assert float(out[(*place, k)]) == pytest.approx(expected, rel=1e-9)


def test_before_training_the_kernel_scale_is_two() -> None:
    kernel = GaussianDistanceKernel(K, 3)
    pair = torch.zeros(1, 1, 1, 2).long()
    assert (kernel.scale[pair].sum(-1) == 2).all() and not kernel.offset.any()
    assert (kernel.mean >= 0).all() and (kernel.mean <= 3).all() and kernel.std.std() > 0


def test_the_kernel_keeps_float32_under_half_precision() -> None:
    kernel, pair = GaussianDistanceKernel(K, 3), torch.zeros(1, 4, 4, 2).long()
    distance = torch.rand(1, 4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(kernel(distance, pair), kernel(distance, pair).float())
    near = kernel(distance.half().float(), pair)
    torch.testing.assert_close(kernel.half()(distance.half(), pair).float(), near, rtol=1e-2, atol=1e-2)


def test_relative_positions() -> None:
    positions = torch.randn(2, 4, 3, requires_grad=True)
    distance, direction = relative_positions(positions)
    delta = positions[1, 2] - positions[1, 0]
    torch.testing.assert_close(distance[1, 0, 2], delta.norm())
    torch.testing.assert_close(direction[1, 0, 2], delta / (delta.norm() + 1e-5))
    (distance.sum() + direction.sum()).backward()  # the diagonal has no distance
    assert positions.grad is not None and positions.grad.isfinite().all()


def test_distance_bias_formula() -> None:
    bias = DistanceBias(HEADS, K).double()
    first, last = bias.net[0], bias.net[2]
    x = torch.randn(1, 3, 3, K).double()
    out = gelu(x @ first.weight.T + first.bias) @ last.weight.T + last.bias
    torch.testing.assert_close(bias(x), out.permute(0, 3, 1, 2))


def test_hop_counts_have_a_row_each_and_far_ones_share_one() -> None:
    bias = wide(ShortestPathBias(HEADS, num_spatial=5))
    hops = torch.tensor([[[-1, 0, 1, 2, 3, 509, UNREACHABLE]]])
    rows = [0, 1, 2, 3, 3, 3, 4]
    torch.testing.assert_close(bias(hops)[0, :, 0].T, bias.table.weight[rows])


def test_edge_bias_formula() -> None:
    bias = EdgeBias2D(HEADS, TYPES, multi_hop_max_dist=2, num_edge_dis=3).double()
    _, structure = graph(multi_hop_max_dist=4)
    out, T, M = bias(structure.hops, structure.edges), bias.table.weight, bias.hop
    for b, i, j in torch.ones_like(structure.hops).nonzero().tolist():
        hops = int(structure.hops[b, i, j])
        total = torch.zeros(HEADS).double()
        for k in range(min(hops, 2) if hops < UNREACHABLE else 0):
            total += T[structure.edges[b, i, j, k]].mean(0) @ M[k]
        torch.testing.assert_close(out[b, :, i, j], total / min(max(hops, 1), 2))


@pytest.mark.parametrize("edge_type", ["multi_hop", "single"])
def test_what_is_no_edge_adds_nothing_and_learns_nothing(edge_type: Any) -> None:
    bias = EdgeBias2D(HEADS, TYPES, edge_type)
    _, structure = graph(edge_type=edge_type)
    out = bias(structure.hops, structure.edges)
    none = (structure.edges == 0).all(-1).all(-1)
    assert none.any() and not out.permute(0, 2, 3, 1)[none].any() and out.any()
    out.square().sum().backward()
    assert bias.table.weight.grad is not None
    assert not bias.table.weight.grad[0].any() and bias.table.weight.grad[1:].any()


def inputs(mask: Tensor) -> dict[str, Tensor]:
    return {"gaussians": torch.rand(*mask.shape, mask.shape[1], K)}


@pytest.mark.parametrize("mode", ["2d", "3d", "2d+3d"])
def test_the_sum_of_what_is_there(mode: Any) -> None:
    bias, (mask, structure) = StructuralBias(HEADS, **SMALL, mode=mode), graph()
    psi = inputs(mask)["gaussians"]
    expected = torch.zeros(2, HEADS, 5, 5)
    if "2d" in mode:
        expected = expected + bias.path(structure.hops) + bias.edge(structure.hops, structure.edges)
    if "3d" in mode:
        expected = expected + bias.distance(psi)
    out = bias(mask, structure, psi)
    keys = mask[:, None, None].expand_as(expected)
    torch.testing.assert_close(out[..., 1:, 1:], expected.masked_fill(~keys, LOWEST))
    torch.testing.assert_close(out[..., 0, 0], bias.graph_token.expand(2, -1))
    torch.testing.assert_close(out[0, :, 1:, 0], bias.graph_token[:, None].expand(-1, 5))
    torch.testing.assert_close(out[0, :, 0, 1:], bias.graph_token[:, None].expand(-1, 5))
    assert {name.split(".")[0] for name, _ in bias.named_parameters()} == {"graph_token"} | (
        ({"path", "edge"} if "2d" in mode else set()) | ({"distance"} if "3d" in mode else set())
    )


def test_a_term_left_out_for_one_graph() -> None:
    bias, (mask, structure) = StructuralBias(HEADS, **SMALL), graph([4, 4])
    psi = inputs(mask)["gaussians"]
    out = bias(mask, structure, psi, torch.tensor([True, False]), torch.tensor([False, True]))
    torch.testing.assert_close(out[0], bias(mask, structure)[0])
    torch.testing.assert_close(out[1], bias(mask, None, psi)[1])


def test_max_spd_hides_far_pairs_but_never_the_token() -> None:
    mask, structure = graph([6])
    for max_spd, far in ((2, structure.hops >= 2), (None, structure.hops < 0), (511, structure.hops < 0)):
        hidden = StructuralBias(HEADS, **SMALL, max_spd=max_spd)(mask, structure) == LOWEST
        assert (hidden[..., 1:, 1:] == far[:, None]).all()
        assert not hidden[..., 0].any() and not hidden[..., 0, :].any()


def test_permuting_the_nodes_permutes_the_bias() -> None:
    bias, (mask, structure) = StructuralBias(HEADS, **SMALL), graph([6])
    psi, order = inputs(mask)["gaussians"], torch.randperm(6)
    turned = GraphStructure(
        structure.hops[:, order][:, :, order],
        structure.edges[:, order][:, :, order],
        structure.in_degree[:, order],
        structure.out_degree[:, order],
    )
    with_token = torch.cat((torch.zeros(1).long(), order + 1))
    expected = bias(mask, structure, psi)[:, :, with_token][:, :, :, with_token]
    torch.testing.assert_close(bias(mask, turned, psi[:, order][:, :, order]), expected)


@pytest.mark.parametrize("sizes", [[0, 0], [1], []])
def test_nothing_to_attend(sizes: list[int]) -> None:
    n = max(sizes, default=0)
    mask = torch.ones(len(sizes), n, dtype=torch.bool)
    bias = StructuralBias(HEADS, **SMALL)(mask, None, torch.rand(len(sizes), n, n, K))
    assert bias.shape == (len(sizes), HEADS, n + 1, n + 1) and bias.isfinite().all()


def test_half_precision_has_room_for_the_mask() -> None:
    mask, structure = graph()
    assert StructuralBias(HEADS, **SMALL).half()(mask, structure).dtype == torch.float32


@pytest.mark.parametrize("edge_type", ["multi_hop", "single"])
def test_gradients(edge_type: Any) -> None:
    mask, structure = graph([3, 2], edge_type=edge_type)
    bias = StructuralBias(HEADS, **SMALL, edge_type=edge_type).double()
    kernel = GaussianDistanceKernel(K, 3).double()
    pair = torch.randint(3, (2, 3, 3, 2))
    positions = torch.randn(2, 3, 2, dtype=torch.double, requires_grad=True)

    def run(positions: Tensor, token: Tensor, hop: Tensor, scale: Tensor) -> Tensor:
        distance = relative_positions(positions)[0] + 0.1  # away from the kink at 0
        weights = {"graph_token": token} | ({"edge.hop": hop} if edge_type == "multi_hop" else {})
        psi = torch.func.functional_call(kernel, {"scale": scale}, (distance, pair))
        return torch.func.functional_call(bias, weights, (mask, structure, psi)).clamp(min=-1e3)

    hop = torch.randn(5, HEADS, HEADS, dtype=torch.double, requires_grad=True)
    scale = torch.randn(3, dtype=torch.double, requires_grad=True)
    token = torch.randn(HEADS, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(run, (positions, token, hop, scale))
