"""Half precision and 8 bits: which tensors change, and by how much."""

from __future__ import annotations

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
    return session.run(None, {x.name: example[f"{name}/{x.name}"] for x in session.get_inputs()})


@pytest.mark.parametrize("name", GRAPHS)
def test_half_converts_weight_matrices_only(bundle: Path, name: str) -> None:
    model = onnx.load(bundle / f"{name}.onnx")
    half = to_half(model)
    onnx.checker.check_model(half, full_check=True)
    before = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    after = {one.name: numpy_helper.to_array(one) for one in half.graph.initializer}
    matrices = [n.input[1] for n in model.graph.node if n.op_type in PRODUCTS and n.input[1] in before]
    assert matrices
    curves = [matrix for matrix in matrices if CURVES in matrix]
    assert (
        len(curves) == 2 * (name == "decoder") and not {f"{matrix}_half" for matrix in curves} & after.keys()
    )
    for matrix in set(matrices) - set(curves):
        np.testing.assert_array_equal(after[f"{matrix}_half"], before[matrix].astype(np.float16))
    assert all(port.type.tensor_type.elem_type != TensorProto.FLOAT16 for port in half.graph.input)
    for exact, found in zip(outputs(model, bundle, name), outputs(half, bundle, name), strict=True):
        assert found.dtype == np.float32
        assert 0 < np.abs(found - exact).max() < 0.02 * max(1.0, np.abs(exact).max())


def test_int8_quantises_products(bundle: Path) -> None:
    model = onnx.load(bundle / "lane_encoder.onnx")
    before = model.SerializeToString()
    small = to_int8(model)
    assert {n.op_type for n in small.graph.node} >= {"MatMulInteger", "DynamicQuantizeLinear"}
    [exact] = outputs(model, bundle, "lane_encoder")
    [found] = outputs(small, bundle, "lane_encoder")
    assert 0 < np.abs(found - exact).max() < 0.3 * np.abs(exact).max()
    assert model.SerializeToString() == before


def test_int8_keeps_the_layers_that_read_trajectories(bundle: Path) -> None:
    model = onnx.load(bundle / "decoder.onnx")
    weights = {name for node in model.graph.node for name in node.input if name.endswith("weight")}
    reading = {name for name in weights if any(part in name for part in TRAJECTORY_WEIGHTS)}
    kept = {w.name.removesuffix("_Transposed") for w in to_int8(model).graph.initializer}
    assert len(reading) == 2 and reading <= kept and sum(CURVES in name for name in kept) == 2
    assert "module.decoder.logit_head.0.weight" in weights - kept
