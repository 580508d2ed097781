"""The devices of a training: what the user or a launcher decides stays, a CPU gets processes.

On another device than the CPU, simulated, no tensor stays behind.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.conftest import rejects
from tests.training.command import call
from trajpred.errors import DataError
from trajpred.training import distributed, train
from trajpred.training.distributed import LAUNCHERS, choose_accelerator, choose_devices


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight cores without a GPU, and the train command on them."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(distributed, "cores", lambda: 8)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/trajpred", "train"])
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


def chosen(batch_size: int = 16, scenes: int = 1000, **trainer: Any) -> dict[str, Any]:
    auto = {"accelerator": "auto", "devices": "auto", "strategy": "auto", "num_nodes": 1}
    return choose_devices(SimpleNamespace(**(auto | trainer)), batch_size, scenes)


@pytest.mark.parametrize(("batch_size", "processes"), [(1, 1), (4, 1), (8, 2), (16, 4), (64, 8)])
def test_a_process_for_each_core_as_far_as_it_has_several_scenes(batch_size: int, processes: int) -> None:
    assert chosen(batch_size) == {"accelerator": "cpu", "devices": processes}
    assert [chosen(64, scenes)["devices"] for scenes in (5, 1, 0)] == [5, 1, 1]


@pytest.mark.parametrize("command", ["tools/train.py", "trajpred/__main__.py train", "bin/trajpred train"])
def test_every_form_of_the_command_restarts(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", command.split())
    assert chosen()["devices"] == 4


def test_a_resumed_run_restarts(store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own config is added to the settings of the user."""
    (tmp_path / "config.yaml").write_text(f"data: {{store: {store_path}, batch_size: 16}}")
    monkeypatch.setattr(sys, "argv", ["/usr/bin/trajpred", "train", "--resume", str(tmp_path)])
    assert devices_of_command(monkeypatch) == {"accelerator": "cpu", "devices": 4}


@pytest.mark.parametrize(
    ("settings", "processes"),
    [
        ("--model.joint_every 2", 1),  # in every second step, some weights have no gradient
        ("--model.joint_every 1", 4),
        ("--model.joint_every 1 --data.val_half reporting", 1),  # one of the sample's five scenes
    ],
)
def test_every_process_has_weights_to_train_and_scenes_to_validate(
    settings: str, processes: int, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joint = "--model.decoder.init_args.joint true --data.batch_size 16"
    monkeypatch.setattr(sys, "argv", f"trajpred train --data.store {store_path} {joint} {settings}".split())
    assert devices_of_command(monkeypatch) == {"accelerator": "cpu", "devices": processes}


def devices_of_command(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the choice of the command in ``sys.argv``, which is then stopped."""
    choices: list[dict[str, Any]] = []

    def choose(*arguments: Any) -> dict[str, Any]:
        choices.append(choose_devices(*arguments))
        raise DataError("stop")

    monkeypatch.setattr(train, "choose_devices", choose)
    rejects("stop", train.train, sys.argv[2:])
    [choice] = choices
    return choice


@pytest.mark.parametrize(
    "trainer", [{"devices": 1}, {"strategy": "ddp"}, {"num_nodes": 2}, {"accelerator": "tpu"}]
)
def test_what_the_user_decides_stays(trainer: dict[str, Any]) -> None:
    assert "devices" not in chosen(**trainer)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_what_a_launcher_decides_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "2")
    assert "devices" not in chosen()


def test_a_call_from_python_stays_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/lib/pytest/__main__.py", "train"])
    assert "devices" not in chosen()


def test_the_gpu_is_used_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (choose_accelerator("auto"), choose_accelerator("tpu")) == ("cpu", "tpu")
    for name, problem in (("gpu", "there is no GPU"), ("mps", "Apple's GPUs lack float64")):
        rejects(rf"--trainer\.accelerator {name}: {problem}", choose_accelerator, name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert (choose_accelerator("auto"), choose_accelerator("cuda")) == ("gpu", "cuda")
    assert chosen() == {"accelerator": "gpu"}


@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_training_and_prediction_on_a_simulated_device(which: str) -> None:
    """In a process of its own, since PyTorch cannot forget a device."""
    file = "tests/training/on_simulated_device.py"
    done = call([sys.executable, "-m", "pytest", "-n", "0", "-m", which, "-p", "no:cacheprovider", file])
    assert done.returncode == 0, done.stdout + done.stderr
