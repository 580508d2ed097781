"""Any encoder and decoder exports as standard ONNX if it traces; otherwise module and operation are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from tests.conftest import rejects
from tests.export.conftest import traced_before
from tests.model.small import TINY, checkpoint_of, small_model
from trajpred.data.batch import ScenarioBatch
from trajpred.data.scenario import Scenario
from trajpred.export.export_bundle import export_bundle
from trajpred.export.graphs import DecoderModel, Scene
from trajpred.export.trace import traced_inputs
from trajpred.features.config import GraphConfig
from trajpred.model import Prediction, SceneDecoder, TokenEncoder
from trajpred.nn.edge_attention import Operator
from trajpred.onboard import Bundle, OnboardForecaster
from trajpred.onboard.bundle import ENCODER_GRAPHS, FUSED, GRAPHS, SIGNATURES
from trajpred.predictors.checkpoint import CheckpointPredictor


class AverageEncoder(TokenEncoder):
    """Adds the sum of all senders and the mean of the scene, which padding would change."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__(dim)
        self.out = nn.Linear(dim, dim)

    def interact(self, x: Tensor, graph: Any) -> Tensor:
        sender, receiver = graph.index
        summed = torch.zeros_like(x).index_add(0, receiver, self.out(x)[sender])
        return x + 0.1 * summed + x.mean(0)


class StraightDecoder(SceneDecoder):
    """One straight path per mode, from the token and the velocity, with constant scales."""

    def __init__(self, horizon: int = 60, dim: int = 16, modes: int = 3) -> None:
        super().__init__(horizon, dim, modes)
        self.out = nn.Linear(dim + 2, modes * 3)

    def forward(
        self, tokens: Any, batch: Any, joint: bool = False, agents: Tensor | None = None
    ) -> Prediction:
        rows = torch.arange(tokens.agent.shape[0]) if agents is None else agents
        x = torch.cat((tokens.agent, batch["agent"].velocity), -1)[rows]
        step, logits = self.out(x).unflatten(-1, (self.modes, 3)).split((2, 1), -1)
        time = torch.arange(1, self.horizon + 1)[:, None] * batch.step_s
        path = step[:, :, None] * time
        return Prediction(path, torch.ones_like(path), logits[..., 0])


class SizeOfData(AverageEncoder):
    def interact(self, x: Tensor, graph: Any) -> Tensor:
        return x + torch.zeros(int(graph.kind.max()) + 1).sum()


class LengthOfTensor(AverageEncoder):
    def interact(self, x: Tensor, graph: Any) -> Tensor:
        return x + torch.zeros(len(x), x.shape[1])


class Accumulated(AverageEncoder):
    def interact(self, x: Tensor, graph: Any) -> Tensor:
        return torch.zeros_like(x).index_put((graph.index[1],), x[graph.index[0]], accumulate=True)


class Eigenvalues(AverageEncoder):
    def interact(self, x: Tensor, graph: Any) -> Tensor:
        return x + torch.linalg.eigvalsh(x.T @ x)


def own_model(folder: Path, **parts: type[nn.Module]) -> Path:
    """Save a model with an encoder, or a decoder, of another class."""
    own = {name: {"class_path": f"{part.__module__}.{part.__qualname__}"} for name, part in parts.items()}
    return checkpoint_of(small_model(**TINY | own), folder / "own.ckpt")


def test_targets_are_rows_of_the_agents_that_are_left_without_padding() -> None:
    scene = Scene(SIGNATURES["decoder"].inputs, GraphConfig())
    ports = scene.signature.inputs
    sizes = {"F": 3, "S": 3, "D": 4, "K": 6, "W": 1, "T": 5}
    names = [port.name for port in ports]
    values = dict(zip(names, traced_inputs(ports, sizes), strict=True))
    values["agent_valid"] = torch.tensor([False, True, False, True, True, False, True])
    values["target"] = torch.tensor([6, 1, 4, 3, 6])
    names = [port.name for port in scene.signature.outputs]
    outputs = dict(zip(names, scene(*values.values()), strict=True))
    assert outputs["real_target"].tolist() == [3, 0, 2, 1, 3]
    kept = outputs["real_agent_token"][outputs["real_target"]]
    assert torch.equal(kept, values["agent_token"][values["target"]])


@torch.no_grad()
def test_temperature_divides_the_logits(predictor: CheckpointPredictor) -> None:
    decoder = predictor.model.decoder
    scene = Scene(SIGNATURES["decoder"].inputs, GraphConfig())
    torch.manual_seed(0)
    sizes = {"T": 50, "D": 16, "K": 6, "F": 60, "S": 60, "W": 1, "A": 3, "L": 5, "B": 2}
    values = scene(*traced_inputs(scene.signature.inputs, sizes))
    usual = DecoderModel(decoder, scene, False, 1.0)(*values)[-1]
    flatter = DecoderModel(decoder, scene, False, 2.0)(*values)[-1]
    root = usual.sqrt()
    torch.testing.assert_close(flatter, root / root.sum(-1, keepdim=True))


@pytest.mark.parametrize("sizes", [None, pytest.param((70, 230), marks=pytest.mark.slow)])
def test_own_encoder_and_decoder(
    scenes: list[Scenario], tmp_path: Path, sizes: tuple[int, int] | None
) -> None:
    """Padding reaches neither, and targets may come in any order."""
    checkpoint = own_model(tmp_path, encoder=AverageEncoder, decoder=StraightDecoder)
    result = export_bundle(checkpoint, tmp_path / "bundle", scenes[:2], sizes=sizes, progress=False)
    assert result.summary()
    assert len(result.cases) == 5
    onboard = OnboardForecaster(tmp_path / "bundle")
    predictor = CheckpointPredictor(checkpoint)
    [expected] = predictor(scenes[:1])
    names = expected.track_id[::-1][:3].tolist()
    forecast = onboard.forecast(ScenarioBatch.of(scenes[:1]), names)
    assert forecast.track_id.tolist() == names
    rows = expected.rows(forecast.track_id)
    np.testing.assert_allclose(forecast.trajectory, expected.trajectory[rows], rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (SizeOfData, r"SizeOfData in test_graphs.py, line \d+, `return .*int\(graph.kind.max.*cannot be"),
        pytest.param(
            LengthOfTensor,
            r"LengthOfTensor in .*`return x \+ torch.zeros\(len.*: len fixes a size of the sc",
            marks=pytest.mark.slow,
        ),
        (Accumulated, r"Accumulated accumulates with index_put, which onnxruntime computes wrongly"),
        pytest.param(
            Eigenvalues,
            r"Eigenvalues uses the operation aten\.\w*eig\w*(\.\w+)?, which ONNX lacks$",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_traced_is_named(
    scenes: list[Scenario],
    tmp_path: Path,
    encoder: type[nn.Module],
    message: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    checkpoint = own_model(tmp_path, encoder=encoder)
    rejects(message, export_bundle, checkpoint, tmp_path / "bundle", scenes[:1], progress=False)
    assert not capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["own.ckpt"]


@pytest.mark.slow
@pytest.mark.parametrize("attention", get_args(Operator))
def test_a_decoder_with_a_published_operator_is_exported(
    attention: str, bundle: Path, scenes: list[Scenario], tmp_path: Path
) -> None:
    """Both of its stages; the encoder has the weights of ``bundle``."""
    decoder = TINY["decoder"] | {"init_args": TINY["decoder"]["init_args"] | {"attention": attention}}
    checkpoint = checkpoint_of(small_model(**TINY | {"decoder": decoder}), tmp_path / "model.ckpt")
    with traced_before(bundle, ENCODER_GRAPHS):
        result = export_bundle(checkpoint, tmp_path / "bundle", scenes[:1], progress=False)
    assert result.largest < 1e-3
    assert len(result.cases) == 4
    assert "ScatterElements" in Bundle(tmp_path / "bundle").info["graphs"]["decoder"]["operators"]


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
