"""What is left out of a map because it is broken: counted by kind, named, and reported."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trajpred.errors import MAX_QUOTED, DataError, shortened

#: How many parts of a kind a summary names.
MAX_NAMED = 10


@dataclass
class MapProblems:
    """The parts of a map file that were left out, so that the rest could be read.

    Attributes:
        left_out: for each kind of part (``lanelet``, ``road``, ``link`` …) the reasons by the part's name.

    Example:
        >>> problems = MapProblems()
        >>> with problems.leaving_out("road", "7"):
        ...     raise DataError("must be above 0", field="road.length")
        >>> problems.summaries()
        ["1 road left out: 7 (field 'road.length': must be above 0)"]
    """

    left_out: dict[str, dict[str, str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.left_out)

    def add(self, kind: str, name: str, reason: str) -> None:
        """Record a part that is left out; of several reasons the first one stays."""
        self.left_out.setdefault(kind, {}).setdefault(name, reason)

    @contextmanager
    def leaving_out(self, kind: str, name: str) -> Iterator[None]:
        """Leave a part out, and go on, if reading it raises a DataError."""
        try:
            yield
        except DataError as error:
            self.add(kind, name, str(error))

    def has(self, kind: str, name: str) -> bool:
        """Return whether a part was left out."""
        return name in self.left_out.get(kind, ())

    def summaries(self) -> list[str]:
        """Describe each kind: how many were left out, the names of the first ones, and the first reason."""
        return [_summary(kind, reasons) for kind, reasons in self.left_out.items()]

    def warn(self, path: Path) -> None:
        """Warn about what was left out of the file ``path``, if anything was."""
        if self:
            # The caller of the reader, which calls this.
            warnings.warn(f"{path}: {'; '.join(self.summaries())}", stacklevel=3)


def require_lanes(count: int, problems: MapProblems) -> None:
    """Raise DataError if a map has no lane, which names what was left out of it."""
    if count:
        return
    sentence = "the map has no lane that road users drive on"
    reasons = "; ".join(problems.summaries())
    if reasons:
        sentence = f"{sentence}: {reasons}"
    raise DataError(sentence, field="lanes")


def _summary(kind: str, reasons: dict[str, str]) -> str:
    count = len(reasons)
    names = [shortened(name, MAX_QUOTED) or "without a name" for name in reasons]
    reason = next(iter(reasons.values()))
    if count == 1:
        return f"1 {kind} left out: {names[0]} ({reason})"
    listed = ", ".join(names[:MAX_NAMED])
    if count > MAX_NAMED:
        listed += ", …"
    return f"{count} {kind}s left out: {listed} ({names[0]}: {reason})"
