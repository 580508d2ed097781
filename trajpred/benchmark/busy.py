"""Whole commands, alone and beside a busy loop on every core."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trajpred.errors import DataError
from trajpred.processors import THREADS, WAITING, cores


def busy_figures(checkpoint: str, store: Path | None, limit: int, epochs: int) -> dict[str, float]:
    """Measure ``evaluate`` and ``train`` in seconds of wall and CPU time, quiet and busy.

    Each runs as it is, and with what torch does by itself: one process, and a thread per core that waits
    actively. That needs a machine on which nothing else runs.

    Args:
        checkpoint, store, limit: what is evaluated, on how many scenarios.
        epochs: of a training on the sample.
    """
    places = [] if store is None else ["--store", str(store)]
    evaluate = ["evaluate", "--checkpoint", checkpoint, *places]
    train = ["train", f"--trainer.max_epochs={epochs}"]
    active = {THREADS: str(cores()), "OMP_WAIT_POLICY": "ACTIVE"}
    scored = [*evaluate, "--limit", str(limit)]
    runs = {
        f"evaluate, {limit} scenarios": (scored, {}),
        f"evaluate, {limit} scenarios, torch's threads": ([*scored, "--workers", "1"], active),
        f"train, {epochs} epochs": (train, {}),
        f"train, {epochs} epochs, torch's threads": ([*train, "--trainer.devices=1"], active),
    }
    figures: dict[str, float] = {}
    _measure([*evaluate, "--limit", "1"], {})  # brings files to memory
    for name, (command, variables) in runs.items():
        quiet, cpu = _measure(command, variables)
        with busy_loops(cores()):
            busy, busy_cpu = _measure(command, variables)
        figures |= {f"{name}: s": quiet, f"{name}: CPU s": cpu, f"{name}, busy: s": busy}
        figures |= {f"{name}, busy: CPU s": busy_cpu, f"{name}: busy / quiet": busy / quiet}
    return figures


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep ``count`` processes busy in this context."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _measure(command: Sequence[str], variables: dict[str, str]) -> tuple[float, float]:
    """Run a command of the application: seconds of wall and CPU time, those of its processes included."""
    inherited = {name: value for name, value in os.environ.items() if name not in (*WAITING, THREADS)}
    start, before = time.monotonic(), os.times()
    with tempfile.TemporaryDirectory() as runs:
        folder = [f"--trainer.logger.init_args.save_dir={runs}"] if command[0] == "train" else []
        program = [sys.executable, "-m", "trajpred", *command, *folder]
        done = subprocess.run(program, env=inherited | variables, capture_output=True, text=True)
    if done.returncode:
        raise DataError(f"benchmark failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    wall, after = time.monotonic() - start, os.times()
    cpu, earlier = (times.children_user + times.children_system for times in (after, before))
    return wall, cpu - earlier
