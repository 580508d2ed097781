"""The benchmark of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from trajpred.benchmark.model import model_figures


@pytest.mark.slow
def test_a_model_is_measured_on_its_own_scene(tmp_path: Path) -> None:
    decoder = "{class_path: trajpred.model.ModeDecoder, init_args: {starts: [lanes]}}"
    (tmp_path / "anchors.yaml").write_text(f"model: {{decoder: {decoder}}}")
    figures = model_figures(None, tmp_path / "anchors.yaml", 1, 1)
    assert figures["agents"] == 26
    assert all(value >= 0 for value in figures.values())
