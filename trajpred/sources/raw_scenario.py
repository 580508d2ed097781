"""The record of a scenario that a source has found and not read yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RawScenario:
    """A scenario in raw data, as sources discover it.

    Attributes:
        name: its name, unique within a split; in messages and in the records of a store.
        path: the file or folder that contains it. The scenario is prepared again when the size of the file,
            or of a file in the folder, changes.
        part: which part of ``path`` it is, by a number of the source's own: that of a sequence in a pack, of
            the first step of a window; None for the whole, or for the first window.

    Example:
        >>> RawScenario("17", Path("datasets/argoverse1/val.parquet"), part=17).name
        '17'
    """

    name: str
    path: Path
    part: int | None = None

    @classmethod
    def of(cls, path: Path) -> RawScenario:
        """Name a file without its suffix, or a folder, as a whole."""
        return cls(path.name if path.is_dir() else path.stem, path)
