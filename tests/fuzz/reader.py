"""What is fuzzed: something that reads a file, files that it reads, and how they are spoilt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.fuzz.mutate import Mutator


@dataclass(frozen=True)
class Reader:
    """A reader under test.

    Attributes:
        seeds: contents that it reads without an error.
        mutate: spoils one of them.
        read: hands it a content; raises DataError where that cannot be used, and nothing else.
        rate: how many inputs of a campaign it gets, relative to the others (slow ones get few).
    """

    seeds: tuple[bytes, ...]
    mutate: Mutator
    read: Callable[[bytes], object]
    rate: float = 1.0

    def spoilt(self, random: Random) -> bytes:
        return self.mutate(random, random.choice(self.seeds))


#: Makes a reader that works in a folder of its own.
Maker = Callable[[Path], Reader]


def of_file(path: Path, read: Callable[[], object]) -> Callable[[bytes], object]:
    """Writes each content to ``path``, then reads. A fresh file each time: others may be mapped."""

    def write_and_read(content: bytes) -> object:
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        return read()

    return write_and_read
