"""Softmax, sum and other reductions over the incoming edges of each receiver, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.utils import scatter

#: Finite stand-in for -inf. Differences stay finite, so a receiver without edges never produces NaN.
LOWEST = -1e30
#: The types of :func:`reduce_items`; several are joined by ``|``, and their results then concatenated.
REDUCE_TYPES = ("sum", "mean", "max", "max_no_inf", "min", "min_no_inf", "prod")


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


def reduce_items(value: Tensor, receiver: Tensor, num_receivers: int, reduce_type: str = "sum") -> Tensor:
    """Reduce ``[items, ...]`` to ``[num_receivers, ...]`` by one of :data:`REDUCE_TYPES`.

    Receivers without items get 0 (sum, mean, and the types with ``_no_inf``), 1 (prod), or the lowest (max)
    or highest (min) finite number of the dtype. Raises: ValueError for another reduce type.
    """
    kinds = reduce_type.split("|")
    if not set(kinds) <= set(REDUCE_TYPES):
        known = ", ".join(REDUCE_TYPES)
        raise ValueError(f"reduce_type must be one of {known}, or several joined by '|', not {reduce_type!r}")
    parts = [_reduce(value, receiver, num_receivers, kind) for kind in kinds]
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def _reduce(value: Tensor, receiver: Tensor, num_receivers: int, kind: str) -> Tensor:
    name, _, zero = kind.partition("_")
    if zero or name in ("sum", "mean"):  # 0 without items, as in PyG
        return scatter(value, receiver, 0, num_receivers, name)
    limits = torch.finfo(value.dtype) if value.is_floating_point() else torch.iinfo(value.dtype)
    how, start = {"max": ("amax", limits.min), "min": ("amin", limits.max), "prod": ("prod", 1)}[name]
    index = receiver.reshape(-1, *[1] * (value.ndim - 1)).expand_as(value)
    out = value.new_full((num_receivers, *value.shape[1:]), start)
    return out.scatter_reduce(0, index, value, how, include_self=True)
