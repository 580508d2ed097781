"""Read the files that a killed recorder leaves, up to where they end or are damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from mcap.records import Channel, McapRecord, Schema
    from rosbags.interfaces import Connection, MessageDefinition

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
