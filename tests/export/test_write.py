"""Exporting: what is written, what is refused, and that a failure leaves no trace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from tests.export.conftest import CONFIG
from tests.training.test_lit_forecaster import trainer
from trajpred.cli.main import main
from trajpred.cli.onboard import checked_rows
from trajpred.errors import DataError
from trajpred.export import export_bundle as export_module
from trajpred.export.export_bundle import export_bundle
from trajpred.export.interface import interface_page
from trajpred.onboard.bundle import GRAPHS, INTERFACE, MANIFEST, Bundle, is_bundle
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.scenario import Scenario
from trajpred.scenario_batch import ScenarioBatch
from trajpred.training.lit_forecaster import LitForecaster


@pytest.fixture
def traced(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs that were traced before stand for those of the same checkpoint."""
    graphs = {name: onnx.load(bundle / f"{name}.onnx") for name in GRAPHS}
    monkeypatch.setattr(export_module, "to_onnx", lambda module, name, *_: graphs[name])


def test_a_bundle_says_what_the_checkpoint_says(
    bundle: Path, checkpoint: Path, predictor: CheckpointPredictor
) -> None:
    info = Bundle(bundle).info
    assert info["model"]["config"] == read_checkpoint(checkpoint)[CONFIG] and info["name"] == predictor.name
    assert (info["precision"], info["opset"], info["sizes"]) == ("fp32", 20, None)
    page = (bundle / INTERFACE).read_text()
    for name, graph in info["graphs"].items():
        assert f"## {name}.onnx" in page
        ports = graph["inputs"] + graph["outputs"]
        assert all(f"`{port['name']}`" in page for port in ports) and graph["operators"]
    assert str(checkpoint.parent) not in (bundle / MANIFEST).read_text()


def test_the_check_is_of_several_sizes(bundle: Path, scenes: list[Scenario]) -> None:
    cases = Bundle(bundle).info["check"]["cases"]
    assert len(cases) == len(scenes) + 3
    assert min(case["agents"] for case in cases) == 1 and min(case["lanes"] for case in cases) == 0
    assert max(case["agents"] for case in cases) > 50


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_zip_in_another_precision(
    checkpoint: Path, scenes: list[Scenario], tmp_path: Path, precision: Any
) -> None:
    out = tmp_path / "new" / "bundle.zip"
    found = export_bundle(checkpoint, out, scenes[:1], precision=precision, tolerance_m=1e3)
    assert [path.name for path in out.parent.iterdir()] == ["bundle.zip"]
    forecast = OnboardForecaster(out).forecast(ScenarioBatch.of(scenes[:1])).validate()
    [expected] = CheckpointPredictor(checkpoint)(scenes[:1])
    apart = np.abs(forecast.trajectory - expected.trajectory).max()
    assert apart > 1e-5 and np.isclose(apart, found.cases[0].largest_m, rtol=0.5)


@pytest.mark.usefixtures("traced")
def test_a_bundle_that_differs_too_much_is_not_written(
    checkpoint: Path, scenes: list[Scenario], tmp_path: Path
) -> None:
    out = tmp_path / "bundle"
    with pytest.raises(DataError, match="does not do what the model does"):
        export_bundle(checkpoint, out, scenes[:1], tolerance_m=1e-12)
    assert not list(tmp_path.iterdir())
    export_bundle(checkpoint, out, scenes[:1])
    before = (out / MANIFEST).read_bytes()
    with pytest.raises(DataError, match="does not do what the model does"):
        export_bundle(checkpoint, out, scenes[:1], tolerance_m=1e-12)
    assert (out / MANIFEST).read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["bundle"]
    export_bundle(checkpoint, out, scenes[:2])
    assert len(Bundle(out).info["check"]["cases"]) == 5, "a bundle is replaced by a newer one"


def test_what_is_no_bundle_is_not_overwritten(
    checkpoint: Path, scenes: list[Scenario], tmp_path: Path
) -> None:
    folder, file = tmp_path / "work", tmp_path / "work.zip"
    folder.mkdir()
    for path in (folder / "thesis.txt", file):
        path.write_text("years")
    for out in (folder, file, tmp_path):
        with pytest.raises(DataError, match="not overwritten"):
            export_bundle(checkpoint, out, scenes[:1])
    assert (folder / "thesis.txt").read_text() == file.read_text() == "years"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"opset": 19}, "opset"),
        ({"opset": 99}, "opset"),
        ({"sizes": (0, 5)}, "sizes"),
        ({"compiled": True, "precision": "int8"}, "precision"),
        ({"compiled": True, "precision": "fp16"}, "precision"),
    ],
)
def test_options_out_of_range(
    checkpoint: Path, scenes: list[Scenario], tmp_path: Path, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(DataError) as error:
        export_bundle(checkpoint, tmp_path / "bundle", scenes[:1], **options)
    assert error.value.field == field


def test_models_of_another_kind_are_refused(scenes: list[Scenario], tmp_path: Path) -> None:
    other = {"class_path": "trajpred.model.HeadDecoder", "init_args": {"dim": 16}}
    torch.manual_seed(0)
    model = LitForecaster.build({**CONFIG, "decoder": other})
    saver, path = trainer(tmp_path, enable_checkpointing=False), tmp_path / "other.ckpt"
    saver.strategy.connect(model)
    saver.save_checkpoint(path, weights_only=True)
    with pytest.raises(DataError, match="HeadDecoder"):
        export_bundle(path, tmp_path / "bundle", scenes[:1])
    assert not is_bundle(tmp_path / "bundle")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--checkpoint", "nothing"], "no such checkpoint"),
        (["--max_agents", "5"], "max-lanes"),
        (["--limit", "0"], "limit"),
        (["--format", "torch", "--precision", "int8"], "fp32"),
        (["--split", "none"], "none"),
    ],
)
def test_the_tool_says_what_is_wrong(
    options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main("export", [*options, "--out", str(tmp_path / "bundle")])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert re.search(told, error)


def test_the_page_says_nothing_of_futures_that_are_not_known(bundle: Path) -> None:
    info = dict(Bundle(bundle).info)
    assert "Focal minFDE of 7 agents" in interface_page(info)
    page = interface_page({**info, "check": {**info["check"], "scored": 0, "min_fde": None}})
    assert "minFDE" not in page and "nan" not in page


def test_the_largest_scenes_are_among_those_checked() -> None:
    class Store:
        sizes = (np.array([3, 1, 9, 2, 4]), np.array([0, 7, 8, 30, 1]))
        __len__ = lambda self: 5  # noqa: E731

    store: Any = Store()
    assert checked_rows(store, 1) == [0]
    assert checked_rows(store, 3) == [0, 2, 3]
    assert sorted(checked_rows(store, 20)) == [0, 1, 2, 3, 4]
    Store.sizes, Store.__len__ = (np.zeros(0), np.zeros(0)), lambda self: 0
    assert checked_rows(store, 3) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"fused": True},
        {"precision": "fp16", "fused": True},
        {"precision": "int8"},
        {"sizes": (64, 256), "fused": True},
        {"opset": 23},
    ],
    ids=str,
)
def test_the_weights_that_ship(
    sample_scenarios: list[Scenario], tmp_path: Path, options: dict[str, Any]
) -> None:
    """Every way of exporting meets its tolerance; fixed sizes change no forecast that fits."""
    scenes, out = sample_scenarios[:6], tmp_path / "bundle.zip"
    found = export_bundle("argoverse2-demo", out, scenes, **options)
    assert found.usual_m <= found.tolerance_m
    onboard, inside = OnboardForecaster(out), 0
    if "sizes" in options:
        assert onboard.bundle.sizes == options["sizes"]
        [shape] = {x.shape[0] for x in onboard._sessions["encoder"].get_inputs() if x.name == "history"}
        assert shape == 64
        predictor = CheckpointPredictor("argoverse2-demo")
        for scene in scenes:
            [expected] = predictor([scene])
            one = onboard.forecast(ScenarioBatch.of([scene])).validate()
            assert len(one.track_id) <= 64
            if len(expected.track_id) <= 64:
                inside += 1
                np.testing.assert_allclose(one.trajectory, expected.trajectory, rtol=0, atol=2e-3)
        assert inside
