"""Trace the modules of :mod:`~trajpred.export.graphs` to ONNX, or compile them for PyTorch (AOTInductor)."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from trajpred.onboard.bundle import FUSED, SCENE_SIZES, SIGNATURES, Port, resolved

#: Sizes to trace with. Only shapes matter; they differ from each other and from 0 and 1, which torch treats
#: as special cases.
TRACED_SIZES = {"A": 7, "L": 11, "B": 5}


def to_onnx(module: nn.Module, name: str, sizes: Mapping[str, int], opset: int) -> onnx.ModelProto:
    """Trace ``module`` as the graph ``name`` of :data:`~trajpred.onboard.bundle.SIGNATURES`.

    Args:
        sizes: values of the letters in the signature's shapes; scene sizes that are missing stay dynamic.
        opset: version of ONNX's operators.
    """
    ports = SIGNATURES[name]
    with warnings.catch_warnings(), quiet(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            traced_inputs(ports.inputs, sizes),
            dynamo=True,
            input_names=[port.name for port in ports.inputs],
            output_names=[port.name for port in ports.outputs],
            dynamic_shapes=_dynamic_shapes(ports.inputs, sizes),
            opset_version=opset,
            verbose=False,
            custom_translation_table={torch.ops.prims.hypot.default: _hypot},
        )
    assert program is not None
    return _without_metadata(program.model_proto)


def join(graphs: Mapping[str, onnx.ModelProto], name: str) -> onnx.ModelProto:
    """Connect ``graphs``, given in order, to the graph ``name`` of the signatures.

    Tensors with the same name are the same tensor.
    """
    parts = [
        compose.add_prefix(model, f"{part}/", rename_inputs=False, rename_outputs=False).graph
        for part, model in graphs.items()
    ]
    ports = {port.name: port for part in parts for port in (*part.input, *part.output)}
    inputs, outputs = ([ports[port.name] for port in side] for side in SIGNATURES[name])
    nodes = [node for part in parts for node in part.node]
    weights = [value for part in parts for value in part.initializer]
    joined = onnx.helper.make_graph(nodes, name, inputs, outputs, weights)
    first = next(iter(graphs.values()))
    return onnx.helper.make_model(joined, opset_imports=first.opset_import, ir_version=first.ir_version)


def to_torch(forecaster: nn.Module, sizes: Mapping[str, int], path: Path) -> None:
    """Compile a :class:`~trajpred.export.graphs.WholeForecaster` to a file that ends in .pt2.

    The file runs on the same kind of processor with the same version of PyTorch.

    Args:
        sizes: as for :func:`to_onnx`.

    Raises: DataError if there is no C++ compiler.
    """
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise DataError("compiling needs a C++ compiler: g++, or the one in CXX", file=path) from None
    ports = SIGNATURES[FUSED].inputs
    shapes = {"inputs": _dynamic_shapes(ports, sizes)}
    program = torch.export.export(forecaster.eval(), traced_inputs(ports, sizes), dynamic_shapes=shapes)
    torch._inductor.aoti_compile_and_package(program, package_path=str(path))


def load_compiled(path: Path) -> Callable[[Sequence[NDArray[Any]]], list[NDArray[Any]]]:
    """Load a file of :func:`to_torch` as a function of arrays, in the order of the signature."""
    run = torch._inductor.aoti_load_package(str(path))
    return lambda inputs: [output.numpy() for output in run(*map(torch.as_tensor, inputs))]


def traced_inputs(ports: tuple[Port, ...], sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
    """Make values for ``ports``; ``sizes`` override :data:`TRACED_SIZES`."""
    values = []
    for port in ports:
        shape = [int(size) for size in resolved(port, {**TRACED_SIZES, **sizes})]
        dtype = getattr(torch, port.dtype)
        fixed = torch.full(shape, dtype == torch.bool, dtype=dtype)
        values.append(torch.rand(shape, dtype=dtype) if dtype.is_floating_point else fixed)
    return tuple(values)


def _dynamic_shapes(ports: tuple[Port, ...], sizes: Mapping[str, int]) -> tuple[dict[int, Dim] | None, ...]:
    """Return the dynamic axes of each port: the scene sizes that ``sizes`` does not fix."""
    dims = {size: Dim(size) for size in SCENE_SIZES if size not in sizes}
    return tuple(
        {axis: dims[size] for axis, size in enumerate(port.shape) if size in dims} or None for port in ports
    )


def _hypot(x: Any, y: Any) -> Any:
    """Translate ``hypot``, which ONNX lacks; distances within a scene are far from overflow."""
    return opset18.Sqrt(opset18.Add(opset18.Mul(x, x), opset18.Mul(y, y)))


def _without_metadata(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove what the exporter records about the machine and the source code."""
    for part in (model, model.graph, *model.graph.node, *model.graph.value_info):
        del part.metadata_props[:]
        part.doc_string = ""
    for port in (*model.graph.input, *model.graph.output):
        del port.metadata_props[:]
    del model.functions[:]
    return model


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress log messages up to warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
