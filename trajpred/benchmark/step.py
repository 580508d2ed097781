"""Peak memory of a training step on scenes of given sizes, beside the estimate that limits batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trajpred.benchmark.timing import own_process
from trajpred.graph.batch_sampler import MODES, PROCESS_BYTES, SceneSizes

#: Agents and lanes of every scene, and scenes: few large ones, many small ones, and those between.
SHAPES = (
    (1, 10, 1),
    (5, 30, 128),
    (10, 60, 16),
    (10, 60, 64),
    (20, 100, 16),
    (20, 100, 64),
    (40, 100, 8),
    (40, 100, 32),
    (60, 200, 16),
    (100, 256, 12),
    (128, 40, 8),
    (128, 256, 4),
)
#: A process of its own for every shape, so that its peak is its own. Everyone is within everyone's reach.
_STEP = """
import resource, sys
import numpy as np, torch
from trajpred import Scenario
from trajpred.benchmark.model import DEFAULT_MODEL
from trajpred.graph.config import SceneConfig
from trajpred.graph.scene_graph import build_batch
from trajpred.training.lit_forecaster import LitForecaster
agents, lanes, scenes = map(int, sys.argv[1:])
random = np.random.default_rng(0)
def scenario():
    start, velocity = random.uniform(-50, 50, (agents, 1, 2)), random.normal(size=(agents, 1, 2))
    center = random.uniform(-50, 50, (lanes, 1, 2)) + [[-5.0, 0], [5, 0]]
    track = start + velocity * np.arange(110)[:, None] / 10
    return Scenario.from_arrays(track, num_observed=50, map=list(center))
batch = build_batch([scenario() for _ in range(scenes)], SceneConfig())
assert [batch[kind].num_nodes for kind in ("agent", "lane")] == [agents * scenes, lanes * scenes]
model = LitForecaster.build(DEFAULT_MODEL).train()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):  # the second finds the optimiser's state there
    optimizer.zero_grad()
    model.losses(batch)["loss"].backward()
    optimizer.step()
print([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024])
"""


def step_figures(shapes: Sequence[tuple[int, int, int]] = SHAPES) -> dict[str, float]:
    """MB at most during a training step, and as estimated; then the estimate's constants fitted anew. Linux.

    Args:
        shapes: agents and lanes of each scene, and number of scenes.
    """
    peaks = [own_process(_STEP, *shape)[0] for shape in shapes]
    figures: dict[str, float] = {}
    for (agents, lanes, scenes), peak in zip(shapes, peaks, strict=True):
        sizes = SceneSizes(np.array([agents]), np.array([lanes]))
        guess = PROCESS_BYTES + scenes * sizes.bytes_per_scene(np.array([0]))
        name = f"{scenes} scenes of {agents} agents and {lanes} lanes, MB"
        figures |= {name: peak / 1e6, f"{name}, estimated": guess / 1e6}
    agents, lanes, scenes = np.array(shapes).T
    pairs = (agents + lanes) * (agents + lanes + MODES * agents)
    causes = np.stack((scenes * pairs, scenes * agents, scenes * lanes, np.ones(len(shapes))), -1)
    fit = np.linalg.lstsq(causes / np.array(peaks)[:, None], np.ones(len(shapes)), rcond=None)[0]
    names = ("bytes per pair", "bytes per agent", "bytes per lane", "bytes besides")
    return figures | dict(zip(names, fit.tolist(), strict=True))
