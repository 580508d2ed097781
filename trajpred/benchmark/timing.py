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

    Raises: DataError with the last line of its error.
    """
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise DataError(f"benchmark failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    numbers: list[float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def median_ms(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Measure ``work``: median CPU and wall time in milliseconds."""
    work()
    cpu, wall = zip(*(time_ms(work) for _ in range(repeats)), strict=True)
    return statistics.median(cpu), statistics.median(wall)


def time_ms(work: Callable[[], object]) -> tuple[float, float]:
    """Measure ``work`` once: CPU and wall time in milliseconds."""
    start, began = time.process_time(), time.perf_counter()
    work()
    return 1e3 * (time.process_time() - start), 1e3 * (time.perf_counter() - began)
