"""What a run prints, and its curves: also after a stop, as if there had been none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl

from tests.training.command import SignalAt
from tests.training.runs import EPOCHS, STEPS, fit
from trajpred.training import progress
from trajpred.training.progress import RunProgress
from trajpred.training.record import RunHistory

pytestmark = pytest.mark.usefixtures("ignored_signals")


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
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    saved = tmp_path / "a" / "checkpoints" / "last.ckpt"
    resumed, lines = observe(store_path, tmp_path / "b", capsys, resume=saved)
    assert steps(before) == [("1/2", "4/8")]
    assert any(line.startswith("resumes") for line in lines)
    assert any("validates 1/" in line for line in lines), "after LINE_S"
    assert steps(lines)[0] == ("1.8/2", "7/8")
    assert steps(lines)[-1] == ("2/2", "8/8")
    assert resumed.rows == whole.rows
