"""Modules of ``graphs`` -> ONNX models, by torch's exporter."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any

import onnx
import torch
from onnx import compose
from onnxscript import opset18
from torch import nn

from trajpred.export.trace import open_shapes, traced_inputs
from trajpred.onboard.signature import SIGNATURES


def to_onnx(module: nn.Module, name: str, sizes: Mapping[str, int], opset: int) -> onnx.ModelProto:
    """``module`` as the graph ``name`` of :data:`~trajpred.onboard.signature.SIGNATURES`.

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
