"""Traced graphs are standard ONNX with the names and shapes of the signature, and nothing of the machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from tests.export.test_graphs import LETTERS
from trajpred.errors import DataError
from trajpred.export.graphs import Decoder, Encoder, WholeForecaster
from trajpred.export.trace import load_compiled, to_torch, traced_inputs
from trajpred.onboard import Bundle
from trajpred.onboard.bundle import FUSED, GRAPHS, SIGNATURES
from trajpred.predictors.checkpoint import CheckpointPredictor


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


@pytest.fixture
def whole(predictor: CheckpointPredictor) -> WholeForecaster:
    model = predictor.model
    encoder = Encoder(model.encoder, model.scene.graph)
    return WholeForecaster(model.encoder.lane, encoder, Decoder(model.decoder)).eval()


@pytest.mark.slow
@torch.no_grad()
def test_compiled_graph_equals_the_module_at_any_size(whole: WholeForecaster, tmp_path: Path) -> None:
    path = tmp_path / "forecaster.pt2"
    to_torch(whole, LETTERS, path)
    compiled = load_compiled(path)
    for A, L, B in ((1, 1, 1), (1, 5, 1), (26, 77, 3), (3, 40, 9), (60, 200, 60)):
        torch.manual_seed(A)
        inputs = traced_inputs(whole.inputs, {**LETTERS, "A": A, "L": L, "B": B})
        for found, expected in zip(compiled([x.numpy() for x in inputs]), whole(*inputs), strict=True):
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-3)


def test_compiling_needs_a_compiler(
    whole: WholeForecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("no-compiler",))
    with pytest.raises(DataError, match=r"whole\.pt2: compiling needs a C\+\+ compiler"):
        to_torch(whole, LETTERS, tmp_path / "whole.pt2")
    assert not any(tmp_path.iterdir())
