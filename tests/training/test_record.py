"""The facts of a run in its checkpoints, what a resumed epoch requires, the lines printed, and the curves.

Lines and curves are as if there had been no stop.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from tests.conftest import rejects
from tests.model.small import small_model
from tests.training.command import SignalAt
from tests.training.runs import EPOCHS, SMALL_SCENES, STEPS, fit, trainer
from trajpred.model.checkpoint import TRAINING, read_checkpoint
from trajpred.training import record
from trajpred.training.data_module import SceneData
from trajpred.training.record import RunHistory, RunProgress, TrainingRecord, batch_order


def train(
    store: Path, folder: Path, steps: int, resume: Path | None = None, accumulate: int = 1, **data: Any
) -> Path:
    """Train to ``steps`` steps, four of three scenes per epoch, and return the checkpoint."""
    run = trainer(
        folder,
        max_steps=steps,
        accumulate_grad_batches=accumulate,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        callbacks=[TrainingRecord()],
        limit_val_batches=0,
    )
    run.fit(small_model(scene=SMALL_SCENES), SceneData(store, **{"batch_size": 3, **data}), ckpt_path=resume)
    run.save_checkpoint(folder / f"{steps}.ckpt", weights_only=False)
    return folder / f"{steps}.ckpt"


def test_a_run_resumes_within_an_epoch_with_the_same_batches_only(store_path: Path, tmp_path: Path) -> None:
    within = train(store_path, tmp_path, 2)
    whole = train(store_path, tmp_path, 4)
    facts = read_checkpoint(within)[TRAINING]
    assert (facts["steps"], facts["batch_size"], facts["seed"]) == (2, 3, 0)
    changes: dict[str, Any] = {"seed": 1, "batch_size": 2, "memory_gb": 8.0}
    for name, value in changes.items():
        message = f"needs the same {name}: {facts[name]}"
        rejects(message, train, store_path, tmp_path, 3, within, **{name: value})
    assert train(store_path, tmp_path, 5, whole, batch_size=2).is_file(), "the next epoch may differ"


def test_accumulated_batches_are_not_larger_ones(store_path: Path, tmp_path: Path) -> None:
    within = train(store_path, tmp_path, 1, batch_size=2, accumulate=2)
    rejects("needs the same accumulate_grad_batches: 2", train, store_path, tmp_path, 2, within, batch_size=4)


@pytest.mark.parametrize("gigabytes", [None, 0.701])
def test_a_run_of_two_processes_resumes_within_an_epoch_with_one_if_its_steps_are_the_same(
    store_path: Path, tmp_path: Path, gigabytes: float | None
) -> None:
    """Twice as many crowded scenes fit into the memory of two processes."""
    within = train(store_path, tmp_path, 1, batch_size=4, memory_gb=gigabytes)
    content = torch.load(within, weights_only=True)
    assert content[TRAINING]["processes"] == 1
    content[TRAINING]["processes"] = 2
    torch.save(content, within)
    if gigabytes is None:
        train(store_path, tmp_path, 2, within, batch_size=4, memory_gb=gigabytes)
        return
    rejects("same processes: 2", train, store_path, tmp_path, 2, within, batch_size=4, memory_gb=gigabytes)


def test_the_order_of_batches_depends_on_the_training_split_of_the_store_only() -> None:
    def order(train: int = 10, config: str = "0", **splits: int) -> Any:
        scenarios = {"train": train, "val": 5} | splits
        store = {"source": "made", "config": config, "scenarios": scenarios}
        return batch_order(dict.fromkeys(record.BATCH_FACTS, 0) | {"store": store})

    assert order(test=3) == order()
    assert order(train=11) != order()
    assert order(config="1") != order()


class Losses(RunHistory):
    """The curves, and the loss of every step."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, *_: Any) -> None:
        super().on_train_batch_end(trainer)
        self.losses.append(float(outputs["loss"]))

    @property
    def state_key(self) -> str:
        return "RunHistory"


def observe(
    store: Path, folder: Path, capsys: pytest.CaptureFixture[str], **options: Any
) -> tuple[Losses, list[str]]:
    """Train; return the curves, and the lines printed."""
    history = Losses()
    fit(store, folder, callbacks=[history, RunProgress(history)], **options)
    return history, capsys.readouterr().out.rstrip("\n").split("\n")


def steps(lines: Sequence[str]) -> list[tuple[str, str]]:
    """The epochs and steps of the lines about progress."""
    matches = [re.match(r"epoch (\S+) +step +(\S+) ", line) for line in lines]
    return [(match[1], match[2]) for match in matches if match]


@pytest.mark.usefixtures("ignored_signals")
def test_a_stopped_run_continues_its_count_and_its_curves(
    store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, lines = observe(store_path, tmp_path / "whole", capsys)
    facts = dict(line.split(maxsplit=1) for line in lines[:6])
    assert facts["scenes"] == "10 for training, 5 for validation"
    assert facts["training"] == f"{EPOCHS} epochs, {STEPS * EPOCHS} steps of 3 scenes"
    assert "CPU" in facts["device"]
    assert "parameters" in facts["model"]
    assert "resumes" not in facts
    assert steps(lines) == [("1/2", "4/8"), ("2/2", "8/8")]
    for line in lines[-2:]:
        assert "left" in line
        assert "validation loss" in line
    assert list(whole.rows) == [STEPS, STEPS * EPOCHS]
    for epoch, row in enumerate(whole.rows.values()):
        mean = sum(whole.losses[epoch * STEPS : (epoch + 1) * STEPS]) / STEPS
        assert row["train/loss"] == pytest.approx(mean, rel=1e-5)
        assert row["epoch"] == epoch + 1

    _, before = observe(store_path, tmp_path / "a", capsys, stop=SignalAt(5, "SIGTERM"))
    monkeypatch.setattr(record, "LINE_S", 0.0)
    saved = tmp_path / "a" / "checkpoints" / "last.ckpt"
    resumed, lines = observe(store_path, tmp_path / "b", capsys, resume=saved)
    assert steps(before) == [("1/2", "4/8")]
    assert any(line.startswith("resumes") for line in lines)
    assert any("validates 1/" in line for line in lines), "after LINE_S"
    assert steps(lines)[0] == ("1.8/2", "7/8")
    assert steps(lines)[-1] == ("2/2", "8/8")
    assert resumed.rows == whole.rows
