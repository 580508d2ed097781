"""The forecaster on one real scenario: forward passes and a training step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml

from trajpred.benchmark.timing import median_ms, one_thread
from trajpred.graph.config import SceneConfig
from trajpred.graph.scene_graph import SceneBatch, build_batch
from trajpred.model import LitForecaster
from trajpred.sources.argoverse2 import read_scenario

#: The model that ``tools/train.py`` trains by default.
DEFAULT_MODEL: dict[str, Any] = {
    "encoder": {"class_path": "trajpred.model.SceneEncoder"},
    "decoder": {"class_path": "trajpred.model.ModeDecoder"},
}


@one_thread()
def forecasting(
    folder: Path, config: Path | None = None, batch_sizes: Sequence[int] = (1, 16, 32), repeats: int = 10
) -> dict[str, float]:
    """The model of ``config`` (None: the default) on one scenario, repeated to fill batches; one thread."""
    chosen = yaml.safe_load(config.read_text())["model"] if config else {}
    model = LitForecaster.build({**DEFAULT_MODEL, **chosen})
    scenario = read_scenario(folder)
    graph = build_batch([scenario], SceneConfig())
    prepare_cpu, _ = median_ms(lambda: build_batch([scenario], SceneConfig()), repeats)
    results: dict[str, float] = {
        "parameters (M)": sum(p.numel() for p in model.parameters()) / 1e6,
        "agents": graph["agent"].num_nodes,
        "lanes": graph["lane"].num_nodes,
        "scenario to graph, CPU ms": prepare_cpu,
    }
    for size in batch_sizes:
        batch = build_batch([scenario] * size, SceneConfig())
        model.eval()
        with torch.inference_mode():
            cpu, wall = median_ms(partial(model, batch), repeats)
        results |= {f"forward, batch {size}, CPU ms": cpu, f"forward, batch {size}, wall ms": wall}
        results[f"forward, batch {size}, scenes/s"] = 1e3 * size / cpu

    batch = build_batch([scenario] * 16, SceneConfig())
    cpu, wall = training_step(model, batch, repeats)
    return results | {"training step, batch 16, CPU ms": cpu, "training step, batch 16, wall ms": wall}


def training_step(model: LitForecaster, batch: SceneBatch, repeats: int) -> tuple[float, float]:
    """Median CPU and wall ms of a forward and backward pass with all losses."""
    model.train()

    def step() -> None:
        model.zero_grad()
        model.losses(batch)["loss"].backward()

    return median_ms(step, repeats)
