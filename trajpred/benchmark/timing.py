"""Measuring time and memory. On shared machines, process CPU time on one thread is comparable."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from trajpred.errors import DataError


@contextmanager
def use_threads(count: int = 1) -> Iterator[None]:
    """Compute with ``count`` threads in this context; CPU times are comparable with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def own_process(script: str, *arguments: object) -> list[float]:
    """Run ``script`` in a new process and return the list of numbers that it prints last.

    Raises:
        DataError: the process failed; with the last line of its error.
    """
    command = [sys.executable, "-c", script]
    command += [str(argument) for argument in arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1] if lines else "no message"
        raise DataError(f"benchmark failed: {reason}")
    numbers: list[float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def median_ms(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Measure ``work``: median CPU and wall time in milliseconds."""
    work()  # warms up
    cpu_ms = []
    wall_ms = []
    for _ in range(repeats):
        cpu, wall = time_ms(work)
        cpu_ms.append(cpu)
        wall_ms.append(wall)
    return statistics.median(cpu_ms), statistics.median(wall_ms)


def time_ms(work: Callable[[], object]) -> tuple[float, float]:
    """Measure ``work`` once: CPU and wall time in milliseconds."""
    cpu_start = time.process_time()
    wall_start = time.perf_counter()
    work()
    cpu_s = time.process_time() - cpu_start
    wall_s = time.perf_counter() - wall_start
    return 1e3 * cpu_s, 1e3 * wall_s
