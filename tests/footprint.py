"""What a process holds, from Linux's ``/proc``."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def own_mb(process: int | str = "self") -> float:
    """MB of memory that are a process's own; pages of the store belong to the system's cache."""
    return int(re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[1]) / 1024


@contextmanager
def highest() -> Iterator[list[float]]:
    """A list whose last number is the most :func:`own_mb` while the context lasts, looked at often."""
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
