"""PaddedAttention: padded and masked equals each sample alone; nothing leaks out of or into the padding."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from trajpred.nn.published import padded_attention
from trajpred.nn.published.padded_attention import PaddedAttention, masked_softmax, merge_tensors

HIDDEN, KEY_HIDDEN, HEADS = 6, 4, 2
LENGTHS, KEY_LENGTHS = torch.tensor([3, 0, 5, 1, 2]), torch.tensor([2, 3, 4, 0, 1])


def ragged(lengths: Tensor, width: int) -> tuple[Tensor, Tensor]:
    flat = torch.randn(int(lengths.sum()), width, dtype=torch.float64, requires_grad=True)
    return merge_tensors(flat, lengths)


def loop(attend: PaddedAttention, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """One sample, query by query, head by head: ``[n, H · d]``, ``[H, n, m]``."""
    q, k, v = (
        layer(y).unflatten(-1, (HEADS, -1))
        for layer, y in ((attend.query, x), (attend.key, z), (attend.value, z))
    )
    out, weights = torch.zeros_like(q), torch.zeros(HEADS, len(x), len(z), dtype=torch.float64)
    for i in range(len(x)):
        for h in range(HEADS):
            score = torch.stack([q[i, h] @ key[h] for key in k]) / q.shape[-1] ** 0.5
            weights[h, i] = torch.softmax(score, 0)
            out[i, h] = weights[h, i] @ v[:, h]
    return out.flatten(1), weights


def test_constructor() -> None:
    empty = inspect.Parameter.empty
    expected = {"hidden": empty, "num_heads": 1, "head_size": None, "query_hidden": None, "key_hidden": None}
    found = {name: p.default for name, p in inspect.signature(PaddedAttention).parameters.items()}
    assert found == {**expected, "key_bias": False}
    assert "key.bias" not in PaddedAttention(HIDDEN).state_dict()
    assert "key.bias" in PaddedAttention(HIDDEN, key_bias=True).state_dict()


@pytest.mark.parametrize("options", [{"num_heads": 4}, {"num_heads": 0}, {"num_heads": 0, "head_size": 2}])
def test_heads_that_do_not_fit(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="num_heads"):
        PaddedAttention(HIDDEN, **options)


@pytest.mark.parametrize("head_size", [None, 5])
@pytest.mark.parametrize("cross", [False, True], ids=["global", "cross"])
def test_padded_equals_every_sample_alone(cross: bool, head_size: int | None) -> None:
    attend = PaddedAttention(HIDDEN, HEADS, head_size, key_hidden=KEY_HIDDEN if cross else None).double()
    x, mask = ragged(LENGTHS, HIDDEN)
    z, key_mask = ragged(KEY_LENGTHS, KEY_HIDDEN) if cross else (None, None)
    fused = attend(x, z, mask=mask, key_mask=key_mask)
    out, weight = attend(x, z, mask=mask, key_mask=key_mask, return_attention=True)
    torch.testing.assert_close(fused, out, rtol=1e-12, atol=1e-12)
    assert not fused[~mask].any() and not out[~mask].any()
    for b, n in enumerate(LENGTHS):
        m = KEY_LENGTHS[b] if cross else n
        if m:
            expected, attention = loop(attend, x[b, :n], x[b, :n] if z is None else z[b, :m])
            torch.testing.assert_close(out[b, :n], expected, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(weight[b, :, :n, :m], attention, rtol=1e-12, atol=1e-12)
        assert not weight[b, :, :, m:].any() and not weight[b, :, n:].any()
        assert m > 0 or not fused[b].any()


@pytest.mark.parametrize("return_attention", [False, True])
def test_what_stands_in_the_padding_changes_nothing(return_attention: bool) -> None:
    attend = PaddedAttention(HIDDEN, HEADS).double()
    x, mask = ragged(LENGTHS, HIDDEN)
    other = torch.where(mask[..., None], x, 1e3 * torch.randn_like(x))
    before, after = (
        attend(each, mask=mask, return_attention=return_attention) for each in (x.detach(), other.detach())
    )
    torch.testing.assert_close(after, before, rtol=0, atol=0)


@pytest.mark.parametrize("return_attention", [False, True])
def test_gradients_are_finite_and_those_of_finite_differences(return_attention: bool) -> None:
    attend = PaddedAttention(HIDDEN, HEADS, key_hidden=KEY_HIDDEN).double()
    x, z = torch.randn(len(LENGTHS), 5, HIDDEN).double(), torch.randn(len(LENGTHS), 4, KEY_HIDDEN).double()
    masks = {"mask": ragged(LENGTHS, 1)[1], "key_mask": ragged(KEY_LENGTHS, 1)[1]}

    def forward(x: Tensor, z: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return attend(x, z, **masks, return_attention=return_attention)

    assert torch.autograd.gradcheck(forward, (x.requires_grad_(), z.requires_grad_()))
    forward(x, z)[0].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in attend.parameters())


@pytest.mark.parametrize("return_attention", [False, True])
@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0), (2, 0, 0)])
def test_empty_batches_queries_and_keys(shape: tuple[int, int, int], return_attention: bool) -> None:
    B, n, m = shape
    attend = PaddedAttention(HIDDEN, HEADS, key_hidden=KEY_HIDDEN)
    x, z = torch.randn(B, n, HIDDEN, requires_grad=True), torch.randn(B, m, KEY_HIDDEN)
    masks = {"mask": torch.ones(B, n, dtype=torch.bool), "key_mask": torch.ones(B, m, dtype=torch.bool)}
    found = attend(x, z, **masks, return_attention=return_attention)
    out = found[0] if return_attention else found
    assert out.shape == (B, n, HIDDEN) and out.isfinite().all()
    assert m > 0 or not out.any()
    out.sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_masks_truly(dtype: torch.dtype) -> None:
    attend = PaddedAttention(HIDDEN, HEADS).to(dtype)
    x, mask = ragged(LENGTHS, HIDDEN)
    x = (20 * x.detach()).to(dtype)
    reference = PaddedAttention(HIDDEN, HEADS).double()
    reference.load_state_dict(attend.state_dict())
    expected = reference(x.double(), mask=mask)
    out, weight = attend(x, mask=mask, return_attention=True)
    for found in (out, attend(x, mask=mask)):
        assert found.dtype == dtype and not found[~mask].any()
        torch.testing.assert_close(found.double(), expected, rtol=0.1, atol=0.3)
    assert not weight.masked_select(~mask[:, None, None, :]).any()


def test_a_mask_of_pairs_such_as_the_causal_one() -> None:
    attend = PaddedAttention(HIDDEN, HEADS).double()
    x, mask = ragged(LENGTHS, HIDDEN)
    causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    out = attend(x, mask=mask, attention_mask=causal)
    for t in range(x.shape[1]):
        upto = attend(x[:, : t + 1], mask=mask[:, : t + 1])[:, t]
        torch.testing.assert_close(out[:, t], upto, rtol=1e-12, atol=1e-12)


def test_order_of_rows_and_samples_does_not_matter() -> None:
    attend = PaddedAttention(HIDDEN, HEADS, key_hidden=KEY_HIDDEN).double()
    (x, mask), (z, key_mask) = ragged(LENGTHS, HIDDEN), ragged(KEY_LENGTHS, KEY_HIDDEN)
    b, i, j = (torch.randperm(n) for n in (len(x), x.shape[1], z.shape[1]))
    out = attend(x, z, mask=mask, key_mask=key_mask)[b][:, i]
    moved = attend(x[b][:, i], z[b][:, j], mask=mask[b][:, i], key_mask=key_mask[b][:, j])
    torch.testing.assert_close(moved, out, rtol=1e-12, atol=1e-12)


def test_key_bias_changes_nothing() -> None:
    attend = PaddedAttention(HIDDEN, HEADS, key_bias=True).double()
    x, mask = ragged(LENGTHS, HIDDEN)
    before = attend(x, mask=mask)
    torch.nn.init.normal_(attend.key.bias, std=3)
    torch.testing.assert_close(attend(x, mask=mask), before, rtol=1e-9, atol=1e-9)


def test_masked_softmax_without_anything_allowed() -> None:
    score = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    weight = masked_softmax(score, torch.tensor([[True, False], [False, False]]))
    assert weight.tolist() == [[1, 0], [0, 0]]
    weight.sum().backward()
    assert score.grad is not None and not score.grad.any()


@pytest.mark.parametrize("lengths", [[2, 0, 3], [0, 0], [4], []])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_merge_pads_and_masks(lengths: list[int], shape: tuple[int, ...]) -> None:
    flat = torch.randn(sum(lengths), *shape, requires_grad=True)
    padded, mask = merge_tensors(flat, torch.tensor(lengths, dtype=torch.int64))
    size = max(lengths, default=0)
    assert padded.shape == (len(lengths), size, *shape) and mask.shape == (len(lengths), size)
    for sample, row, valid in zip(flat.split(lengths) if lengths else [], padded, mask, strict=True):
        assert row[: len(sample)].equal(sample) and not row[len(sample) :].any()
        assert valid.tolist() == [True] * len(sample) + [False] * (size - len(sample))
    padded.sum().backward()
    assert flat.grad is not None and flat.grad.equal(torch.ones_like(flat))


def test_examples_of_the_docstrings() -> None:
    result = doctest.testmod(padded_attention)
    assert result.attempted and not result.failed
