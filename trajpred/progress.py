"""Print the progress of long work to stderr: its stage, and a bar for loops."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

#: Seconds between two lines of a loop where no one watches.
LINE_S = 60.0


@contextmanager
def stage(text: str, shown: bool = True) -> Iterator[None]:
    """Print ``text`` before work that takes a while, and after it how long it took."""
    start = time.monotonic()
    if shown:
        print(f"{text} … ", end="", file=sys.stderr, flush=True)
    try:
        yield
    except BaseException:
        if shown:
            print(file=sys.stderr)
        raise
    if shown:
        print(f"{time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


def progress_bar(*args: Any, shown: bool = True, **options: Any) -> tqdm:
    """Return tqdm's bar on a terminal; in a file or a pipe it prints lines, at least every :data:`LINE_S`.

    Args:
        args, options: of tqdm.
        shown: print anything.
    """
    if not sys.stderr.isatty():
        options |= {"file": _Lines(), "mininterval": LINE_S, "maxinterval": LINE_S}
    return tqdm(*args, disable=not shown, dynamic_ncols=True, **options)


class _Lines:
    """A stream that writes each state of a bar as a line."""

    def write(self, text: str) -> None:
        if text.strip():
            print(text.strip(), file=sys.stderr)

    def flush(self) -> None:
        sys.stderr.flush()
