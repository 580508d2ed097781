"""Training and prediction on a simulated device, for the process that test_devices.py starts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from pytorch_lightning.callbacks import EMAWeightAveraging
from pytorch_lightning.strategies import SingleDeviceStrategy

from tests.model.small import TOLERANCE
from tests.model.systems import each_config, small
from tests.scenes import assert_same_forecasts
from tests.simulated_device import DEVICE, NAME, SimulatedTensor, counted
from tests.training.command import SignalAt, tiny
from tests.training.runs import Record, assert_same_run, fit
from trajpred.data.scenario import Scenario
from trajpred.predictors import CheckpointPredictor, load_predictor
from trajpred.store import ScenarioStore
from trajpred.training import train
from trajpred.training.data_module import SceneDataset

#: Differences of a device from the CPU.
WITHIN = {"atol": TOLERANCE["trajectory"], "of_probability": 1e-3}
#: How often a step may wait for the host: for the agents drawn, the sizes of scenes, two graphs by radius.
WAITS = 4
#: The check that losses are finite, the learning rate that is logged, and torch's AveragedModel (twice).
TRAINER_WAITS = 4
#: The systems whose own layers wait: worlds have two graphs by radius more, stars leave out empty sectors,
#: PyG's operator removes self loops, and shortest paths end at the most distant node.
MORE_WAITS = {"joint": 2, "gat_plain_star": 1, "gat_star": 1, "gatv2_star": 1, "transformer_m": 11}


def test_tensors_of_two_devices_are_an_error_and_waits_are_counted() -> None:
    x = torch.arange(3.0, device=DEVICE)
    with pytest.raises(RuntimeError, match=r"aten.add.Tensor on tensors of several devices"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match=r"aten.stack.default on tensors of several devices"):
        torch.stack((x.sum(), torch.tensor(0.0)))
    with counted() as waits:
        y = (x * 2 + torch.tensor(1.0)).clamp(max=3)
        assert isinstance(y[x.long()], SimulatedTensor)
    assert not waits
    with counted() as waits:
        assert y[x > 0].cpu().tolist() == [3, 3]
        assert float(y[torch.tensor([2])]) == 3
    assert sum(waits.values()) == 4


@pytest.fixture(scope="session")
def scenes(store_path: Path) -> tuple[ScenarioStore, NDArray[np.int64]]:
    """The validation scenes, and the rows of the two smallest."""
    store = ScenarioStore(store_path, "val")
    return store, store.sizes[0].argsort()[:2]


@each_config
def test_every_system_trains_and_predicts_as_on_the_cpu(
    path: Path, scenes: tuple[ScenarioStore, NDArray[np.int64]]
) -> None:
    store, rows = scenes
    model = small(path).eval()
    batch = SceneDataset(store, model.scene)[rows]
    with torch.no_grad():
        expected = model(batch)
        model.to(DEVICE)
        batch = batch.to(DEVICE)
        prediction = model(batch)
    for name in ("trajectory", "logits"):
        value = getattr(prediction, name).cpu()
        torch.testing.assert_close(value, getattr(expected, name), rtol=0, atol=TOLERANCE[name])
    model.train()
    with counted() as waits:
        model.losses(batch)["loss"].backward()
    assert sum(waits.values()) <= WAITS + MORE_WAITS.get(path.stem, 0), waits
    assert all(p.grad is None or isinstance(p.grad, SimulatedTensor) for p in model.parameters())


class Waits(pl.Callback):
    """Count how often each step of a trainer waits for the host, without the transfer of its batch."""

    def __init__(self) -> None:
        self.steps: list[Counter[str]] = []

    def on_train_batch_start(self, *_: Any) -> None:
        self.counting = counted()
        self.steps.append(self.counting.__enter__())

    def on_train_batch_end(self, *_: Any) -> None:
        self.counting.__exit__(None, None, None)


@pytest.mark.usefixtures("ignored_signals")
def test_a_stopped_run_resumes_as_if_it_had_not_been(store_path: Path, tmp_path: Path) -> None:
    """Transfer of scenes, random numbers of dropout, optimizer, averaged weights, validation, checkpoints."""

    def run(folder: Path, resume: Path | None = None, stop: SignalAt | None = None) -> tuple[Record, Path]:
        average = EMAWeightAveraging(decay=0.8, use_buffers=False)
        return fit(
            store_path,
            folder,
            resume,
            [average, waits],
            stop,
            accelerator=NAME,
            strategy=SingleDeviceStrategy(DEVICE),
            gradient_clip_val=1.0,
            limit_train_batches=2,
            limit_val_batches=1,
        )

    waits = Waits()
    expected, _ = run(tmp_path / "whole")
    for step in waits.steps[1:]:  # constants are copied in the first
        assert step.total() <= WAITS + TRAINER_WAITS, step
    before, saved = run(tmp_path, stop=SignalAt(2, "SIGTERM"))
    after, _ = run(tmp_path / "rest", saved)
    assert_same_run(before + after, expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_command_trains_and_its_checkpoint_predicts(
    store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = {"accelerator": NAME, "max_epochs": 1, "limit_train_batches": 2, "limit_val_batches": 1}
    strategy = {
        "class_path": "pytorch_lightning.strategies.SingleDeviceStrategy",
        "init_args": {"device": str(DEVICE)},
    }
    trainer |= {"strategy": json.dumps(strategy), "check_val_every_n_epoch": 1}
    run = train.train(tiny(store_path, tmp_path, "--pictures.scenes=0", **trainer))
    assert run is not None
    assert "device      SIMULATED" in capsys.readouterr().out
    assert run.history.rows[2]["val/focal/minFDE6"] > 0
    assert_predicts_as_on_the_cpu(run.checkpoint, [run.scenes[0]])


@pytest.mark.slow
def test_shipped_weights_predict_as_on_the_cpu(real: list[Scenario]) -> None:
    assert_predicts_as_on_the_cpu("argoverse-nano", real[:2])
    joint = CheckpointPredictor("argoverse-nano", joint=True)
    expected = joint(real[:1])
    assert_same_forecasts(joint.to(DEVICE)(real[:1]), expected, **WITHIN)


def assert_predicts_as_on_the_cpu(checkpoint: str | Path, scenarios: list[Scenario]) -> None:
    """The same futures, also mirrored, and the same attention."""
    predictor = load_predictor(checkpoint)
    assert isinstance(predictor, CheckpointPredictor)
    expected = predictor(scenarios)
    mirrored = predictor.mirrored()(scenarios)
    attention = predictor.attention(scenarios)
    predictor.to(DEVICE)
    assert "simulated:0" in repr(predictor)
    assert not predictor.fork_safe
    assert_same_forecasts(predictor(scenarios), expected, **WITHIN)
    assert_same_forecasts(predictor.mirrored()(scenarios), mirrored, **WITHIN)
    for a, b in zip(predictor.attention(scenarios), attention, strict=True):
        np.testing.assert_allclose(a.weight, b.weight, rtol=0, atol=1e-4)
