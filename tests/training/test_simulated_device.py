"""Training and prediction on another device than the CPU, simulated: no tensor stays behind."""

from __future__ import annotations

import sys

from tests.training.command import call


def test_training_and_prediction_on_a_simulated_device() -> None:
    """In a process of its own, since PyTorch cannot forget a device."""
    file = "tests/training/on_simulated_device.py"
    done = call([sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", file])
    assert done.returncode == 0, done.stdout + done.stderr
