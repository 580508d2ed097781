"""segment_softmax against torch.softmax, means and stars against their definition."""

from __future__ import annotations

import pytest
import torch

from trajpred.nn import flatten_edges, flatten_stars, segment_softmax, star_edges
from trajpred.nn.segment import segment_mean

RECEIVER = torch.tensor([0, 0, 0, 2, 2, 5, 3, 3, 3, 3])
NUM_RECEIVERS = 7  # 1, 4 and 6 have no edges


@pytest.mark.parametrize("shape", [(), (2, 4)])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_equals_softmax_of_every_receiver(shape: tuple[int, ...], scale: float) -> None:
    score = scale * torch.randn(len(RECEIVER), *shape, dtype=torch.float64) - scale
    weight = segment_softmax(score, RECEIVER, NUM_RECEIVERS)
    for i in RECEIVER.unique():
        expected = torch.softmax(score[i == RECEIVER], 0)
        torch.testing.assert_close(weight[i == RECEIVER], expected, rtol=1e-12, atol=1e-12)
    order = torch.randperm(len(RECEIVER))
    moved = segment_softmax(score[order], RECEIVER[order], NUM_RECEIVERS)
    torch.testing.assert_close(moved, weight[order])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    # A running sum of 4096 equal weights in half precision would stop at 256 (bfloat16) or 2048 (float16).
    score = torch.full((4096,), 3e4, dtype=dtype)
    out = segment_softmax(score, torch.zeros(4096, dtype=torch.int64), 1)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), torch.full((4096,), 1 / 4096))


def test_mean_of_every_segment_is_0_without_rows() -> None:
    values = torch.tensor([[1.0, 2], [3, 6], [7, 8]])
    means = segment_mean(values, torch.tensor([0, 0, 2]), 4)
    assert means.tolist() == [[2, 4], [0, 0], [7, 8], [0, 0]]


@pytest.mark.parametrize("neighbors", range(9))
def test_star_with_fewer_neighbours(neighbors: int) -> None:
    edges = star_edges(neighbors)
    expected = {(0, 0)}
    for neighbor in range(1, neighbors + 1):
        expected |= {(0, neighbor), (neighbor, 0)}
    assert {(sender, receiver) for sender, receiver in edges.T.tolist()} == expected
    assert edges.shape[1] == len(expected)
    assert torch.equal(edges[1], edges[1].sort().values)


@pytest.mark.parametrize("counts", [[8, 0, 3, 8, 1], []])
def test_stars_at_once_equal_stars_flattened(counts: list[int]) -> None:
    neighbors = torch.tensor(counts, dtype=torch.int64)
    flat = flatten_stars(neighbors)
    expected = flatten_edges([star_edges(count) for count in counts], neighbors + 1)
    assert sorted(flat.edge_index.T.tolist()) == sorted(expected.edge_index.T.tolist())
    for name in ("batch", "ptr", "target_index"):
        assert torch.equal(getattr(flat, name), getattr(expected, name))
    assert torch.equal(expected.target_index, expected.offsets), "by default the first node"


def test_edges_with_a_score_of_minus_infinity_are_excluded() -> None:
    """The others are normalised alone; a receiver without any other gets 0, with finite gradients."""
    score = torch.tensor([1.0, -torch.inf, 2.0, -torch.inf, -torch.inf], requires_grad=True)
    weight = segment_softmax(score, torch.tensor([0, 0, 0, 1, 1]), 3)
    expected = torch.tensor([1.0, 2.0]).softmax(0)
    torch.testing.assert_close(weight[[0, 2]], expected)
    assert not weight[[1, 3, 4]].any()
    [gradient] = torch.autograd.grad((weight * torch.arange(5.0)).sum(), score)
    assert gradient.isfinite().all()
