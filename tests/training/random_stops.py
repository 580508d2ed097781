"""Tiny trainings that are stopped at random events by signals and kills, and resumed from their files.

Runs in one process, or in each process of ``torchrun -m tests.training.random_stops STORE FOLDER SEED SEED``,
which prints what differs from undisturbed runs.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EMAWeightAveraging
from pytorch_lightning.strategies import DDPStrategy
from torch import distributed

from tests.model.small import small_model
from tests.training.stops import Events, First, Killed, Last, Stop, saves_reported
from tests.training.test_lit_forecaster import trainer
from trajpred.graph.data_module import SceneData
from trajpred.graph.transforms import AugmentConfig
from trajpred.model.checkpoint import read_checkpoint
from trajpred.sources.synthetic import synthesize
from trajpred.store import prepare
from trajpred.training.checkpoint_io import (
    SIGNALS,
    AtomicCheckpointIO,
    RecentCheckpoint,
    RunCheckpoint,
    StoppedError,
    newest_checkpoint,
)
from trajpred.training.distributed import process_count
from trajpred.training.record import RunHistory, TrainingRecord
from trajpred.training.train import DEFAULTS

STEPS, OBSERVED = 16, 8
AUGMENT = AugmentConfig(drop_agents=0.3, drop_lanes=0.3, truncate_history=0.5, mirror=0.5)
SCENE = {"features": {"max_agents": 3, "max_lanes": 6}, "graph": {"lane_agent_k": 4}}
SIZES = {"dim": 8, "heads": 2, "dropout": 0.1}
DECODER = {**SIZES, "propose_layers": 1, "refine_layers": 0, "horizon": STEPS - OBSERVED}
MODEL: dict[str, Any] = {
    "encoder": {"class_path": "trajpred.model.SceneEncoder", "init_args": {**SIZES, "layers": 1}},
    "decoder": {"class_path": "trajpred.model.ModeDecoder", "init_args": DECODER},
    "history": OBSERVED,
    "scene": SCENE,
}


def tiny_store(folder: Path) -> Path:
    """Seven training and two validation scenes of 1.6 seconds."""
    synthesize(folder / "raw", 9, val=0.22, test=0, steps=STEPS, observed=OBSERVED, workers=1, progress=False)
    prepare("argoverse2", folder / "raw", folder / "store", workers=1, progress=False)
    return folder / "store"


class Options(NamedTuple):
    """Settings of a run; with 2, 3 or 7 scenes to a batch, an epoch has 4, 3 or 1 batches."""

    epochs: int
    batch_size: int
    validate_every: int  # epochs
    validate_at: float | int  # share or number of the batches of an epoch
    accumulate: int
    save_every_step: bool
    average: bool

    @classmethod
    def draw(cls, random: np.random.Generator) -> Options:
        batch_size = int(random.choice([2, 2, 3, 7]))
        return cls(
            epochs=int(random.integers(1, 6)),
            batch_size=batch_size,
            validate_every=int(random.integers(1, 5)),
            validate_at=2 if batch_size < 7 and random.random() < 0.25 else 1.0,
            accumulate=2 if random.random() < 0.2 else 1,
            save_every_step=bool(random.random() < 0.5),
            average=bool(random.random() < 0.2),
        )


class Batches(pl.Callback):
    """Record the scenarios of every trained batch."""

    def __init__(self) -> None:
        self.trained: list[tuple[str, ...]] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        self.trained.append(tuple(batch.scenario_id))


@dataclass
class Run:
    """A run in ``folder``, over any number of attempts.

    Attributes:
        batches: the scenarios of the batches that led to the present state, in order.
        events: number of events of each attempt.
    """

    store: Path
    folder: Path
    options: Options
    batches: list[tuple[str, ...]] = field(default_factory=list)
    events: list[int] = field(default_factory=list)

    def attempt(self, stop: Stop | None = None) -> bool:
        """Train from the files of the run to ``stop``, and return whether training reached its end."""
        checkpoint, start = None, 0
        if process_count() > 1:
            distributed.barrier()  # the first process has written the files
        if any(self.folder.glob("*.ckpt")):
            checkpoint, content = newest_checkpoint(self.folder)
            progress = content["loops"]["fit_loop"]["epoch_loop.batch_progress"]
            start = progress["total"]["processed"]
        assert start <= len(self.batches)
        events, batches, finished = Events(stop), Batches(), False
        # The seed of weights and dropout, which a checkpoint replaces.
        model = small_model(seed=1 if checkpoint is None else 2, **MODEL).train()
        data = SceneData(self.store, AUGMENT, batch_size=self.options.batch_size, seed=3)
        try:
            with saves_reported(events):
                self._trainer(events, batches).fit(model, data, ckpt_path=checkpoint, weights_only=True)
            finished = True
        except StoppedError as stopped:
            assert stop is not None and stop.signal is not None
            assert Path(stopped.checkpoint) == self.folder / "last.ckpt"
        except Killed:
            pass
        self.batches = self.batches[:start] + batches.trained
        self.events.append(events.count)
        return finished

    def _trainer(self, events: Events, batches: Batches) -> pl.Trainer:
        options = self.options
        average = [EMAWeightAveraging(decay=0.8, use_buffers=False)] if options.average else []
        own = [*average, batches, RunHistory(), TrainingRecord(), *self._checkpoints()]
        together = {"strategy": DDPStrategy(), "devices": process_count()} if process_count() > 1 else {}
        return trainer(
            self.folder,
            max_epochs=options.epochs,
            check_val_every_n_epoch=options.validate_every,
            val_check_interval=options.validate_at,
            accumulate_grad_batches=options.accumulate,
            num_sanity_val_steps=0,
            gradient_clip_val=1.0,
            use_distributed_sampler=False,
            plugins=[AtomicCheckpointIO()],
            callbacks=[First(events), *own, Last(events)],
            **together,
        )

    def _checkpoints(self) -> list[pl.Callback]:
        """The callbacks of the command, which save at every step or only where they must."""
        interval = timedelta(hours=0 if self.options.save_every_step else 1)
        settings = DEFAULTS | {"recent.train_time_interval": interval}
        kinds = {"best": RunCheckpoint, "last": RunCheckpoint, "recent": RecentCheckpoint}
        return [
            kind(
                self.folder,
                **{key[len(name) + 1 :]: x for key, x in settings.items() if key.startswith(name)},
            )
            for name, kind in kinds.items()
        ]

    def result(self) -> dict[str, Any]:
        """The batches, and the content of the best and the last checkpoint."""
        files = (self.folder / f"{name}.ckpt" for name in ("last", "best"))
        return {
            "batches": self.batches,
            **{file.stem: read_checkpoint(file) for file in files if file.is_file()},
        }


def differences(a: Any, b: Any, name: str = "") -> list[str]:
    """Name the values that differ, by a bit at least, in two results of runs in different folders."""
    # Lightning does not restore the score of the last validation (current_score), which nothing reads.
    if name.endswith(("wall_s", "environment", "dirpath", "_model_path", "current_score")):
        return []
    if isinstance(a, torch.Tensor):
        return [] if torch.equal(a, b) else [name]
    if name.endswith("best_k_models"):  # by path
        a, b = [*a.values()], [*b.values()]
    if isinstance(a, list | tuple):
        a, b = dict(enumerate(a)), dict(enumerate(b))
    if isinstance(a, dict):
        keys = [f"{name}.{key}: in one only" for key in a.keys() ^ b.keys()]
        return keys + [x for key in a.keys() & b.keys() for x in differences(a[key], b[key], f"{name}.{key}")]
    return [] if a == b else [f"{name}: {a!r} for {b!r}"]


class Campaign:
    """Sequences of stops, each compared with the undisturbed run of the same options."""

    def __init__(self, store: Path, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.whole: dict[Options, Run] = {}

    def run(self, options: Options, name: str) -> Run:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return Run(self.store, folder, options)

    def sequence(self, seed: int) -> list[str]:
        """Return how a run that is stopped as ``seed`` says differs from an undisturbed one."""
        random = np.random.default_rng(seed)
        options = Options.draw(random)
        if options not in self.whole:
            self.whole[options] = self.run(options, f"whole-{len(self.whole)}")
            assert self.whole[options].attempt()
        whole, run = self.whole[options], self.run(options, f"stopped-{seed}")
        stops = Stop.draw(random, whole.events[0], process_count())
        finished = any(run.attempt(stop) for stop in [*stops, None])
        found = differences(run.result(), whole.result()) if finished else ["does not end"]
        return [f"seed {seed}: {options}, {stops[: len(run.events)]}: {found[:5]}"] if found else []


def main(store: str, folder: str, first: str, last: str) -> None:
    """Run the sequences ``first`` to ``last`` (exclusive) in this process of a distributed run."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    distributed.init_process_group("gloo")
    campaign, rank, done = Campaign(Path(store), Path(folder)), distributed.get_rank(), 0
    for seed in range(int(first), int(last)):
        found = campaign.sequence(seed)
        done += 1
        if rank == 0 and found:
            print(*found, sep="\n", flush=True)
    if rank == 0:
        print(f"{done} sequences of {process_count()} processes")


if __name__ == "__main__":
    main(*sys.argv[1:])
