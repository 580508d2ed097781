"""Memory of a process, from Linux's ``/proc``."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def private_mb(process: int | str = "self") -> float:
    """Return the private memory of a process in MB, without the store's pages in the system's cache."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Yield a list with the maximum of :func:`private_mb` so far, sampled every 20 ms."""
    peak, done = [private_mb()], threading.Event()

    def sample() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], private_mb())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield peak
    finally:
        done.set()
        sampler.join()
