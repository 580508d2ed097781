"""Trace modules to ONNX graphs; on failure, one sentence names the module and the reason."""

from __future__ import annotations

import io
import logging
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from types import TracebackType
from typing import Any

import onnx
import torch
from onnx import compose
from onnxscript import opset18
from onnxscript.optimizer import remove_unused_nodes
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.overrides import TorchFunctionMode

from trajpred.errors import DataError
from trajpred.export.graphs import Chain, port_names, ports_among
from trajpred.onboard.bundle import SIGNATURES, Port, Signature, resolved


def tracing_failure(error: BaseException, module: nn.Module) -> str:
    """Name the innermost submodule of ``module`` and its line of code that raised during tracing."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    names = {id(submodule): type(submodule).__name__ for submodule in module.modules()}
    place = _innermost(cause.__traceback__, names) or _innermost(error.__traceback__, names)
    reason = type(cause).__name__
    message = str(cause).lstrip()
    if message:
        reason = message.splitlines()[0]
    if reason.startswith("Constraints violated"):
        reason = "Python's int, range or a comparison fixes a size of the scene"
    return f"{place or model_name(module)} cannot be traced: {reason.strip().rstrip('.')}"


def _innermost(trace: TracebackType | None, names: dict[int, str]) -> str | None:
    """Return the last frame whose ``self`` is one of the modules, with its line of code."""
    place = None
    for frame, line in traceback.walk_tb(trace):
        owner = names.get(id(frame.f_locals.get("self")))
        if owner is not None:
            file = Path(frame.f_code.co_filename).name
            code = traceback.FrameSummary(frame.f_code.co_filename, line, "").line
            place = f"{owner} in {file}, line {line}, `{code}`,"
    return place


def conversion_failure(error: BaseException, program: ExportedProgram, module: nn.Module) -> str:
    """Name the operation that ONNX lacks, and the submodule of ``module`` that uses it."""
    messages: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        messages.append(str(cause))
        cause = cause.__cause__
    named = re.search(r"target=torch\.ops\.([\w.]+)", "\n".join(messages))
    if named is None:
        return f"{model_name(module)} cannot be converted to ONNX: {messages[-1].splitlines()[0]}"
    return f"{user_of(named[1], program, module)} uses the operation {named[1]}, which ONNX lacks"


def user_of(operation: str, program: ExportedProgram, module: nn.Module) -> str:
    """Name the innermost submodule of ``module`` that uses an operation, ``aten.NAME.OVERLOAD``."""
    for traced in (program, program.run_decompositions()):
        for node in traced.graph.nodes:
            stack = node.meta.get("nn_module_stack")
            if stack and operation == str(node.target):
                _, kind = list(stack.values())[-1]
                if not isinstance(kind, str):
                    kind = kind.__name__
                owner = str(kind).rpartition(".")[2]
                if owner == type(module).__name__:
                    return model_name(module)
                return owner
    return model_name(module)


def model_name(module: nn.Module) -> str:
    """Name the class of ``module``; for a graph of this package, the class of the model it wraps."""
    if type(module).__module__.startswith("trajpred.export."):
        module = next(module.children(), module)
    return type(module).__name__


#: Sizes to trace with. Only shapes matter; they differ from each other and from 0 and 1, which torch treats
#: as special cases.
TRACED_SIZES = {"A": 7, "L": 11, "B": 5, "a": 13, "l": 17, "e0": 19, "e1": 23, "e2": 29, "e3": 31}


def to_onnx(module: nn.Module, name: str, sizes: Mapping[str, int], opset: int) -> onnx.ModelProto:
    """Trace ``module`` as the graph ``name`` of :data:`~trajpred.onboard.bundle.SIGNATURES`.

    Args:
        sizes: values of the letters in the signature's shapes; missing scene sizes stay dynamic.

    Raises: DataError that names the module and the operation that cannot be traced or converted.
    """
    if isinstance(module, Chain):
        if module.all_pairs:  # the numbers of edges of the four relations are fixed, too
            A = sizes["A"]
            L = sizes["L"]
            sizes = dict(sizes) | {"a": A, "l": L, "e0": A * A, "e1": A * L, "e2": L * A, "e3": L * L}
        stages: dict[str, onnx.ModelProto] = {}
        for i, stage in enumerate(module.stages):
            stages[f"stage_{i}"] = _traced(stage, stage.signature, sizes, opset)
        return without_unused(join(stages, module.signature, name))
    return without_unused(_traced(module, SIGNATURES[name], sizes, opset))


def _traced(module: nn.Module, ports: Signature, sizes: Mapping[str, int], opset: int) -> onnx.ModelProto:
    """Trace a module and convert it to ONNX. Raises: DataError naming what cannot be traced or converted."""
    inputs = traced_inputs(ports.inputs, sizes)
    shapes = _dynamic_shapes(ports.inputs, sizes)
    with warnings.catch_warnings(), quiet(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            with SizesStayOpen():
                traced = torch.export.export(
                    _Positional(module.eval()), inputs, dynamic_shapes={"inputs": shapes}
                )
        except Exception as error:  # a user's module may do anything
            raise DataError(tracing_failure(error, module)) from None
        try:
            program = torch.onnx.export(
                traced,
                dynamo=True,
                input_names=port_names(ports.inputs),
                output_names=port_names(ports.outputs),
                opset_version=opset,
                verbose=False,
                custom_translation_table=TRANSLATIONS,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise DataError(conversion_failure(error, traced, module)) from None
        assert program is not None
        model = program.model_proto
        for node in model.graph.node:
            if node.op_type == "ScatterND" and node.attribute:
                user = user_of("aten.index_put.default", traced, module)
                advice = "which onnxruntime computes wrongly with several threads: use index_add"
                raise DataError(f"{user} accumulates with index_put, {advice}")
    _compute_constants(model.graph)
    _name_sizes(model.graph, ports)
    return _without_metadata(model)


def _compute_constants(graph: onnx.GraphProto) -> None:
    """Turn constant outputs into outputs of a node: graphs are joined by what their nodes compute."""
    outputs = port_names(graph.output)
    for weight in graph.initializer:
        if weight.name in outputs:
            name = weight.name
            weight.name = f"{name}_value"
            graph.node.insert(0, onnx.helper.make_node("Identity", [weight.name], [name]))
    inner = [value for value in graph.value_info if value.name not in outputs]
    del graph.value_info[:]
    graph.value_info.extend(inner)


def _name_sizes(graph: onnx.GraphProto, ports: Signature) -> None:
    """Name dynamic sizes by the letters of the signature, so that equal names are equal sizes once joined."""
    shapes = {port.name: port.shape for port in (*ports.inputs, *ports.outputs)}
    for value in (*graph.input, *graph.output):
        for size, name in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=True):
            if size.dim_param:
                size.dim_param = str(name)


class _Positional(nn.Module):
    """Wrap a module to take positional arguments, so that dynamic shapes have one form."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Any:
        return self.module(*inputs)


def join(graphs: Mapping[str, onnx.ModelProto], signature: Signature, name: str) -> onnx.ModelProto:
    """Connect ``graphs``, given in order, into one with their inputs and outputs among ``signature``.

    Tensors with equal names are the same tensor.
    """
    ports: dict[str, onnx.ValueInfoProto] = {}
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    for part, model in graphs.items():
        prefixed = compose.add_prefix(model, f"{part}/", rename_inputs=False, rename_outputs=False)
        graph = prefixed.graph
        for port in (*graph.input, *graph.output):
            ports[port.name] = port
        nodes += graph.node
        weights += graph.initializer
    inputs = [ports[name] for name in port_names(signature.inputs) if name in ports]
    outputs = [ports[name] for name in port_names(signature.outputs) if name in ports]
    joined = onnx.helper.make_graph(nodes, name, inputs, outputs, weights)
    first = next(iter(graphs.values()))
    return onnx.helper.make_model(joined, opset_imports=first.opset_import, ir_version=first.ir_version)


def without_unused(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove nodes, weights and inputs on which no output depends."""
    remove_unused_nodes(model)
    graph = model.graph
    used_names = set(port_names(graph.output))
    for node in graph.node:
        used_names |= set(_names_read(node))
    for inputs in (graph.input, graph.initializer):
        used_inputs = ports_among(inputs, used_names)
        del inputs[:]
        inputs.extend(used_inputs)
    return model


def _names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of the tensors that a node and its subgraphs read."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _names_read(inner)


def traced_inputs(ports: tuple[Port, ...], sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
    """Make values for ``ports``; ``sizes`` override :data:`TRACED_SIZES`."""
    values = []
    for port in ports:
        shape = [int(size) for size in resolved(port, TRACED_SIZES | dict(sizes))]
        dtype = getattr(torch, port.dtype)
        if dtype.is_floating_point:
            values.append(torch.rand(shape, dtype=dtype))
        else:
            values.append(torch.full(shape, dtype == torch.bool, dtype=dtype))
    return tuple(values)


def _dynamic_shapes(ports: tuple[Port, ...], sizes: Mapping[str, int]) -> tuple[dict[int, Dim] | None, ...]:
    """Return the dynamic axes of each port: the scene sizes that ``sizes`` does not fix."""
    dims: dict[str, Dim] = {}
    for size in sorted(TRACED_SIZES.keys() - sizes.keys()):
        if any(size in port.shape for port in ports):
            dims[size] = Dim(size)
    shapes: list[dict[int, Dim] | None] = []
    for port in ports:
        dynamic: dict[int, Dim] = {}
        for axis, name in enumerate(port.shape):
            if name in dims:
                dynamic[axis] = dims[str(name)]
        shapes.append(dynamic or None)
    return tuple(shapes)


def _hypot(x: Any, y: Any) -> Any:
    """Translate ``hypot``, which ONNX lacks; distances within a scene are far from overflow."""
    return opset18.Sqrt(opset18.Add(opset18.Mul(x, x), opset18.Mul(y, y)))


def _index_add(values: Any, dim: int, index: Any, source: Any, alpha: int = 1) -> Any:
    """Translate ``index_add`` to ScatterElements.

    The exporter's own choice, ScatterND, gives wrong sums in onnxruntime with several threads, which add to
    one row at the same time.
    """
    if alpha != 1:
        source = opset18.Mul(source, opset18.CastLike(opset18.Constant(value_float=float(alpha)), source))
    return _scattered(values, dim, index, source, "add")


def _scattered(values: Any, dim: int, index: Any, source: Any, reduction: str) -> Any:
    """Scatter ``source`` to the rows ``index`` of the axis ``dim`` of ``values``."""
    rank = len(source.shape)
    other_axes = list(range(rank))
    other_axes.remove(dim % rank)
    rows = index
    if other_axes:
        rows = opset18.Unsqueeze(index, opset18.Constant(value_ints=other_axes))
    rows = opset18.Expand(rows, opset18.Shape(source))
    return opset18.ScatterElements(values, rows, source, axis=dim, reduction=reduction)


def _index_copy(values: Any, dim: int, index: Any, source: Any) -> Any:
    """Translate ``index_copy`` to ScatterElements: one scatter along any axis, without transposing."""
    return _scattered(values, dim, index, source, "none")


def _index_select(values: Any, dim: int, index: Any) -> Any:
    """Translate ``index_select`` to Gather; columns of a matrix become rows of its transpose.

    onnxruntime copies contiguous values at once; columns would be copied number by number.
    """
    are_columns = len(values.shape) == 2 and dim in (1, -1)
    if not are_columns:
        return opset18.Gather(values, index, axis=dim)
    rows = opset18.Gather(opset18.Transpose(values, perm=[1, 0]), index, axis=0)
    return opset18.Transpose(rows, perm=[1, 0])


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.prims.hypot.default: _hypot,
    torch.ops.aten.index_add.default: _index_add,
    torch.ops.aten.index_copy.default: _index_copy,
    torch.ops.aten.index_select.default: _index_select,
}


def _without_metadata(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove the exporter's records about the machine and the source code."""
    for part in (model, model.graph, *model.graph.node, *model.graph.value_info):
        del part.metadata_props[:]
        part.doc_string = ""
    for port in (*model.graph.input, *model.graph.output):
        del port.metadata_props[:]
    del model.functions[:]
    return model


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress log messages up to warnings, and the graphs that PyTorch prints if tracing fails."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


class SizesStayOpen(TorchFunctionMode):
    """Raise an error where ``len`` of a tensor would fix a scene size in the graph."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.__len__ and isinstance(args[0].shape[0], torch.SymInt):
            raise TypeError("len fixes a size of the scene, use x.shape[0]")
        return func(*args, **(kwargs or {}))
