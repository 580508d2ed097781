"""MCAP files of ROS 2 messages, readable by ROS 2's own tools and by Foxglove."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from trajpred.files import naming
from trajpred.sources.recorded_drive import ros_types

File = TypeVar("File", bound="McapFile")


class McapFile:
    """Write messages as they come; what was written stays readable if the process stops.

    Args:
        path: of the file, which is replaced. Raises: OSError.

    Example:
        >>> with McapFile("predicted.mcap") as file:
        ...     file.write("/objects", message, time_ns)
    """

    def __init__(self, path: str | Path) -> None:
        self._types, self.path = ros_types(), Path(path)
        from mcap.writer import Writer

        with naming(self.path):
            self._stream = self.path.open("wb")
        self._writer = Writer(self._stream)
        self._writer.start(profile="ros2", library="trajpred")
        self._channels: dict[str, int] = {}

    def __enter__(self: File) -> File:
        return self

    def __exit__(self, *raised: object) -> None:
        with naming(self.path), self._stream:
            self._writer.finish()

    def write(self, topic: str, message: Any, time_ns: int) -> None:
        """Append a ROS 2 message, logged and published at ``time_ns``. Raises: OSError."""
        kind = message.__msgtype__
        if topic not in self._channels:
            definition, _ = self._types.generate_msgdef(kind, ros_version=2)
            schema = self._writer.register_schema(kind, "ros2msg", definition.encode())
            self._channels[topic] = self._writer.register_channel(topic, "cdr", schema)
        data = bytes(self._types.serialize_cdr(message, kind))
        with naming(self.path):
            self._writer.add_message(self._channels[topic], log_time=time_ns, publish_time=time_ns, data=data)
