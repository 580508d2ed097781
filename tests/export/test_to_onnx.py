"""The graphs: valid ONNX, standard operators, the signature's names and shapes, nothing of the machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from trajpred.onboard.bundle import FUSED, GRAPHS, SIGNATURES, Bundle

each_graph = pytest.mark.parametrize("name", [*GRAPHS, FUSED])


@each_graph
def test_is_valid_and_of_standard_operators(bundle: Path, name: str) -> None:
    model = onnx.load(bundle / f"{name}.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert not model.functions
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    assert [(one.domain, one.version) for one in model.opset_import if one.domain in ("", "ai.onnx")] == [
        ("", 20)
    ]


@each_graph
def test_takes_and_gives_what_the_signature_says(bundle: Path, name: str) -> None:
    session = onnxruntime.InferenceSession(bundle / f"{name}.onnx")
    sides = zip((session.get_inputs(), session.get_outputs()), SIGNATURES[name], strict=True)
    for found, expected in sides:
        assert [x.name for x in found] == [port.name for port in expected]
        assert [len(x.shape) for x in found] == [len(port.shape) for port in expected]
    taken = {x.name: x for x in session.get_inputs()}
    for port in SIGNATURES[name].inputs:
        open_axes = [i for i, size in enumerate(port.shape) if size in ("A", "L", "B")]
        assert [i for i, size in enumerate(taken[port.name].shape) if isinstance(size, str)] == open_axes


@each_graph
def test_tells_nothing_of_the_machine(bundle: Path, name: str) -> None:
    content = (bundle / f"{name}.onnx").read_bytes()
    assert b"/home" not in content and b".py" not in content


@each_graph
def test_the_example_is_what_the_graph_gives(bundle: Path, name: str) -> None:
    example = Bundle(bundle).example()
    session = onnxruntime.InferenceSession(bundle / f"{name}.onnx")
    found = session.run(None, {x.name: example[f"{name}/{x.name}"] for x in session.get_inputs()})
    for port, value in zip(session.get_outputs(), found, strict=True):
        np.testing.assert_allclose(value, example[f"{name}/{port.name}"], rtol=1e-4, atol=1e-4)
