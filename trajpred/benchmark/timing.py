"""How time and memory are measured.

Shared machines stretch wall times; process CPU time on one thread is what compares.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from trajpred.errors import require


@contextmanager
def one_thread() -> Iterator[None]:
    """CPU time of several threads adds up and says little; one thread compares."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def median_ms(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median one-thread CPU time and median wall time of ``work``, milliseconds."""
    require(repeats > 0, "repeats", "must be positive")
    work()
    cpu, wall = [], []
    for _ in range(repeats):
        start, began = time.process_time(), time.perf_counter()
        work()
        cpu.append(time.process_time() - start)
        wall.append(time.perf_counter() - began)
    return 1e3 * statistics.median(cpu), 1e3 * statistics.median(wall)
