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
    assert b"/home" not in content and b".py" not in content
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    assert not model.functions and {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    assert [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")] == [20]

    session = onnxruntime.InferenceSession(content)
    inputs, outputs = ({port.name: port for port in side} for side in SIGNATURES[name])
    assert [x.name for x in session.get_outputs()] == list(outputs)
    for found in (*session.get_inputs(), *session.get_outputs()):
        assert len(found.shape) == len((inputs | outputs)[found.name].shape)
    for found in session.get_inputs():
        dynamic = [size in ("A", "L", "B") for size in inputs[found.name].shape]
        assert [isinstance(size, str) for size in found.shape] == dynamic

    example = Bundle(bundle).example()
    outputs = session.run(None, {x.name: example[f"{name}/{x.name}"] for x in session.get_inputs()})
    for port, value in zip(session.get_outputs(), outputs, strict=True):
        np.testing.assert_allclose(value, example[f"{name}/{port.name}"], rtol=1e-4, atol=1e-4)
