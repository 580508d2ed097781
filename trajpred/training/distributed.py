"""Reductions over the processes of a distributed run; without one they return their argument."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed


def process_count() -> int:
    """Return the number of processes that train together."""
    joined = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if joined else 1


def sum_over_processes(values: Tensor) -> Tensor:
    """Sum ``values`` of any shape over all processes, each of which must call this; detached."""
    values = values.detach()
    if process_count() > 1:
        values = values.clone()
        distributed.all_reduce(values)
    return values


def mean_over_processes(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Average named scalars over all processes in a single exchange; detached."""
    if process_count() == 1:
        return values
    mean = sum_over_processes(torch.stack([*values.values()])) / process_count()
    return dict(zip(values, mean, strict=True))


def gather_objects(own: Any) -> list[Any]:
    """Return the objects of all processes, by rank."""
    gathered = [own] * process_count()
    if process_count() > 1:
        distributed.all_gather_object(gathered, own)
    return gathered


def is_lost_connection(error: RuntimeError) -> bool:
    """Return whether ``error`` means that another process no longer responds; gloo has no type for that."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error)
