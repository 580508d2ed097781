"""Half precision and 8 bits: which tensors change, and by how much."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

from trajpred.export.precision import CURVES, PRODUCTS, TRAJECTORY_WEIGHTS, to_half, to_int8
from trajpred.onboard import Bundle
from trajpred.onboard.bundle import GRAPHS


def outputs(model: onnx.ModelProto, bundle: Path, name: str) -> list[np.ndarray]:
    example = Bundle(bundle).example()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    inputs = {port.name: example[f"{name}/{port.name}"] for port in session.get_inputs()}
    return session.run(None, inputs)


def weights_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}


@pytest.mark.parametrize("name", GRAPHS)
def test_half_converts_weight_matrices_only(bundle: Path, name: str) -> None:
    model = onnx.load(bundle / f"{name}.onnx")
    half = to_half(model)
    onnx.checker.check_model(half, full_check=True)
    before = weights_of(model)
    after = weights_of(half)
    curves = 0
    matrices = 0
    for node in model.graph.node:
        if node.op_type not in PRODUCTS or node.input[1] not in before:
            continue
        matrix = node.input[1]
        matrices += 1
        if CURVES in matrix:
            curves += 1
            assert f"{matrix}_half" not in after
        else:
            np.testing.assert_array_equal(after[f"{matrix}_half"], before[matrix].astype(np.float16))
    assert matrices > 0
    assert curves == (2 if name == "decoder" else 0)
    for port in half.graph.input:
        assert port.type.tensor_type.elem_type != TensorProto.FLOAT16
    for exact, rounded in zip(outputs(model, bundle, name), outputs(half, bundle, name), strict=True):
        assert rounded.dtype == np.float32
        assert 0 < np.abs(rounded - exact).max() < 0.02 * max(1.0, np.abs(exact).max())


def test_int8_quantises_products(bundle: Path) -> None:
    model = onnx.load(bundle / "lane_encoder.onnx")
    before = model.SerializeToString()
    small = to_int8(model)
    assert {n.op_type for n in small.graph.node} >= {"MatMulInteger", "DynamicQuantizeLinear"}
    [exact] = outputs(model, bundle, "lane_encoder")
    [rounded] = outputs(small, bundle, "lane_encoder")
    assert 0 < np.abs(rounded - exact).max() < 0.3 * np.abs(exact).max()
    assert model.SerializeToString() == before


def test_int8_keeps_the_layers_that_read_trajectories(bundle: Path) -> None:
    model = onnx.load(bundle / "decoder.onnx")
    inputs: set[str] = set()
    for node in model.graph.node:
        inputs.update(node.input)
    weights = {name for name in inputs if name.endswith("weight")}
    reading = {name for name in weights if re.search("|".join(TRAJECTORY_WEIGHTS), name)}
    kept = {name.removesuffix("_Transposed") for name in weights_of(to_int8(model))}
    assert len(reading) == 2
    assert reading <= kept
    assert sum(CURVES in name for name in kept) == 2
    assert "module.decoder.logit_head.0.weight" in weights - kept
