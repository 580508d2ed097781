"""Exporting: what a bundle contains, that it equals the model, and that a failure leaves nothing behind."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from tests.conftest import rejects, run
from tests.export.conftest import traced_before
from tests.model.small import TINY, checkpoint_of, small_model
from tests.scenes import alone
from trajpred import resample
from trajpred.cli.models import checked_rows
from trajpred.data.batch import ScenarioBatch
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.data.splits import half_of
from trajpred.export import check as check_module
from trajpred.export import export_bundle as module
from trajpred.export.check import TOLERANCE_M, Case, Check, check, require_limits
from trajpred.export.export_bundle import export_bundle
from trajpred.model import ModeDecoder, Prediction, SceneDecoder, SceneTokens, pretrained
from trajpred.model.checkpoint import TRAINING
from trajpred.onboard import Bundle, OnboardForecaster
from trajpred.onboard.bundle import ENCODER_GRAPHS, INTERFACE, MANIFEST, SIGNATURES, is_bundle
from trajpred.predictors.checkpoint import CheckpointPredictor


@pytest.fixture
def traced(bundle: Path) -> Iterator[None]:
    """Replace tracing by the graphs of the same checkpoint that were traced before."""
    with traced_before(bundle):
        yield


def test_manifest_describes_the_bundle(
    bundle: Path, checkpoint: Path, predictor: CheckpointPredictor, scenes: list[Scenario]
) -> None:
    info = json.loads((bundle / MANIFEST).read_text())
    assert set(info["files"]) | {MANIFEST} == {path.name for path in bundle.iterdir()}
    for name, file in info["files"].items():
        content = (bundle / name).read_bytes()
        assert file == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert info["model"]["config"] == TINY
    assert info["name"] == predictor.name
    assert (info["precision"], info["opset"], info["sizes"]) == ("fp32", 20, None)
    assert str(checkpoint.parent) not in (bundle / MANIFEST).read_text()
    for name, graph in info["graphs"].items():
        session = onnxruntime.InferenceSession(bundle / f"{name}.onnx")
        inputs = [port["name"] for port in graph["inputs"]]
        assert inputs == [port.name for port in session.get_inputs()]
        assert inputs == [port.name for port in SIGNATURES[name].inputs if port.name in inputs]
    check = info["check"]
    assert check["usual"] <= check["limit"] == 1e-3
    assert len(check["cases"]) == len(scenes) + 3
    agents = [case["agents"] for case in check["cases"]]
    lanes = [case["lanes"] for case in check["cases"]]
    assert min(agents) == 1
    assert max(agents) > 50
    assert min(lanes) == 0


def test_interface_page_lists_every_tensor(bundle: Path) -> None:
    info = Bundle(bundle).info
    page = (bundle / INTERFACE).read_text()
    for name, graph in info["graphs"].items():
        assert f"## {name}.onnx" in page
        ports = graph["inputs"] + graph["outputs"]
        for listed in [*(port["name"] for port in ports), *graph["operators"]]:
            assert f"`{listed}`" in page
    summary = info["check"]["summary"]
    assert f"Result: {summary}." in page
    assert "; focal minFDE" in page


@pytest.mark.usefixtures("traced")
def test_zip_file(
    checkpoint: Path, predictor: CheckpointPredictor, scenes: list[Scenario], tmp_path: Path
) -> None:
    out = tmp_path / "new" / "bundle.zip"
    result = export_bundle(checkpoint, out, scenes[:1], tolerance_m=0.1)
    assert [path.name for path in out.parent.iterdir()] == ["bundle.zip"]
    forecast = OnboardForecaster(out).forecast(ScenarioBatch.of(scenes[:1])).validate()
    [expected] = predictor(scenes[:1])
    distance = np.abs(forecast.trajectory - expected.trajectory).max()
    assert 0 < distance <= result.cases[0].largest < 1e-3


@pytest.mark.usefixtures("traced")
def test_weights_keep_their_licence(checkpoint: Path, scenes: list[Scenario], tmp_path: Path) -> None:
    """Weights that were fine-tuned from shipped ones, and a copy of the shipped file."""
    content = torch.load(checkpoint, weights_only=True)
    torch.save(content | {TRAINING: {"weights": "argoverse-nano"}}, tmp_path / "tuned.ckpt")
    export_bundle(tmp_path / "tuned.ckpt", tmp_path / "bundle", scenes[:1])
    exported = Bundle(tmp_path / "bundle")
    assert exported.licence.startswith("CC BY-NC-SA 4.0")
    assert b"CC BY-NC-SA 4.0" in exported.read("LICENSE")
    assert "see `LICENSE`" in (tmp_path / "bundle" / INTERFACE).read_text()
    shutil.copy(pretrained.FOLDER / "argoverse-nano.pt", tmp_path / "copied.pt")
    assert pretrained.licence_of(tmp_path / "copied.pt", {}) == exported.licence
    again = {"weights": "tuned.ckpt", "licence": exported.licence}
    assert pretrained.licence_of(checkpoint, again) == exported.licence
    assert not pretrained.licence_of(checkpoint, {"weights": "tuned.ckpt", "licence": ""})
    assert not pretrained.licence_of(checkpoint, {})


@pytest.mark.usefixtures("traced")
def test_failed_check_leaves_nothing_and_keeps_the_bundle_before(
    bundle: Path, checkpoint: Path, scenes: list[Scenario], tmp_path: Path
) -> None:
    out = tmp_path / "bundle"
    rejects("differs from the model", export_bundle, checkpoint, out, scenes[:1], tolerance_m=1e-12)
    assert not list(tmp_path.iterdir())
    shutil.copytree(bundle, out)
    rejects("differs from the model", export_bundle, checkpoint, out, scenes[:1], tolerance_m=1e-12)
    assert (out / MANIFEST).read_bytes() == (bundle / MANIFEST).read_bytes()
    export_bundle(checkpoint, out, scenes[:1])
    assert len(Bundle(out).info["check"]["cases"]) == 4, "a bundle is replaced by a newer one"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_faulty_disk_loses_no_bundle(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = shutil.copytree(bundle, tmp_path / "out" / "bundle")
    new = shutil.copytree(bundle, tmp_path / "new" / "bundle")
    (target / "mark").touch()
    rename = Path.rename

    def fail(path: Path, to: Path) -> Path:
        if path == new:
            raise OSError("cannot rename")
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="cannot rename"):
        module._publish(new, target)
    assert is_bundle(target)
    assert (target / "mark").exists()


def test_other_files_are_not_overwritten(checkpoint: Path, scenes: list[Scenario], tmp_path: Path) -> None:
    folder = tmp_path / "work"
    file = tmp_path / "work.zip"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years")
    file.write_text("years")
    for out in (folder, file, tmp_path):
        rejects("not overwritten", export_bundle, checkpoint, out, scenes[:1])
    assert (folder / "thesis.txt").read_text() == file.read_text() == "years"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"opset": 99}, "opset"),
        ({"sizes": (0, 5)}, "sizes"),
        ({"part": "encoder", "fused": True}, "fused"),
        ({"part": "encoder", "tolerance_m": 1.0}, "tolerance_m"),
    ],
)
def test_options_out_of_range(
    checkpoint: Path, scenes: list[Scenario], tmp_path: Path, options: dict[str, Any], field: str
) -> None:
    error = rejects("", export_bundle, checkpoint, tmp_path / "bundle", scenes[:1], **options)
    assert error.field == field


class Anchors(SceneDecoder):
    """Predicts the anchors."""

    anchor_steps = property(lambda self: self.horizon)

    def forward(
        self, tokens: SceneTokens, batch: HeteroData, joint: bool = False, agents: Tensor | None = None
    ) -> Prediction:
        path = batch["agent"].anchors
        path = path if agents is None else path.index_select(0, agents)
        return Prediction(path, torch.ones_like(path), path[:, :, 0, 0] * 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decoder", "sizes", "starts"),
    [(ModeDecoder, (80, 240), "lanes"), (ModeDecoder, None, "velocity lanes"), (Anchors, None, "lanes")],
)
def test_anchors_are_an_input_of_the_decoder(
    scenes: list[Scenario], tmp_path: Path, decoder: type[SceneDecoder], sizes: Any, starts: str
) -> None:
    shipped = decoder is ModeDecoder
    options = {"dim": 16}
    if shipped:  # the futures along the lanes are six, whatever the number of modes
        options = TINY["decoder"]["init_args"] | {"starts": starts.split(), "modes": 4}
    class_path = f"{decoder.__module__}.{decoder.__qualname__}"
    config = TINY | {"decoder": {"class_path": class_path, "init_args": options}}
    if sizes:  # they do not raise the model's own limit
        config["scene"] = {"features": {"max_lanes": 60}}
    checkpoint = checkpoint_of(small_model(**config), tmp_path / "anchors.ckpt")
    bundle = tmp_path / "bundle"
    export_bundle(checkpoint, bundle, scenes[:2], sizes=sizes, fused=shipped, progress=False)
    check_inputs(bundle / "decoder.onnx", starts)
    if shipped:
        check_inputs(bundle / "forecaster.onnx", starts)
    [expected] = CheckpointPredictor(checkpoint)(scenes[1:2])
    forecast = OnboardForecaster(bundle).forecast(ScenarioBatch.of(scenes[1:2]))
    np.testing.assert_allclose(forecast.trajectory, expected.trajectory, rtol=0, atol=1e-3)


def check_inputs(graph: Path, starts: str) -> None:
    names = {port.name for port in onnx.load(graph).graph.input}
    assert "agent_anchors" in names
    assert ("agent_velocity" in names) == ("velocity" in starts)


def test_encoder_alone(encoder_bundle: Path, scenes: list[Scenario]) -> None:
    info = Bundle(encoder_bundle).info
    page = (encoder_bundle / INTERFACE).read_text()
    files = {f"{name}.onnx" for name in ENCODER_GRAPHS}
    assert files == {path.name for path in encoder_bundle.iterdir() if path.suffix == ".onnx"}
    assert "decoder.onnx" not in page
    assert "Encoder without decoder: tokens of 16 channels" in page
    check = info["check"]
    assert max(case["largest"] for case in check["cases"]) <= check["limit"] == 1e-4
    assert len(check["cases"]) == len(scenes) + 3


@pytest.mark.usefixtures("traced")
def test_tokens_beyond_the_limit_are_not_written(
    checkpoint: Path, scenes: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_module, "MAX_TOKEN_CHANGE", 1e-12)
    message = r"a token differs by .*, relative; the limit is 1e-12"
    rejects(message, export_bundle, checkpoint, tmp_path / "bundle", scenes[:1], part="encoder")
    assert not is_bundle(tmp_path / "bundle")


@pytest.mark.usefixtures("traced")
def test_command_names_a_store_that_the_bundle_can_be_scored_on(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a b"
    assert run("export", "--checkpoint", checkpoint, "--limit", 1, "--out", out) == 0
    *_, case, _, last = capsys.readouterr().out.splitlines()
    assert half_of(case.split()[-1]) == "deciding"
    assert last == f"Score it: trajpred evaluate --checkpoint '{out}' --half deciding"  # on the sample


def test_largest_scenes_are_checked() -> None:
    class Store:
        def __init__(self, agents: list[int], lanes: list[int]) -> None:
            self.sizes = (np.array(agents), np.array(lanes))

        def __len__(self) -> int:
            return len(self.sizes[0])

    store: Any = Store([3, 1, 9, 2, 4], [0, 7, 8, 30, 1])
    assert checked_rows(store, 3) == [0, 2, 3]
    assert sorted(checked_rows(store, 20)) == [0, 1, 2, 3, 4]
    empty: Any = Store([], [])
    assert checked_rows(empty, 3) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"fused": True}, {"sizes": (64, 256), "fused": True}, {"opset": 23}])
def test_pretrained_weights_export_in_every_way(
    sample_scenarios: list[Scenario], tmp_path: Path, options: dict[str, Any]
) -> None:
    """The export itself compares with the model."""
    result = export_bundle("argoverse-nano", tmp_path / "bundle.zip", sample_scenarios[:6], **options)
    assert len(result.cases) == 9
    assert OnboardForecaster(tmp_path / "bundle.zip").bundle.sizes == options.get("sizes")


def test_equal_bundle_passes_with_the_focal_errors_of_all_cases(
    bundle: Path, predictor: CheckpointPredictor, scenes: list[Scenario]
) -> None:
    """Of the scene, its focal agent alone, without a map, and both."""
    scene = scenes[0]
    empty = LaneMap()
    cases = [scene, alone(scene), replace(scene, map=empty), replace(alone(scene), map=empty)]
    truth = scene.tracks.position[scene.focal, -1]
    errors = []
    for forecast in predictor(cases):
        [focal] = forecast.rows(np.array([scene.focal_id]))
        end = forecast.trajectory[focal, :, -1]
        errors.append(np.linalg.norm(end - truth, axis=-1).min())
    result = check(bundle, predictor, [scene], fused=True)
    assert 0 < result.usual <= result.largest < 1e-3
    assert result.scored == 4
    np.testing.assert_allclose(result.min_fde, np.mean(errors), atol=1e-3)
    assert f"minFDE {result.min_fde[0]:.4f} m in PyTorch" in result.summary()


def test_another_model_is_detected(bundle: Path, checkpoint: Path, scenes: list[Scenario]) -> None:
    other = CheckpointPredictor(checkpoint)
    with torch.no_grad():
        next(iter(other.model.decoder.refine_head.parameters())).mul_(1.5)
    rejects("differs from the model", check, bundle, other, scenes[:1])
    rejects("scenarios", check, bundle, other, [])


@pytest.mark.parametrize(
    ("usual", "largest", "probability", "min_fde", "tolerance_m", "message"),
    [
        (0.005, 0.006, 0.0, 1.0, TOLERANCE_M, "are within 0.005 m, the limit is 0.001; --tolerance-m sets"),
        (0.0005, 0.02, 0.0, 1.0, TOLERANCE_M, "distance is 0.02 m, the limit is 0.01; --tolerance-m"),
        (0.0005, 0.02, 0.002, 1.0, 0.1, "a probability differs by 0.002, the limit is 0.001$"),
        (0.0, 0.0, 0.0, 1.01, TOLERANCE_M, "focal minFDE increases to 1.01 m, the limit is 1.002"),
        (np.nan, 0.0, 0.0, 1.0, TOLERANCE_M, "within nan m"),
        (0.0, 0.0, np.nan, 1.0, TOLERANCE_M, "a probability differs by nan"),
        (0.0005, 0.009, 0.0005, 1.001, TOLERANCE_M, ""),
        (1e-9, 0.009, 0.0, 1.0, 1e-6, ""),
    ],
)
def test_exceeded_limit_is_named(
    usual: float, largest: float, probability: float, min_fde: float, tolerance_m: float, message: str
) -> None:
    """Whichever scene exceeds it."""
    cases = (Case("first", 1, 1, largest, 0.0), Case("second", 1, 1, largest, probability))
    result = Check(tolerance_m, "m", cases, usual, largest, 1, (1.0, min_fde))
    if message:
        rejects(message, require_limits, result, Path("bundle"))
    else:
        require_limits(result, Path("bundle"))
        require_limits(replace(result, scored=0, min_fde=None), Path("bundle"))


def test_scenes_of_any_window_and_rate_are_compared(
    bundle: Path, predictor: CheckpointPredictor, scenes: list[Scenario]
) -> None:
    slow = resample(scenes[0], 0.5)
    short = replace(scenes[0], num_observed=8)
    result = check(bundle, predictor, predictor.on_model_steps([slow, short]))
    assert len(result.cases) == 5
    assert result.scored == 4
