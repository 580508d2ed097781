"""segment_softmax against torch.softmax, receiver by receiver."""

from __future__ import annotations

import pytest
import torch

from trajpred.nn import segment_softmax, segment_sum

RECEIVER = torch.tensor([0, 0, 0, 2, 2, 5, 3, 3, 3, 3])
NUM_RECEIVERS = 7  # 1, 4 and 6 have no edges


@pytest.mark.parametrize("shape", [(), (2, 4)])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_equals_softmax_of_every_receiver(shape: tuple[int, ...], scale: float) -> None:
    score = scale * torch.randn(len(RECEIVER), *shape, dtype=torch.float64) - scale
    found = segment_softmax(score, RECEIVER, NUM_RECEIVERS)
    for i in RECEIVER.unique():
        expected = torch.softmax(score[i == RECEIVER], 0)
        torch.testing.assert_close(found[i == RECEIVER], expected, rtol=1e-12, atol=1e-12)
    order = torch.randperm(len(RECEIVER))
    moved = segment_softmax(score[order], RECEIVER[order], NUM_RECEIVERS)
    torch.testing.assert_close(moved, found[order])


def test_no_edges() -> None:
    none, score = torch.zeros(0, dtype=torch.int64), torch.zeros(0, 2, requires_grad=True)
    out = segment_softmax(score, none, 3)
    out.sum().backward()
    assert out.shape == (0, 2) and score.grad is not None
    assert torch.equal(segment_sum(out, none, 3), torch.zeros(3, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    # A running sum of 4096 equal weights in half precision would stop at 256 (bfloat16) or 2048 (float16).
    score = torch.full((4096,), 3e4, dtype=dtype)
    out = segment_softmax(score, torch.zeros(4096, dtype=torch.int64), 1)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), torch.full((4096,), 1 / 4096))
