"""Peak memory of preparing and feeding, at several sizes of the data set: it must not grow with it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from trajpred.benchmark.timing import own_process
from trajpred.sources.synthetic import synthesize

#: Each stage runs in a process of its own, so that its peak is its own.
_PREPARE = """
import re, sys
from pathlib import Path
from trajpred.store import prepare
prepare("argoverse2", sys.argv[1], sys.argv[2], workers=2, progress=False)
def peak(process):
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path(f"/proc/{process}/status").read_text())[1]) / 1024
workers = [pid for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()]
print([peak("self"), max(map(peak, workers))])  # joblib's workers wait for more
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


def memory_figures(sizes: list[int], keep: Path | None = None) -> dict[str, float]:
    """MB that ``prepare`` (parent, largest worker) and one epoch of the training loader need; Linux only.

    Of the loader it is the memory that is its own; pages of the store belong to the system's cache.

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
