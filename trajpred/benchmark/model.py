"""The forecaster on one real scenario: forward passes and a training step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml

from trajpred.benchmark.timing import median_ms, own_process, use_threads
from trajpred.graph.config import SceneConfig
from trajpred.graph.scene_graph import SceneBatch, build_batch
from trajpred.scenario import Scenario
from trajpred.sources.argoverse2 import read_scenario
from trajpred.training.lit_forecaster import LitForecaster

#: The model that ``tools/train.py`` trains by default.
DEFAULT_MODEL: dict[str, Any] = {
    "encoder": {"class_path": "trajpred.model.SceneEncoder"},
    "decoder": {"class_path": "trajpred.model.ModeDecoder"},
}
#: Scenes of the training step that is measured.
STEP = 16
#: Two steps of training: the second finds the optimiser's state there. Linux.
_PEAK = """
import resource, sys
from pathlib import Path
import torch
from trajpred.benchmark.model import STEP, make_model
from trajpred.graph.config import SceneConfig
from trajpred.graph.scene_graph import build_batch
from trajpred.sources.argoverse2 import read_scenario
torch.set_num_threads(int(sys.argv[1]))
model = make_model(Path(sys.argv[3]) if len(sys.argv) > 3 else None).train()
batch = build_batch([read_scenario(Path(sys.argv[2]))] * STEP, SceneConfig())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    model.losses(batch)["loss"].backward()
    optimizer.step()
print([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3])
"""


def make_model(config: Path | None) -> LitForecaster:
    """The model of a YAML of configs/model, None for the default one, with random weights."""
    chosen = yaml.safe_load(config.read_text(encoding="utf-8"))["model"] if config else {}
    return LitForecaster.build({**DEFAULT_MODEL, **chosen})


def forecasting(
    folder: Path,
    config: Path | None = None,
    batch_sizes: Sequence[int] = (1, STEP, 32),
    repeats: int = 10,
    threads: int = 1,
    compiled: bool = False,
) -> dict[str, float]:
    """The model of ``config`` (None: the default) on one scenario, repeated to fill batches.

    With ``compiled`` all is measured again through torch.compile, which takes minutes.
    """
    scenario, model = read_scenario(folder), make_model(config)
    graph = build_batch([scenario], SceneConfig())
    with use_threads(threads):
        results: dict[str, float] = {
            "parameters (M)": sum(p.numel() for p in model.parameters()) / 1e6,
            "agents": graph["agent"].num_nodes,
            "lanes": graph["lane"].num_nodes,
            "scenario to graph, CPU ms": median_ms(lambda: build_batch([scenario], SceneConfig()), repeats)[
                0
            ],
        }
        results |= _times(model, scenario, batch_sizes, repeats)
        if compiled:
            model.forecaster.compile(dynamic=False)
            again = _times(model, scenario, batch_sizes, repeats)
            results |= {f"compiled: {name}": value for name, value in again.items()}
    [peak] = own_process(_PEAK, threads, folder, *([config] if config else []))
    return results | {f"training step, batch {STEP}, peak MB of the process": peak}


def _times(
    model: LitForecaster, scenario: Scenario, batch_sizes: Sequence[int], repeats: int
) -> dict[str, float]:
    results: dict[str, float] = {}
    for size in batch_sizes:
        batch = build_batch([scenario] * size, SceneConfig())
        model.eval()
        with torch.no_grad():
            cpu, wall = median_ms(partial(model.forecaster, batch), repeats)
        name = f"forward, batch {size}"
        results |= {f"{name}, CPU ms": cpu, f"{name}, wall ms": wall}
        results |= {f"{name}, scenes/s of CPU time": 1e3 * size / cpu, f"{name}, scenes/s": 1e3 * size / wall}
    cpu, wall = training_step(model, build_batch([scenario] * STEP, SceneConfig()), repeats)
    name = f"training step, batch {STEP}"
    return results | {f"{name}, CPU ms": cpu, f"{name}, wall ms": wall}


def training_step(model: LitForecaster, batch: SceneBatch, repeats: int) -> tuple[float, float]:
    """Median CPU and wall ms of a forward and backward pass with all losses."""
    model.train()

    def step() -> None:
        model.zero_grad()
        model.losses(batch)["loss"].backward()

    return median_ms(step, repeats)
