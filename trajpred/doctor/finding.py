"""What a check of the installation says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        level: a problem has to be solved, a note may be.
        what: was found.
        advice: what to do about it, or why it matters.
    """

    level: Level
    what: str
    advice: str = ""

    def __str__(self) -> str:
        return f"  {self.level:8} {self.what}" + (f": {self.advice}" if self.advice else "")


Check = Callable[[], Iterator[Finding]]


def reason(error: Exception) -> str:
    """An exception in one line."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
