"""What torch's exporter is shown of a graph: values of the right shapes, and which sizes stay open."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.export import Dim

from trajpred.onboard.signature import SCENE_SIZES, Port, resolved

#: Tracing looks at shapes alone; these are unlike each other, and unlike 0 and 1, which mean something to it.
SIZES = {"A": 7, "L": 11, "B": 5}


def traced_inputs(ports: tuple[Port, ...], sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
    """Values for ``ports``; ``sizes`` gives numbers for the letters of their shapes."""
    return tuple(_values(port, {**SIZES, **sizes}) for port in ports)


def open_shapes(ports: tuple[Port, ...], sizes: Mapping[str, int]) -> tuple[dict[int, Dim] | None, ...]:
    """Of each port the axes whose size differs from scene to scene, which is: those that ``sizes`` lacks."""
    dims = {size: Dim(size) for size in SCENE_SIZES if size not in sizes}
    return tuple(
        {i: dims[size] for i, size in enumerate(port.shape) if size in dims} or None for port in ports
    )


def _values(port: Port, sizes: Mapping[str, int]) -> Tensor:
    shape = [int(size) for size in resolved(port, dict(sizes))]
    if port.dtype == "bool":
        return torch.ones(shape, dtype=torch.bool)
    if port.dtype == "int64":
        return torch.zeros(shape, dtype=torch.int64)
    return torch.rand(shape)
