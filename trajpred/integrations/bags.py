"""The message types that a recording defines."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from trajpred.errors import DataError

if TYPE_CHECKING:
    from mcap.records import Channel, McapRecord, Schema
    from rosbags.interfaces import Connection, MessageDefinition
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


#: Maximum bytes of a chunk: a damaged file may claim any length.
MAX_CHUNK_BYTES = 2**28


def write_ahead_log(path: Path) -> bool:
    """Return whether a database has messages in the file beside it that SQLite has not yet merged."""
    log = path.with_name(f"{path.name}-wal")
    return log.is_file() and log.stat().st_size > 0


class UnfinishedDatabase:
    """The topics of a ``.db3`` file, and its messages up to the first page that is missing or damaged.

    Raises: sqlite3.Error if the file is no database, or its topics cannot be read.
    """

    ADVICE: ClassVar[str] = "SQLite's shell repairs .db3 files: sqlite3 drive.db3 .recover"

    def __init__(self, path: Path) -> None:
        self.path = path
        mode = "mode=ro" if write_ahead_log(path) else "immutable=1"
        address = f"{path.resolve().as_uri()}?{mode}"
        self._database = sqlite3.connect(address, uri=True, check_same_thread=False)
        # Otherwise SQLite refuses a file that is shorter than its header says.
        self._database.execute("PRAGMA writable_schema = ON")
        self.connections = self._topics()

    def messages(self, connections: Collection[Connection]) -> Iterator[tuple[Connection, int, bytes]]:
        """Yield messages in the order of recording. Raises: sqlite3.Error at the damage."""
        chosen: dict[int, Connection] = {}
        for connection in connections:
            chosen[connection.id] = connection
        # By row, which is the order of recording: the index of times may lie beyond the damage.
        messages = self._database.execute(
            "SELECT topic_id, timestamp, data FROM messages NOT INDEXED ORDER BY id"
        )
        for topic, time_ns, data in messages:
            if topic in chosen:
                yield chosen[topic], int(time_ns), bytes(data)

    def _topics(self) -> list[Connection]:
        definitions = self._definitions()
        connections: list[Connection] = []
        for identity, topic, kind in self._database.execute("SELECT id, name, type FROM topics"):
            encoding, text = definitions.get(kind, ("", ""))
            connections.append(_connection(identity, topic, kind, _definition(encoding, text)))
        return connections

    def _definitions(self) -> dict[str, tuple[str, str]]:
        """Return encoding and text by message type; recorders before ROS 2 Iron wrote none."""
        definitions: dict[str, tuple[str, str]] = {}
        columns = "topic_type, encoding, encoded_message_definition"
        with suppress(sqlite3.Error):
            for kind, encoding, text in self._database.execute(f"SELECT {columns} FROM message_definitions"):
                definitions[kind] = encoding, text
        return definitions


class UnfinishedMcap:
    """The topics of an MCAP file without an index, and its messages up to the damage.

    Raises: mcap.exceptions.McapError if the file does not begin as one.
    """

    ADVICE: ClassVar[str] = "the command mcap recover repairs MCAP files"

    def __init__(self, path: Path) -> None:
        self.path = path
        schemas: dict[int, Schema] = {}
        channels: dict[int, Channel] = {}
        with suppress(Exception):  # what precedes the damage counts
            for record in self._records():
                _collect(record, schemas, channels)
        self.connections: list[Connection] = []
        for channel in channels.values():
            schema = schemas.get(channel.schema_id)
            if schema is not None:
                definition = _definition(schema.encoding, schema.data.decode("utf-8", "replace"))
                connection = _connection(channel.id, channel.topic, schema.name, definition)
                self.connections.append(connection)

    def messages(self, connections: Collection[Connection]) -> Iterator[tuple[Connection, int, bytes]]:
        """Yield messages in the order of recording. Raises: errors of many types at the damage."""
        from mcap.records import Message

        chosen: dict[int, Connection] = {}
        for connection in connections:
            chosen[connection.id] = connection
        for record in self._records():
            if isinstance(record, Message) and record.channel_id in chosen:
                yield chosen[record.channel_id], record.log_time, record.data

    def _records(self) -> Iterator[McapRecord]:
        from mcap.stream_reader import StreamReader

        with self.path.open("rb") as stream:
            reader = StreamReader(stream, validate_crcs=True, record_size_limit=MAX_CHUNK_BYTES)
            yield from reader.records


def _collect(record: McapRecord, schemas: dict[int, Schema], channels: dict[int, Channel]) -> None:
    from mcap.records import Channel, Schema

    if isinstance(record, Schema):
        schemas[record.id] = record
    elif isinstance(record, Channel):
        channels[record.id] = record


def _connection(identity: int, topic: str, kind: str, definition: MessageDefinition) -> Connection:
    from rosbags.interfaces import Connection, ConnectionExtRosbag2

    return Connection(
        id=identity,
        topic=topic,
        msgtype=kind,
        msgdef=definition,
        digest="",
        msgcount=0,
        ext=ConnectionExtRosbag2("cdr", []),
        owner=None,
    )


def _definition(encoding: str, text: str) -> MessageDefinition:
    from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat

    formats = {
        "ros2msg": MessageDefinitionFormat.MSG,
        "ros2idl": MessageDefinitionFormat.IDL,
        "omgidl": MessageDefinitionFormat.IDL,
    }
    if encoding not in formats:
        return MessageDefinition(MessageDefinitionFormat.NONE, "")
    return MessageDefinition(formats[encoding], text)


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
