"""Peak memory of preparing, loading and training, each measured in a process of its own. Linux only."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from trajpred.benchmark.timing import own_process
from trajpred.graph.batch_sampler import MODES, PROCESS_BYTES, SceneSizes
from trajpred.sources.synthetic import synthesize

_PREPARE = """
import re, sys
from pathlib import Path
from trajpred.store import prepare
prepare("argoverse2", sys.argv[1], sys.argv[2], workers=2, progress=False)
def peak(process):
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path(f"/proc/{process}/status").read_text())[1]) / 1024
workers = [pid for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()]
print([peak("self"), max(map(peak, workers))])  # joblib's workers are still alive
"""
_FEED = """
import re, sys
from pathlib import Path
from trajpred.graph.data_module import SceneData
def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
loader = SceneData(Path(sys.argv[2]), workers=0).train_dataloader()
print([max(anonymous() for _ in loader)])
"""
#: Agents and lanes per scene, and number of scenes.
SHAPES = (
    *((1, 10, 1), (5, 30, 128), (10, 60, 16), (10, 60, 64), (20, 100, 16), (20, 100, 64)),
    *((40, 100, 8), (40, 100, 32), (60, 200, 16), (100, 256, 12), (128, 40, 8), (128, 256, 4)),
)
#: Two training steps on scenes in which all agents and lanes are within range of each other.
_STEP = """
import sys
import numpy as np
from trajpred import Scenario
from trajpred.benchmark.model import make_model, peak_mb
from trajpred.graph.config import SceneConfig
from trajpred.graph.scene_graph import build_batch
agents, lanes, scenes = map(int, sys.argv[1:])
random = np.random.default_rng(0)
def scenario():
    start, velocity = random.uniform(-50, 50, (agents, 1, 2)), random.normal(size=(agents, 1, 2))
    center = random.uniform(-50, 50, (lanes, 1, 2)) + [[-5.0, 0], [5, 0]]
    track = start + velocity * np.arange(110)[:, None] / 10
    return Scenario.from_arrays(track, num_observed=50, map=list(center))
batch = build_batch([scenario() for _ in range(scenes)], SceneConfig())
assert [batch[kind].num_nodes for kind in ("agent", "lane")] == [agents * scenes, lanes * scenes]
print([peak_mb(make_model(None), batch)])
"""


def memory_figures(sizes: list[int], keep: Path | None) -> dict[str, float]:
    """Measure the MB that ``prepare`` (parent, largest worker) and one epoch of the training loader need.

    For the loader only private memory counts; pages of the store belong to the system's cache.

    Args:
        sizes: numbers of synthetic scenarios, 30 to 100 KB each on disk twice over.
        keep: folder for them; by default one that is removed afterwards.
    """
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for size in sizes:
            folder = (keep or Path(scratch)) / str(size)
            if not (folder / "raw").exists():
                synthesize(folder / "raw", size)
            places = folder / "raw", folder / "store"
            parent, worker = own_process(_PREPARE, *places)
            [loader] = own_process(_FEED, *places)
            figures[f"prepare {size} scenarios, parent, MB"] = parent
            figures[f"prepare {size} scenarios, largest worker, MB"] = worker
            figures[f"an epoch of the loader, {size} scenarios, MB"] = loader
    return figures


def step_figures() -> dict[str, float]:
    """Measure the peak MB of a training step beside its estimate, and fit the estimate's constants again."""
    peaks = [1e6 * own_process(_STEP, *shape)[0] for shape in SHAPES]
    figures: dict[str, float] = {}
    for (agents, lanes, scenes), peak in zip(SHAPES, peaks, strict=True):
        sizes = SceneSizes(np.array([agents]), np.array([lanes]))
        guess = PROCESS_BYTES + scenes * sizes.bytes_per_scene(np.array([0]))
        name = f"{scenes} scenes of {agents} agents and {lanes} lanes, MB"
        figures |= {name: peak / 1e6, f"{name}, estimated": guess / 1e6}
    agents, lanes, scenes = np.array(SHAPES).T
    pairs = (agents + lanes) * (agents + lanes + MODES * agents)
    causes = np.stack((scenes * pairs, scenes * agents, scenes * lanes, np.ones(len(SHAPES))), -1)
    fit = np.linalg.lstsq(causes / np.array(peaks)[:, None], np.ones(len(SHAPES)), rcond=None)[0]
    names = ("bytes per pair", "bytes per agent", "bytes per lane", "bytes besides")
    return figures | dict(zip(names, fit.tolist(), strict=True))
