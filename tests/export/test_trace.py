"""Traced graphs are standard ONNX with the names and shapes of the signature, and nothing of the machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from trajpred.onboard import Bundle
from trajpred.onboard.bundle import FUSED, GRAPHS, SIGNATURES


@pytest.mark.parametrize("name", [*GRAPHS, FUSED])
def test_graph_is_standard_and_follows_the_signature(bundle: Path, name: str) -> None:
    content = (bundle / f"{name}.onnx").read_bytes()
    assert b"/home" not in content
    assert b".py" not in content
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    assert not model.functions
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    standard = [opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")]
    assert standard == [20]

    session = onnxruntime.InferenceSession(content)
    inputs = {port.name: port for port in SIGNATURES[name].inputs}
    outputs = {port.name: port for port in SIGNATURES[name].outputs}
    assert [port.name for port in session.get_outputs()] == list(outputs)
    for port in session.get_outputs():
        assert len(port.shape) == len(outputs[port.name].shape)
    for port in session.get_inputs():
        for size, expected in zip(port.shape, inputs[port.name].shape, strict=True):
            assert isinstance(size, str) == (expected in ("A", "L", "B"))

    example = Bundle(bundle).example()
    values = {port.name: example[f"{name}/{port.name}"] for port in session.get_inputs()}
    for port, value in zip(session.get_outputs(), session.run(None, values), strict=True):
        np.testing.assert_allclose(value, example[f"{name}/{port.name}"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", GRAPHS)
def test_no_value_inside_a_graph_is_denormal(bundle: Path, name: str) -> None:
    """Processors take many times as long for products with denormal numbers."""
    model = onnx.load(bundle / f"{name}.onnx")
    floats = [
        value.name
        for value in onnx.shape_inference.infer_shapes(model).graph.value_info
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    ]
    for inner in floats:
        model.graph.output.append(onnx.helper.make_tensor_value_info(inner, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    example = Bundle(bundle).example()
    values = {port.name: example[f"{name}/{port.name}"] for port in session.get_inputs()}
    tiny = np.finfo(np.float32).tiny
    assert len(floats) > 20
    for inner, value in zip(floats, session.run(floats, values), strict=True):
        assert not ((value != 0) & (np.abs(value) < tiny)).any(), inner
