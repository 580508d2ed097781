"""How exactly a bundle keeps and multiplies the trained matrices.

Positions, headings, scores, softmax and normalisation stay float32 in all of them.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Precision = Literal["fp32", "fp16", "int8"]
#: Operators that multiply by a trained matrix.
MULTIPLYING = ("Gemm", "MatMul", "Conv")


class Rule(NamedTuple):
    """One precision.

    Attributes:
        convert: a float32 graph -> the graph as it is kept.
        usual_m: metres that 99 % of the agents' farthest points stay within of PyTorch's.
        largest_m: the same of all of them; None if a few may go elsewhere.
        metric: by how much, as a share, the mean minFDE6 may rise.
    """

    convert: Callable[[onnx.ModelProto], onnx.ModelProto]
    usual_m: float
    largest_m: float | None
    metric: float


def to_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Trained matrices in float16, and products with them in it; all else in float32.

    Runtimes without such products (onnxruntime on a CPU) compute them in float32.
    """
    half = onnx.ModelProto()
    half.CopyFrom(model)
    kept = {one.name: one for one in half.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    done: dict[str, str] = {}
    for number, node in enumerate(half.graph.node):
        if node.op_type in MULTIPLYING and node.input[1] in kept:
            _halve(half.graph, node, number, kept, done, nodes)
        else:
            nodes.append(node)
    del half.graph.node[:]
    half.graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    alive = [one for one in half.graph.initializer if one.name in used]
    del half.graph.initializer[:]
    half.graph.initializer.extend(alive)
    return half


def _halve(
    graph: onnx.GraphProto,
    node: onnx.NodeProto,
    number: int,
    kept: dict[str, TensorProto],
    done: dict[str, str],
    nodes: list[onnx.NodeProto],
) -> None:
    """Add ``node`` between casts to ``nodes``, and what it needs to ``graph``."""
    inputs = [f"{node.input[0]}_half_{number}"]
    nodes.append(helper.make_node("Cast", [node.input[0]], inputs, to=TensorProto.FLOAT16))
    for name in node.input[1:]:
        if name in kept and name not in done:
            done[name] = f"{name}_half"
            values = numpy_helper.to_array(kept[name]).astype(np.float16)
            graph.initializer.append(numpy_helper.from_array(values, done[name]))
        inputs.append(done.get(name, name))
    product = f"{node.output[0]}_half"
    halved = onnx.NodeProto()
    halved.CopyFrom(node)
    del halved.input[:], halved.output[:]
    halved.input.extend(inputs)
    halved.output.append(product)
    nodes.append(halved)
    nodes.append(helper.make_node("Cast", [product], list(node.output), to=TensorProto.FLOAT))


def to_int8(model: onnx.ModelProto) -> onnx.ModelProto:
    """Trained matrices in 8 bits with a scale for every column, inputs quantised as they come (dynamic)."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        bare = onnx.ModelProto()
        bare.CopyFrom(model)
        del bare.graph.value_info[:]  # they name the shapes that the quantiser is about to change
        onnx.save(bare, before)
        products = ["MatMul", "Gemm"]
        logging.disable(logging.WARNING)  # of a preprocessing that these graphs went through
        try:
            quantize_dynamic(
                before, after, op_types_to_quantize=products, weight_type=QuantType.QInt8, per_channel=True
            )
        finally:
            logging.disable(logging.NOTSET)
        return onnx.load(after)


PRECISIONS: dict[str, Rule] = {
    "fp32": Rule(lambda model: model, 1e-3, 1e-2, 0.001),
    "fp16": Rule(to_half, 0.1, None, 0.01),
    "int8": Rule(to_int8, 2.0, None, 0.05),
}
