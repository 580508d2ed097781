"""A run that is told to stop saves what it takes to go on as if it had not been told."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EMAWeightAveraging

from tests.graph.conftest import store_path  # noqa: F401
from tests.training.test_resume import SignalAt, assert_same_weights, fit, needs_signals, whole  # noqa: F401
from trajpred.training.callbacks import SIGNALS, RecentCheckpoint, StoppedError
from trajpred.training.checkpoint_io import AtomicCheckpointIO
from trajpred.training.lit_forecaster import LitForecaster

pytestmark = needs_signals


class Validated(pl.Callback):
    """The validation loss after so many steps."""

    def __init__(self) -> None:
        self.losses: dict[int, float] = {}

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert trainer.global_step not in self.losses, "validated twice"
        self.losses[trainer.global_step] = float(trainer.callback_metrics["val/loss"])


@pytest.fixture
def harmless() -> Iterator[None]:
    """Signals that training does not catch must not end the tests; nor may it keep them afterwards."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    yield
    assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_IGN}
    for number, handler in before.items():
        signal.signal(number, handler)


def stopped(store: Path, folder: Path, at: SignalAt, *callbacks: pl.Callback, **options: Any) -> Path:
    """What a run saves that gets a signal."""
    recent = RecentCheckpoint(folder, "last", train_time_interval=timedelta(hours=1))
    with pytest.raises(StoppedError) as stop:
        fit(store, folder, callbacks=[at, *callbacks, recent], plugins=[AtomicCheckpointIO()], **options)
    assert Path(stop.value.checkpoint).parent == folder
    return Path(stop.value.checkpoint)


@pytest.mark.parametrize(
    ("at", "done"),
    [
        (SignalAt(0, "SIGTERM"), 1),
        (SignalAt(5, "SIGINT"), 6),
        (SignalAt(8, "SIGUSR1"), 9),
        (SignalAt(7, "SIGTERM"), 8),  # the last step of an epoch: its validation is still to come
        (SignalAt(4, "SIGTERM", validating=True), 4),
        (SignalAt(12, "SIGINT", validating=True), 12),  # nothing but a validation is left
    ],
)
@pytest.mark.usefixtures("harmless")
def test_a_run_that_is_told_to_stop_goes_on_as_if_it_had_not_been(
    store_path: Path,  # noqa: F811
    whole: tuple[Path, LitForecaster, list[list[str]]],  # noqa: F811
    tmp_path: Path,
    at: SignalAt,
    done: int,
) -> None:
    (_, model, steps), before, after = whole, Validated(), Validated()
    saved = stopped(store_path, tmp_path, at, before)
    assert torch.load(saved, weights_only=True)["global_step"] == done
    resumed, rest = fit(store_path, tmp_path / "rest", 0, saved, [after])
    assert rest == steps[done:]
    assert_same_weights(model.state_dict(), resumed.state_dict())
    assert sorted([*before.losses, *after.losses]) == [4, 8, 12], "each validation once"


class SignalEarly(SignalAt):
    """Sends it while Lightning's own handlers are in place still."""

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._send(trainer)

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        pass


@pytest.mark.usefixtures("harmless")
def test_one_that_is_told_before_its_first_step_stops_after_it(store_path: Path, tmp_path: Path) -> None:  # noqa: F811
    saved = stopped(store_path, tmp_path, SignalEarly(0, "SIGTERM"))
    assert torch.load(saved, weights_only=True)["global_step"] == 1


@pytest.mark.usefixtures("harmless")
def test_averaged_weights_are_not_mistaken_for_the_model_when_validation_is_stopped(
    store_path: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    def callbacks() -> tuple[EMAWeightAveraging, Validated]:
        return EMAWeightAveraging(decay=0.8, use_buffers=False), Validated()

    average, validated = callbacks()
    model, _ = fit(store_path, tmp_path / "whole", callbacks=[average, validated])
    at = SignalAt(8, "SIGTERM", validating=True)
    saved = stopped(store_path, tmp_path, at, callbacks()[0])
    average, again = callbacks()
    resumed, _ = fit(store_path, tmp_path / "rest", 0, saved, [average, again])
    assert_same_weights(model.state_dict(), resumed.state_dict())
    assert again.losses == {step: validated.losses[step] for step in (8, 12)}


@pytest.mark.usefixtures("harmless")
def test_accumulated_gradients_come_to_their_step_first(store_path: Path, tmp_path: Path) -> None:  # noqa: F811
    twice = {"accumulate_grad_batches": 2, "limit_val_batches": 0}
    model, steps = fit(store_path, tmp_path / "whole", **twice)
    saved = stopped(store_path, tmp_path, SignalAt(2, "SIGTERM"), **twice)
    resumed, rest = fit(store_path, tmp_path / "rest", 0, saved, **twice)
    assert rest == steps[6:], "told in the fifth batch, it made use of the sixth"
    assert_same_weights(model.state_dict(), resumed.state_dict())


@pytest.mark.usefixtures("harmless")
def test_a_validation_within_an_epoch_is_taken_up_too(
    store_path: Path,  # noqa: F811
    whole: tuple[Path, LitForecaster, list[list[str]]],  # noqa: F811
    tmp_path: Path,
) -> None:
    (_, model, steps), before, after = whole, Validated(), Validated()
    at = SignalAt(6, "SIGTERM", validating=True)
    saved = stopped(store_path, tmp_path, at, before, val_check_interval=2)
    resumed, rest = fit(store_path, tmp_path / "rest", 0, saved, [after], val_check_interval=2)
    assert rest == steps[6:]
    assert_same_weights(model.state_dict(), resumed.state_dict())
    assert [*before.losses, *after.losses] == [2, 4, 6, 8, 10, 12]
