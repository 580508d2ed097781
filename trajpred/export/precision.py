"""Precision of the weight matrices in a bundle.

Positions, headings, scores, softmax and normalisation stay float32 at every precision.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from trajpred.export.interface import ports_among
from trajpred.export.trace import quiet

Precision = Literal["fp32", "fp16", "int8"]
#: Operators that multiply by a weight matrix, their second input.
PRODUCTS = ("Gemm", "MatMul", "Conv")
#: Parts of the names of weights that read trajectories: 8 bits for the farthest leave nothing for the others.
TRAJECTORY_WEIGHTS = (".anchor.", ".proposal.")
#: The matrix of a head that turns control points into futures; rounding it would move all of them.
CURVES = ".curves"


class PrecisionRule(NamedTuple):
    """How to convert to a precision, and the deviation from PyTorch that it may cause.

    Attributes:
        convert: float32 graph -> converted graph.
        usual_m: limit for 99 % of the agents: distance between corresponding points of the futures, metres.
        largest_m: the same limit for all agents, or None.
        metric: largest relative increase of the mean minFDE.
        token: limit on the relative difference of every token, for encoders exported alone.
    """

    convert: Callable[[onnx.ModelProto], onnx.ModelProto]
    usual_m: float
    largest_m: float | None
    metric: float
    token: float


def to_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Convert weight matrices, except those of :data:`CURVES`, and their products to float16.

    Runtimes without float16 products (onnxruntime on a CPU) compute them in float32.
    """
    half = onnx.ModelProto()
    half.CopyFrom(model)
    graph = half.graph
    weights = {weight.name: weight for weight in graph.initializer}
    converted: dict[str, onnx.TensorProto] = {}
    nodes: list[onnx.NodeProto] = []
    for index, node in enumerate(graph.node):
        if node.op_type not in PRODUCTS or node.input[1] not in weights or CURVES in node.input[1]:
            nodes.append(node)
            continue
        for name in node.input[1:]:
            if name in weights and name not in converted:
                values = numpy_helper.to_array(weights[name]).astype(np.float16)
                converted[name] = numpy_helper.from_array(values, f"{name}_half")
        nodes += _half_product(node, f"{node.input[0]}_half_{index}", set(converted))
    used: set[str] = set()
    for node in nodes:
        used.update(node.input)
    kept = ports_among([*weights.values(), *converted.values()], used)
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return half


def _half_product(node: onnx.NodeProto, cast_input: str, converted: set[str]) -> list[onnx.NodeProto]:
    """Return ``node`` in float16 between casts of its input and output."""
    cast_output = f"{node.output[0]}_half"
    product = onnx.NodeProto()
    product.CopyFrom(node)
    product.input[0] = cast_input
    for position, name in enumerate(node.input):
        if position > 0 and name in converted:
            product.input[position] = f"{name}_half"
    product.output[:] = [cast_output]
    return [
        helper.make_node("Cast", [node.input[0]], [cast_input], to=onnx.TensorProto.FLOAT16),
        product,
        helper.make_node("Cast", [cast_output], list(node.output), to=onnx.TensorProto.FLOAT),
    ]


def to_int8(model: onnx.ModelProto) -> onnx.ModelProto:
    """Quantise weight matrices to 8 bits, one scale per column; inputs are quantised at run time.

    Layers that read trajectories stay float32, and so do curves and layers that read concatenated features:
    the windows of histories, whose channels differ by orders of magnitude.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    source = onnx.ModelProto()
    source.CopyFrom(model)
    del source.graph.value_info[:]  # names shapes that the quantiser is about to change
    joined = {node.output[0] for node in source.graph.node if node.op_type == "Concat"}
    exact: list[str] = []
    for node in source.graph.node:
        if _stays_exact(node, joined):
            exact.append(node.name)
            exact.append(f"{node.name}_MatMul")  # what the quantiser makes of a Gemm before
    with tempfile.TemporaryDirectory() as folder, quiet():
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(
            source,
            path,
            op_types_to_quantize=["MatMul", "Gemm"],
            weight_type=QuantType.QInt8,
            per_channel=True,
            nodes_to_exclude=exact,
        )
        return onnx.load(path)


def _stays_exact(node: onnx.NodeProto, joined: set[str]) -> bool:
    if not joined.isdisjoint(node.input):
        return True
    names = " ".join(node.input)
    return any(part in names for part in (*TRAJECTORY_WEIGHTS, CURVES))


PRECISIONS: dict[str, PrecisionRule] = {
    "fp32": PrecisionRule(
        convert=lambda model: model,
        usual_m=1e-3,
        largest_m=1e-2,
        metric=0.001,
        token=1e-4,
    ),
    "fp16": PrecisionRule(
        convert=to_half,
        usual_m=0.1,
        largest_m=None,
        metric=0.01,
        token=0.03,
    ),
    "int8": PrecisionRule(
        convert=to_int8,
        usual_m=2.0,
        largest_m=None,
        metric=0.05,
        token=0.5,
    ),
}
