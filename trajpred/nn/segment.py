"""Softmax and sum over the edges of each receiver, in plain torch: what every edge operator is made of."""

from __future__ import annotations

import torch
from torch import Tensor

#: Finite stand-in for -inf: differences of it stay finite, so a receiver without edges gives no NaN.
LOWEST = -1e30


def segment_softmax(score: Tensor, receiver: Tensor, num_receivers: int) -> Tensor:
    """α_e = exp(s_e) / Σ_{e' into the same receiver} exp(s_e'), numerically stable, in float32 or wider.

    Args:
        score: ``[E, ...]``.
        receiver: ``[E]`` int64.

    Returns:
        ``[E, ...]``, in the dtype of ``score``.
    """
    wide = score.float() if score.dtype in (torch.float16, torch.bfloat16) else score
    shape = (num_receivers, *score.shape[1:])
    index = receiver.reshape(-1, *[1] * (score.ndim - 1)).expand_as(wide)
    # The shift cancels in the quotient: its gradient is zero and need not be computed.
    highest = wide.new_full(shape, LOWEST).scatter_reduce(0, index, wide.detach(), "amax", include_self=True)
    weight = torch.exp(wide - highest.index_select(0, receiver))
    total = wide.new_zeros(shape).index_add(0, receiver, weight)
    return (weight / total.index_select(0, receiver)).to(score.dtype)


def segment_sum(value: Tensor, receiver: Tensor, num_receivers: int) -> Tensor:
    """Σ_e value_e over the edges into each receiver; exactly 0 where there are none.

    Shapes: ``[E, ...]``, ``[E]`` -> ``[num_receivers, ...]``.
    """
    return value.new_zeros(num_receivers, *value.shape[1:]).index_add(0, receiver, value)
