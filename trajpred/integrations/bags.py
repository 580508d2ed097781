"""ROS 2 bags and MCAP files: their topics, message types and messages, read with rosbags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trajpred.errors import DataError

if TYPE_CHECKING:
    from rosbags.interfaces import Connection
    from rosbags.interfaces.typing import Typesdict
    from rosbags.typesys.store import Typestore

#: The line between the definitions of a message and of those it contains.
SEPARATOR = "=" * 80 + "\n"


def recorded_types(connection: Connection, defaults: Typestore) -> Typestore:
    """Return the message types as the recording defines them.

    Args:
        defaults: types for what it does not define: everything, where a recorder wrote no definition; the
            messages of ROS itself, where a definition refers to them and omits them.

    Raises: rosbags.typesys.TypesysError if a definition is damaged.
    """
    from rosbags.interfaces import MessageDefinitionFormat
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    definition = connection.msgdef
    if definition.format is MessageDefinitionFormat.NONE or not definition.data.strip():
        return defaults
    if definition.format is MessageDefinitionFormat.IDL:
        recorded = _types_from_idl(definition.data)
    else:
        recorded = get_types_from_msg(definition.data, connection.msgtype)
    # The recording comes last: nothing of it is read by another definition.
    types = get_typestore(Stores.EMPTY)
    types.register({**defaults.fielddefs, **recorded})
    return types


def _types_from_idl(text: str) -> Typesdict:
    """Return the types of definitions in the interface definition language, one below the other."""
    from rosbags.typesys import get_types_from_idl, get_types_from_msg

    types: Typesdict = {}
    for section in text.split(SEPARATOR):
        title, _, rest = section.partition("\n")
        if title.startswith("MSG: "):
            types |= get_types_from_msg(rest, title.removeprefix("MSG: ").strip())
            continue
        source = rest if title.startswith("IDL: ") else section
        source = _without_preprocessor(source)
        if source.strip():
            types |= get_types_from_idl(source)
    return types


def _without_preprocessor(source: str) -> str:
    """Remove the lines for the preprocessor, such as includes, which rosbags cannot parse."""
    return re.sub(r"^[ \t]*#.*$", "", source, flags=re.MULTILINE)


#: What repairs the files of a recorder that was killed, by the ending of their names.
_REPAIR = {
    ".mcap": "`mcap recover` repairs files of a killed recorder",
    ".db3": "`sqlite3 drive.db3 .recover` repairs files of a killed recorder",
    "": "`ros2 bag reindex` repairs a bag without metadata.yaml; its files can be given one by one",
}


class Bag:
    """The topics and messages of a bag's folder, or of one of its files.

    Args:
        path: folder of a ROS 2 bag, or one of its files (.mcap, .db3).

    Attributes:
        problems: number of times that each problem occurred.

    Raises: DataError if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        from rosbags.rosbag2 import Reader

        self.path = path
        self.problems = Counter[str]()
        if not path.exists():
            raise DataError("no such recording", file=path)
        if has_write_ahead_log(path):
            raise DataError(f"SQLite has not merged its write-ahead log; {self._repair}", file=path)
        try:
            self._reader = Reader(path)
            self._reader.open()
        except Exception as error:  # damaged files raise many types
            problem = f"not a readable ROS 2 bag or MCAP file ({reason(error)})"
            raise DataError(f"{problem}; {self._repair}", file=path) from None

    @property
    def _repair(self) -> str:
        return _REPAIR.get(self.path.suffix, _REPAIR[""])

    @property
    def connections(self) -> list[Connection]:
        """The connections of all files; a topic may have several."""
        return list(self._reader.connections)

    def messages(self, topic: str, types: Collection[str]) -> Iterator[tuple[Connection, bytes]]:
        """Yield the messages of a topic that are of these types, in the order of recording."""
        on_topic = [connection for connection in self._reader.connections if connection.topic == topic]
        chosen = [connection for connection in on_topic if connection.msgtype in types]
        if not chosen:
            return
        try:
            for connection, _, data in self._reader.messages(connections=chosen):
                yield connection, bytes(data)
        except Exception as error:  # damaged files raise many types
            self.problems[
                f"{self.path.name} is damaged and ends early ({reason(error)}; {self._repair})"
            ] += 1


def has_write_ahead_log(path: Path) -> bool:
    """Return whether a database has messages in the file beside it that SQLite has not yet merged."""
    log = path.with_name(f"{path.name}-wal")
    return log.is_file() and log.stat().st_size > 0


def reason(error: Exception) -> str:
    """Return the message of an error in one line, or its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
