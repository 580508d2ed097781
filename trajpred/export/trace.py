"""Trace the modules of ``graphs`` with torch's exporter: to ONNX models, or compiled for PyTorch alone."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from numpy.typing import NDArray
from onnx import compose
from onnxscript import opset18
from torch import Tensor, nn
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler
from torch.export import Dim

from trajpred.errors import DataError
from trajpred.onboard.bundle import SCENE_SIZES, SIGNATURES, Port, resolved

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


def to_onnx(module: nn.Module, name: str, sizes: Mapping[str, int], opset: int) -> onnx.ModelProto:
    """``module`` as the graph ``name`` of :data:`~trajpred.onboard.bundle.SIGNATURES`.

    Args:
        sizes: numbers for the letters of the signature's shapes; those of a scene that it lacks stay open.
        opset: version of ONNX's operators.
    """
    ports = SIGNATURES[name]
    with warnings.catch_warnings(), _quiet("torch.onnx"):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            traced_inputs(ports.inputs, sizes),
            dynamo=True,
            input_names=[port.name for port in ports.inputs],
            output_names=[port.name for port in ports.outputs],
            dynamic_shapes=open_shapes(ports.inputs, sizes),
            opset_version=opset,
            verbose=False,
            custom_translation_table={torch.ops.prims.hypot.default: _hypot},
        )
    assert program is not None
    return _bare(program.model_proto)


def join(graphs: Mapping[str, onnx.ModelProto], name: str) -> onnx.ModelProto:
    """``graphs``, one after the other, as the graph ``name`` of the signatures.

    What one gives and another takes has the same name in both, and so has what two of them take.
    """
    parts = [
        compose.add_prefix(model, f"{part}/", rename_inputs=False, rename_outputs=False).graph
        for part, model in graphs.items()
    ]
    ports = {port.name: port for part in parts for port in (*part.input, *part.output)}
    takes, gives = ([ports[port.name] for port in side] for side in SIGNATURES[name])
    whole = onnx.helper.make_graph(
        [node for part in parts for node in part.node],
        name,
        takes,
        gives,
        [value for part in parts for value in part.initializer],
    )
    first = next(iter(graphs.values()))
    return onnx.helper.make_model(whole, opset_imports=first.opset_import, ir_version=first.ir_version)


def _hypot(x: Any, y: Any) -> Any:
    """ONNX has none, and the exporter knows no way around it. Lengths of a scene are far from overflow."""
    return opset18.Sqrt(opset18.Add(opset18.Mul(x, x), opset18.Mul(y, y)))


def _bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without what the exporter notes of the machine and the source code: bundles are the same everywhere."""
    for holder in (model, model.graph, *model.graph.node, *model.graph.value_info):
        del holder.metadata_props[:]
        holder.doc_string = ""
    for port in (*model.graph.input, *model.graph.output):
        del port.metadata_props[:]
    del model.functions[:]
    return model


class _quiet:  # noqa: N801 - a context manager reads as a verb
    """No log messages of ``name`` and below while inside."""

    def __init__(self, name: str) -> None:
        self.logger = logging.getLogger(name)

    def __enter__(self) -> None:
        self.level = self.logger.level
        self.logger.setLevel(logging.ERROR)

    def __exit__(self, *_: object) -> None:
        self.logger.setLevel(self.level)


def to_torch(module: nn.Module, name: str, sizes: Mapping[str, int], path: Path) -> None:
    """Compile ``module`` as the graph ``name`` of :data:`~trajpred.onboard.bundle.SIGNATURES`.

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
