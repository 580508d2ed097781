"""Spawned processes (macOS, Windows) get picklable arguments and give the same results as forked ones."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest

from tests.conftest import ROOT, SAMPLE
from trajpred.graph.data_module import SceneData

#: The main module of every process, as a user's script is.
SCRIPT = """
import multiprocessing
import sys
from pathlib import Path

from tests.graph.scenes import equal_batches
from trajpred.graph.data_module import SceneData
from tools.synthesize import synthesize
from trajpred.store import prepare


def main(raw: Path, store: Path) -> None:
    multiprocessing.set_start_method("spawn")
    prepare("argoverse2", raw, store / "two", shard_size=5, workers=2, progress=False)
    prepare("argoverse2", raw, store / "one", shard_size=5, workers=1, progress=False)
    files = sorted(p.relative_to(store / "one") for p in (store / "one").rglob("*") if p.suffix != ".lock")
    for file in files:
        if (store / "one" / file).is_file():
            assert (store / "one" / file).read_bytes() == (store / "two" / file).read_bytes(), file
    synthesize(store / "synthetic", scenarios=4, workers=2)
    alone, other = (
        list(SceneData(store / "two", batch_size=4, workers=count).train_dataloader()) for count in (0, 1)
    )
    assert len(alone) == len(other) == 3 and all(map(equal_batches, alone, other))
    print(multiprocessing.get_start_method(), len(files))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_arguments_of_loader_processes_can_be_pickled(store_path: Path) -> None:
    loader = SceneData(store_path, workers=1).train_dataloader()
    given = (loader.dataset, loader.collate_fn, loader.worker_init_fn, loader.sampler, loader.generator)
    assert len(ForkingPickler.dumps(given)) < 100_000


@pytest.mark.slow
def test_spawned_processes_give_the_same_results(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command, path = [sys.executable, script, SAMPLE, tmp_path / "stores"], {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=os.environ | path, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    method, files = done.stdout.split()[-2:]
    assert method == "spawn" and int(files) > 8
