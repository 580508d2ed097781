"""Open ROS 2 bags and MCAP files, whole or not: topics, and messages as bytes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trajpred.errors import DataError
from trajpred.sources.bags.unfinished import UnfinishedDatabase, UnfinishedMcap, write_ahead_log

if TYPE_CHECKING:
    from rosbags.interfaces import Connection

#: What reads an unfinished or damaged file, by the ending of its name.
_UNFINISHED: dict[str, type[UnfinishedDatabase] | type[UnfinishedMcap]] = {
    ".mcap": UnfinishedMcap,
    ".db3": UnfinishedDatabase,
}


class Storage(Protocol):
    """An open bag, or one open file of it."""

    @property
    def path(self) -> Path: ...

    @property
    def connections(self) -> Collection[Connection]: ...

    def messages(self, connections: Collection[Connection]) -> Iterator[tuple[Connection, int, bytes]]: ...


class Bag:
    """The topics and messages of a bag's folder, or of one of its files.

    A folder without a usable ``metadata.yaml`` is read file by file, and an unfinished or damaged file up to
    the damage. Both remain when a recorder is killed.

    Args:
        path: folder of a ROS 2 bag, or one of its files (.mcap, .db3).

    Attributes:
        problems: number of times that each problem occurred.

    Raises: DataError if nothing can be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems = Counter[str]()
        if not path.exists():
            raise DataError("no such recording", file=path)
        self._storages = self._open()

    @property
    def connections(self) -> list[Connection]:
        """The connections of all files; a topic may have several."""
        connections: list[Connection] = []
        for storage in self._storages:
            connections += storage.connections
        return connections

    def messages(self, topic: str, types: Collection[str]) -> Iterator[tuple[Connection, bytes]]:
        """Yield the messages of a topic that are of these types, in the order of recording."""
        for storage in self._storages:
            on_topic = [item for item in storage.connections if item.topic == topic]
            chosen = [item for item in on_topic if item.msgtype in types]
            if not chosen:
                continue
            try:
                for connection, _, data in storage.messages(connections=chosen):
                    yield connection, data
            except Exception as error:  # damaged files raise many types
                cause = reason(error)
                if isinstance(storage, (UnfinishedDatabase, UnfinishedMcap)):
                    cause = f"{cause}; {storage.ADVICE}"
                self.problems[f"{storage.path.name} is damaged and ends early ({cause})"] += 1

    def _open(self) -> list[Storage]:
        try:
            return [_whole(self.path)]
        except Exception as error:  # damaged files raise many types
            cause = reason(error)
        if self.path.is_dir():
            return self._files(cause)
        return [self._unfinished(cause)]

    def _files(self, cause: str) -> list[Storage]:
        """Open the files of a folder one by one, since the bag cannot be read for this cause."""
        storages: list[Storage] = []
        errors: list[DataError] = []
        for path in _files_of(self.path):
            try:
                file = Bag(path)
            except DataError as error:
                errors.append(error)
                continue
            storages += file._storages
            self.problems += file.problems
        if not storages and not errors:
            raise self._unreadable(cause)
        if not storages:
            raise errors[0]
        for damage in errors:
            self.problems[f"a file was skipped: {damage}"] += 1
        return storages

    def _unfinished(self, cause: str) -> Storage:
        """Open a file that cannot be read as a whole for this cause."""
        reader = _UNFINISHED.get(self.path.suffix)
        if reader is None:
            raise self._unreadable(cause)
        try:
            storage = reader(self.path)
        except Exception:  # damaged files raise many types, and the first cause is clearer
            raise self._unreadable(f"{cause}; {reader.ADVICE}") from None
        if not storage.connections:
            raise self._unreadable(f"{cause}; {reader.ADVICE}")
        return storage

    def _unreadable(self, cause: str) -> DataError:
        return DataError(f"not a readable ROS 2 bag or MCAP file ({cause})", file=self.path)


def reason(error: Exception) -> str:
    """Return the message of an error in one line, or its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def _whole(path: Path) -> Storage:
    """Open a bag or file that is complete. Raises: errors of many types."""
    from rosbags.rosbag2 import Reader

    if write_ahead_log(path):
        raise ValueError("has a write-ahead log")  # which this reader would ignore
    reader: Storage = Reader(path)
    reader.open()  # type: ignore[attr-defined]
    return reader


def _files_of(folder: Path) -> list[Path]:
    """Return the files of a bag in the order of recording: ``drive_2.db3`` before ``drive_10.db3``."""
    files = [path for path in folder.iterdir() if path.suffix in _UNFINISHED]
    return sorted(files, key=_number_and_name)


def _number_and_name(path: Path) -> tuple[int, str]:
    """Return the number at the end of a name without its ending, and the name."""
    number = re.search(r"\d+$", path.stem)
    return int(number.group()) if number else -1, path.name
