"""Sums over the processes of a distributed run; a single process is a sum of one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed


def process_count() -> int:
    """How many processes train together; 1 where none have been joined."""
    joined = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if joined else 1


def sum_over_processes(values: Tensor) -> Tensor:
    """``values``, of any shape, added over all processes, each of which must call this; detached."""
    values = values.detach()
    if process_count() > 1:
        values = values.clone()
        distributed.all_reduce(values)
    return values


def mean_over_processes(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Scalars by name, each averaged over all processes in a single exchange; detached."""
    if process_count() == 1:
        return values
    mean = sum_over_processes(torch.stack([*values.values()])) / process_count()
    return dict(zip(values, mean, strict=True))


def of_all_processes(own: Any) -> list[Any]:
    """What every process passes, in the order of their ranks."""
    found = [own] * process_count()
    if process_count() > 1:
        distributed.all_gather_object(found, own)
    return found


def is_lost(error: RuntimeError) -> bool:
    """Whether it says that another process no longer answers; gloo has no type of its own for that."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error)
