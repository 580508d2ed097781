"""Softmax and sum over the incoming edges of each receiver, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

#: Finite stand-in for -inf. Differences stay finite, so a receiver without edges never produces NaN.
LOWEST = -1e30


def segment_softmax(score: Tensor, receiver: Tensor, num_receivers: int) -> Tensor:
    r"""Normalise scores over the edges of each receiver.

    .. math:: α_e = \frac{\exp(s_e)}{\sum_{e' \to i(e)} \exp(s_{e'})}

    The maximum of each receiver is subtracted first; computed in float32 or wider.

    Args:
        score: ``[E, ...]``.
        receiver: ``[E]`` int64, i(e).
        num_receivers: number of receivers R.

    Returns:
        ``[E, ...]`` in the dtype of ``score``.

    Example:
        >>> segment_softmax(torch.tensor([0.0, 0.0, 5.0]), torch.tensor([0, 0, 2]), 3)
        tensor([0.5000, 0.5000, 1.0000])
    """
    logits = score.float() if score.dtype in (torch.float16, torch.bfloat16) else score
    shape = (num_receivers, *score.shape[1:])
    index = receiver.reshape(-1, *[1] * (score.ndim - 1)).expand_as(logits)
    # The maximum cancels in the quotient, so it needs no gradient.
    highest = logits.new_full(shape, LOWEST).scatter_reduce(
        0, index, logits.detach(), "amax", include_self=True
    )
    weight = torch.exp(logits - highest.index_select(0, receiver))
    total = logits.new_zeros(shape).index_add(0, receiver, weight)
    return (weight / total.index_select(0, receiver)).to(score.dtype)


def segment_sum(value: Tensor, receiver: Tensor, num_receivers: int) -> Tensor:
    """Sum the values of the edges into each receiver; exactly 0 for a receiver without edges.

    Shapes: ``[E, ...]``, ``[E]`` int64 -> ``[num_receivers, ...]``.
    """
    return value.new_zeros(num_receivers, *value.shape[1:]).index_add(0, receiver, value)
