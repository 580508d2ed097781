"""What a run prints where no one watches, and its curves: also after a stop, as if there had been none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from tests.training.command import SignalAt
from tests.training.runs import EPOCHS, STEPS, fit
from trajpred.training import progress
from trajpred.training.data_module import SceneData
from trajpred.training.progress import RunProgress
from trajpred.training.record import RunHistory

pytestmark = pytest.mark.usefixtures("ignored_signals")


def observe(
    store: Path, folder: Path, capsys: pytest.CaptureFixture[str], **options: Any
) -> tuple[RunHistory, list[str]]:
    """Train; return the curves, and the lines printed."""
    history = RunHistory()
    shown = RunProgress(history)
    fit(store, folder, callbacks=[history, shown], enable_progress_bar=True, **options)
    return history, capsys.readouterr().out.rstrip("\n").split("\n")


def steps(lines: Sequence[str]) -> list[tuple[str, str]]:
    """The epochs and steps of the lines about progress."""
    shown = []
    for line in lines:
        match = re.match(r"epoch (\S+) +step +(\S+) ", line)
        if match:
            shown.append((match[1], match[2]))
    return shown


@pytest.mark.parametrize(
    "stop", [SignalAt(5, "SIGTERM"), SignalAt(STEPS, "SIGTERM", "validation_batch_start")]
)
def test_a_stopped_run_continues_its_count_and_its_curves(
    store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], stop: SignalAt
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

    _, before = observe(store_path, tmp_path / "a", capsys, stop=stop)
    resumed, lines = observe(store_path, tmp_path / "b", capsys, resume=tmp_path / "a" / "last.ckpt")
    assert steps(before + lines) == [("1/2", "4/8"), ("2/2", "8/8")]
    assert any(line.startswith("resumes") for line in lines)
    assert resumed.rows == whole.rows
    assert list(whole.rows) == [STEPS, STEPS * EPOCHS]
    assert [row["epoch"] for row in whole.rows.values()] == [1.0, 2.0]


def test_scenes_that_are_held_out_are_not_counted(store_path: Path) -> None:
    data = SceneData(store_path, hold_out=0.4)
    run: Any = SimpleNamespace(
        datamodule=data,
        precision="32",
        world_size=1,
        strategy=SimpleNamespace(root_device=torch.device("cpu")),
    )
    # The first two facts; the others need a whole run.
    facts = dict(islice(progress.describe(run, pl.LightningModule()), 2))
    trained = len(data.train_dataloader().dataset)  # type: ignore[arg-type]
    assert trained < 10
    assert facts["scenes"] == f"{trained} for training, 5 for validation"


def test_the_loss_is_the_mean_of_the_epoch_and_long_epochs_print_more_lines(
    store_path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    losses: list[float] = []

    class Losses(RunHistory):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
            super().on_train_batch_end(trainer)
            losses.append(float(outputs["loss"]))

    history = Losses()
    fit(store_path, tmp_path, callbacks=[history, RunProgress(history)], enable_progress_bar=True)
    for epoch, row in enumerate(history.rows.values()):
        mean = sum(losses[epoch * STEPS : (epoch + 1) * STEPS]) / STEPS
        assert row["train/loss"] == pytest.approx(mean, rel=1e-5)
    lines = capsys.readouterr().out.splitlines()
    assert ("0.5/2", "2/8") in steps(lines)
    assert any("validates 1/" in line for line in lines)


def test_a_terminal_shows_one_bar_of_its_width_for_all_epochs(
    store_path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(progress, "REFRESH_S", 0.0)
    *facts, bar = observe(store_path, tmp_path, capsys)[1]
    assert all(re.match(r"\w+ +\S", line) for line in facts)
    states = [state for state in bar.split("\r") if state.strip()]
    assert max(map(len, states)) <= 80
    counts = [int(state.split("/")[0]) for state in states]
    assert counts == sorted(counts)
    assert states[-1].startswith(f"{STEPS * EPOCHS}/{STEPS * EPOCHS} ")
    assert any("validates 1/" in state for state in states)
    assert "left, loss " in states[-1]
