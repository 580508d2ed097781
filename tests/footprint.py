"""Memory of a process, from Linux's ``/proc``."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def own_mb(process: int | str = "self") -> float:
    """Return the private memory of a process in MB; pages of the store belong to the system's cache."""
    return int(re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[1]) / 1024


@contextmanager
def highest() -> Iterator[list[float]]:
    """Yield a list whose last number is the maximum of :func:`own_mb` so far, sampled every 20 ms."""
    most, over = [own_mb()], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most.append(max(most.pop(), own_mb()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()
