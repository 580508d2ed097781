"""segment_softmax against torch.softmax, group by group."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trajpred.nn import segment_softmax

RECEIVER = torch.tensor([0, 0, 0, 2, 2, 5, 3, 3, 3, 3])
NUM_RECEIVERS = 7  # 1, 4 and 6 have no edges


def by_group(score: Tensor, receiver: Tensor) -> Tensor:
    out = torch.empty_like(score)
    for i in receiver.unique():
        out[receiver == i] = torch.softmax(score[receiver == i], 0)
    return out


@pytest.mark.parametrize("shape", [(), (3,), (2, 4)])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_equals_softmax_of_every_group(shape: tuple[int, ...], scale: float) -> None:
    score = scale * torch.randn(len(RECEIVER), *shape, dtype=torch.float64)
    found = segment_softmax(score, RECEIVER, NUM_RECEIVERS)
    torch.testing.assert_close(found, by_group(score, RECEIVER), rtol=1e-12, atol=1e-12)


def test_order_of_edges_does_not_matter() -> None:
    score, order = torch.randn(len(RECEIVER), 2), torch.randperm(len(RECEIVER))
    found = segment_softmax(score[order], RECEIVER[order], NUM_RECEIVERS)
    torch.testing.assert_close(found, by_group(score, RECEIVER)[order])


def test_gradient_is_that_of_finite_differences() -> None:
    score = torch.randn(len(RECEIVER), 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: segment_softmax(s, RECEIVER, NUM_RECEIVERS), score)


def test_no_edges_at_all() -> None:
    score = torch.zeros(0, 2, requires_grad=True)
    out = segment_softmax(score, torch.zeros(0, dtype=torch.int64), 3)
    out.sum().backward()
    assert out.shape == (0, 2) and score.grad is not None and score.grad.shape == (0, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_sums_in_float32(dtype: torch.dtype) -> None:
    # 4096 equal scores: a running sum in half precision would stop at 256 (bfloat16) or 2048 (float16).
    score = torch.full((4096,), 3e4, dtype=dtype)
    out = segment_softmax(score, torch.zeros(4096, dtype=torch.int64), 1)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), torch.full((4096,), 1 / 4096))
