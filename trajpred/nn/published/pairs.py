"""Values of senders and receivers, given as a pair or as one value for both."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor

T = TypeVar("T", int, Tensor)


def both(x: T | tuple[T, T]) -> tuple[T, T]:
    """Return (of the senders, of the receivers) from such a pair or from one value for both."""
    if isinstance(x, (int, Tensor)):
        return x, x
    return x
