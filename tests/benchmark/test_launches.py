"""What holds a GPU up in a training step stays rare, and is counted at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trajpred.benchmark.launches import step_counts
from trajpred.benchmark.model import make_model, model_figures
from trajpred.graph.config import SceneConfig
from trajpred.graph.scene_graph import SceneBatch, build_batch
from trajpred.scenario import Scenario
from trajpred.training.lit_forecaster import LitForecaster


@pytest.fixture(scope="module")
def batch(sample_scenarios: list[Scenario]) -> SceneBatch:
    return build_batch(sample_scenarios[:3], SceneConfig())


def test_a_training_step_of_the_default_hardly_waits(batch: SceneBatch) -> None:
    counts = step_counts(make_model(None), batch)
    assert counts["waits"] <= 5 and counts["copies"] == 0 and 500 < counts["operations"] < 1700


@pytest.fixture
def anchors(tmp_path: Path) -> Path:
    decoder = "{class_path: trajpred.model.ModeDecoder, init_args: {starts: [lanes]}}"
    (tmp_path / "anchors.yaml").write_text(f"model: {{decoder: {decoder}}}")
    return tmp_path / "anchors.yaml"


def test_anchors_cost_no_wait(anchors: Path, sample_scenarios: list[Scenario], batch: SceneBatch) -> None:
    model = make_model(anchors)
    counts = step_counts(model, build_batch(sample_scenarios[:3], model.scene))
    assert counts["waits"] == step_counts(make_model(None), batch)["waits"] and counts["copies"] == 0


@pytest.mark.slow
def test_a_model_is_measured_on_its_own_scene(anchors: Path) -> None:
    figures = model_figures(None, anchors, 1, 1, compiled=False)
    assert figures["agents"] == 26 and all(value >= 0 for value in figures.values())


@pytest.mark.parametrize(
    ("work", "name"),
    [
        (lambda x: float(x.sum()), "waits"),
        (lambda x: x[x > 0], "waits"),
        (lambda x: x.tolist(), "waits"),
        (lambda x: torch.bincount(x.long()), "waits"),
        (lambda x: torch.repeat_interleave(x.long()), "waits"),
        (lambda x: x + torch.tensor([1.0]), "copies"),
        (lambda x: x.exp(), "operations"),
    ],
)
def test_counts_each_kind(batch: SceneBatch, work: object, name: str) -> None:
    model = make_model(None)
    before = step_counts(model, batch)[name]
    losses = LitForecaster.losses

    def with_work(batch: SceneBatch) -> dict[str, torch.Tensor]:
        work(batch["agent"].heading[:2].abs() + 1)  # type: ignore[operator]
        return losses(model, batch)

    model.losses = with_work  # type: ignore[method-assign,assignment]
    assert step_counts(model, batch)[name] > before
