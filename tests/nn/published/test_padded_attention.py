"""Padded attention: no leak from padding, exact zeros, gradients, half precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from trajpred.nn import PaddedAttention, merge_tensors, pad_samples
from trajpred.nn.published.padded_attention import BiasedAttention, BiasedEncoderLayer

HIDDEN = 6
KEY_HIDDEN = 4
HEADS = 2
LENGTHS = [3, 0, 5, 1, 2]
KEY_LENGTHS = [4, 2, 0, 1, 3]
fused_or_not = pytest.mark.parametrize("return_attention", [False, True])


def ragged(lengths: list[int], width: int) -> tuple[Tensor, Tensor]:
    return pad_samples(torch.randn(sum(lengths), width).double(), torch.tensor(lengths))


def run(attend: PaddedAttention, *inputs: Any, return_attention: bool, **masks: Any) -> Tensor:
    computed = attend(*inputs, return_attention=return_attention, **masks)
    return computed[0] if return_attention else computed


@fused_or_not
@pytest.mark.parametrize("cross", [False, True], ids=["global", "cross"])
def test_a_padded_batch_equals_its_samples_alone(cross: bool, return_attention: bool) -> None:
    attend = PaddedAttention(HIDDEN, 5, HEADS, key_hidden_size=KEY_HIDDEN if cross else None).double()
    x, mask = ragged(LENGTHS, HIDDEN)
    z, key_mask = ragged(KEY_LENGTHS, KEY_HIDDEN) if cross else (None, None)
    # What is in the padding must not matter.
    x = torch.where(mask[..., None], x, 1e3 * torch.randn_like(x))
    z = None if z is None else torch.where(key_mask[..., None], z, 1e3 * torch.randn_like(z))
    out = run(attend, x, z, mask=mask, key_mask=key_mask, return_attention=return_attention)
    assert not out[~mask].any()
    for b, n in enumerate(LENGTHS):
        m = KEY_LENGTHS[b] if cross else n
        if not m:
            assert not out[b].any()
        elif n:
            alone = attend(x[b : b + 1, :n], None if z is None else z[b : b + 1, :m])
            assert_close(out[b, :n], alone[0], rtol=1e-12, atol=1e-12)


def test_lists_without_padding_equal_padded_ones() -> None:
    attend = PaddedAttention(HIDDEN, 5, HEADS, key_hidden_size=KEY_HIDDEN).double()
    counts = torch.tensor([3, 0, 1, 4])
    x = torch.randn(4, HIDDEN).double()
    z = torch.randn(8, KEY_HIDDEN).double()
    padded, key_mask = pad_samples(z, counts)
    expected, weight = attend(x[:, None], padded, key_mask=key_mask, return_attention=True)
    order = torch.randperm(8)
    computed = attend(x, z[order], receiver=torch.repeat_interleave(counts)[order], return_attention=True)
    assert_close(computed[0], expected[:, 0])
    assert_close(computed[1], weight[:, :, 0].mT[key_mask][order])


def test_attention_is_zero_where_masked_and_sums_to_one() -> None:
    attend = PaddedAttention(HIDDEN, None, HEADS).double()
    x, mask = ragged(LENGTHS, HIDDEN)
    weight = attend(x, mask=mask, return_attention=True)[1]
    assert not weight.masked_select(~(mask[:, None, :, None] & mask[:, None, None])).any()
    assert_close(weight.sum(-1), mask[:, None].double().expand(-1, HEADS, -1))


@fused_or_not
@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0), (2, 0, 0)])
def test_empty_batches_queries_and_keys(shape: tuple[int, int, int], return_attention: bool) -> None:
    B, n, m = shape
    attend = PaddedAttention(HIDDEN, None, HEADS, key_hidden_size=KEY_HIDDEN)
    x = torch.randn(B, n, HIDDEN, requires_grad=True)
    z = torch.randn(B, m, KEY_HIDDEN)
    masks = {"mask": torch.ones(B, n).bool(), "key_mask": torch.ones(B, m).bool()}
    out = run(attend, x, z, **masks, return_attention=return_attention)
    out.sum().backward()
    assert out.shape == (B, n, HIDDEN)
    assert out.isfinite().all()
    assert m > 0 or not out.any()
    assert x.grad.isfinite().all()


@fused_or_not
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_masks_exactly(dtype: torch.dtype, return_attention: bool) -> None:
    attend = PaddedAttention(HIDDEN, None, HEADS).to(dtype)
    x, mask = ragged(LENGTHS, HIDDEN)
    x = (20 * x).to(dtype)
    reference = PaddedAttention(HIDDEN, None, HEADS).double()
    reference.load_state_dict(attend.state_dict())
    out = run(attend, x, mask=mask, return_attention=return_attention)
    assert out.dtype == dtype
    assert not out[~mask].any()
    assert_close(out.double(), reference(x.double(), mask=mask), rtol=0.1, atol=0.3)


def test_empty_lists_of_a_known_width_are_merged() -> None:
    assert merge_tensors([None, None], hidden_size=3)[0].shape == (2, 0, 3)


def biased(shape: tuple[int, ...]) -> tuple[BiasedAttention, Tensor, Tensor]:
    """Return an operator, tokens ``[2, 5, 8]``, and a bias of that shape that excludes some pairs."""
    torch.manual_seed(0)
    bias = torch.randn(shape)
    bias[..., 2:] = -torch.inf
    return BiasedAttention(8, 2).eval(), torch.randn(2, 5, 8, requires_grad=True), bias


@pytest.mark.parametrize("shape", [(2, 2, 5, 5), (5, 5), (2, 1, 5, 5)])
def test_a_row_of_excluded_pairs_attends_to_nothing(shape: tuple[int, ...]) -> None:
    """Finite in both evaluations, forwards and backwards; other rows are those of softmax."""
    attention, x, bias = biased(shape)
    bias[..., 1, :] = -torch.inf
    out = attention(x, x, bias)
    again, weight = attention(x, x, bias, return_attention=True)
    assert_close(out, again)
    assert not weight[:, :, 1].any()
    assert torch.equal(out[:, 1], attention.out.bias.expand(2, 8))
    kept = torch.tensor([0, 2, 3, 4])
    assert_close(weight[:, :, kept].sum(-1), torch.ones(2, 2, 4))
    assert not weight[..., 2:].any()
    # Only the first two senders count.
    alone = attention(x[:, kept], x[:, :2], bias[..., kept, :2])
    assert_close(out[:, kept], alone)
    for result in (out, again):
        [gradient] = torch.autograd.grad(result.sum(), x, retain_graph=True)
        assert gradient.isfinite().all()


@pytest.mark.parametrize("return_attention", [False, True])
def test_a_bool_bias_is_a_mask(return_attention: bool) -> None:
    attention, x, bias = biased((2, 1, 5, 5))
    mask = torch.rand(bias.shape) < 0.6
    mask[:, :, 3] = False
    added = torch.zeros(bias.shape).masked_fill(~mask, -torch.inf)
    computed = attention(x, x, mask, return_attention=return_attention)
    expected = attention(x, x, added, return_attention=return_attention)
    assert_close(computed, expected, rtol=0, atol=0)
    layer = BiasedEncoderLayer(8, 16, 2).eval()
    valid = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    assert_close(layer(x, mask, valid), layer(x, added, valid), rtol=0, atol=0)
    # A valid row whose valid keys are all excluded attends to no padding instead.
    assert torch.equal(layer(x, mask, valid)[0, 3], layer(x, mask & False, valid)[0, 3])
