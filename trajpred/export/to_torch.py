"""Modules of ``graphs`` -> machine code that PyTorch alone runs, in C++ or Python (AOTInductor)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler

from trajpred.errors import DataError
from trajpred.export.trace import open_shapes, traced_inputs
from trajpred.onboard.signature import SIGNATURES

#: The file of a bundle.
COMPILED = "forecaster.pt2"


def to_torch(module: nn.Module, name: str, sizes: Mapping[str, int], path: Path) -> None:
    """Compile ``module`` as the graph ``name`` of :data:`~trajpred.onboard.signature.SIGNATURES`.

    What is written runs on machines with the same kind of processor, and the same version of PyTorch.

    Args:
        sizes: numbers for the letters of the signature's shapes; those of a scene that it lacks stay open.
        path: of the file to write; ends in .pt2.

    Raises: DataError if there is no C++ compiler.
    """
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise DataError("needs a C++ compiler: g++, or the one that CXX names", file=path) from None
    ports = SIGNATURES[name].inputs
    shapes = open_shapes(ports, sizes)
    program = torch.export.export(module.eval(), traced_inputs(ports, sizes), dynamic_shapes=shapes)
    torch._inductor.aoti_compile_and_package(program, package_path=str(path))


def load(path: Path) -> Callable[[Sequence[NDArray[Any]]], list[NDArray[Any]]]:
    """What :func:`to_torch` wrote, from arrays in the order of the signature to arrays."""
    run = torch._inductor.aoti_load_package(str(path))
    return lambda given: [found.numpy() for found in run(*map(torch.as_tensor, given))]
