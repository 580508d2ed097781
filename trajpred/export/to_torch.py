"""Modules of ``graphs`` -> machine code that PyTorch alone runs, in C++ or Python (AOTInductor)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler

from trajpred.errors import DataError
from trajpred.export.signature import SIGNATURES
from trajpred.export.trace import open_shapes, traced_inputs

#: The file of a bundle.
COMPILED = "forecaster.pt2"


def to_torch(module: nn.Module, name: str, sizes: Mapping[str, int], path: Path) -> None:
    """Compile ``module`` as the graph ``name`` of :data:`~trajpred.export.signature.SIGNATURES`.

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


def hold_equal(path: Path, name: str, arrays: Mapping[str, NDArray[Any]], tolerance: float = 1e-3) -> None:
    """Run what :func:`to_torch` wrote on the example ``arrays`` (``NAME/PORT``).

    Raises: DataError if an output differs from the example's by more than ``tolerance``.
    """
    run = torch._inductor.aoti_load_package(str(path))
    given = [torch.as_tensor(arrays[f"{name}/{port.name}"]) for port in SIGNATURES[name].inputs]
    for port, found in zip(SIGNATURES[name].outputs, run(*given), strict=True):
        expected = arrays[f"{name}/{port.name}"]
        if not np.allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance):
            raise DataError("compiled, it gives something else than the graphs", file=path, field=port.name)
