"""Tracked objects of a recorded drive: ROS 2 bags and MCAP files, message by message."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.data.environment import install_command
from trajpred.data.geometry import rotate
from trajpred.errors import DataError, quoted

if TYPE_CHECKING:
    from rosbags.interfaces import Connection
    from rosbags.interfaces.typing import Typesdict
    from rosbags.rosbag2 import Reader
    from rosbags.typesys.store import Typestore

#: Definitions of all messages beyond ROS's own; the first is :data:`TRACKED_OBJECTS`.
DEFINITIONS = Path(__file__).with_name("messages.msg")
TRACKED_OBJECTS = "autoware_perception_msgs/msg/TrackedObjects"
#: The package of Autoware's earlier messages, whose fields are equal but in another order.
EARLIER_PACKAGE = "autoware_auto_perception_msgs"
#: Message types with tracked objects: Autoware's, and the earlier one.
TRACKED = (TRACKED_OBJECTS, f"{EARLIER_PACKAGE}/msg/TrackedObjects")
#: Object type by label of Autoware's ``ObjectClassification``; ``unknown`` for further labels.
LABELS = (
    "unknown", "vehicle", "vehicle", "bus", "vehicle", "motorcyclist", "cyclist", "pedestrian", "unknown",
    "static", "static", "static",
)  # fmt: skip
#: Autoware's ``orientation_availability`` without an orientation.
NO_ORIENTATION = 0
#: Autoware's ``orientation_availability`` with unknown sign; its third value is a known orientation.
UNSIGNED_ORIENTATION = 1
#: Advice on repairing the files of a killed recorder, by suffix.
_REPAIR = {
    ".mcap": "`mcap recover` repairs files of a killed recorder",
    ".db3": "`sqlite3 drive.db3 .recover` repairs files of a killed recorder",
    "": "`ros2 bag reindex` repairs a bag without metadata.yaml; its files can be given one by one",
}
#: The line between the definition of a message and those of the messages it contains.
SEPARATOR = "=" * 80 + "\n"
#: An object whose x axis is nearly vertical, or whose quaternion is zero, has no heading.
_SHORTEST_AXIS = 1e-6


class TrackedObjects(NamedTuple):
    """The ``N`` tracked objects of one message.

    Attributes:
        time_ns: time in the message's header, in nanoseconds.
        track_id: N ids, UUIDs in hexadecimal digits.
        position: ``[N, 2]`` metres, in the frame named in the header.
        heading: ``[N]`` radians in that frame; NaN where the orientation is unknown.
        velocity: ``[N, 2]`` m/s in that frame; NaN where the orientation is unknown.
        object_type: N names.
        size: ``[N, 3]`` metres, length, width and height.
        message: the message itself.
    """

    time_ns: int
    track_id: list[str]
    position: NDArray[np.float64]
    heading: NDArray[np.float64]
    velocity: NDArray[np.float64]
    object_type: list[str]
    size: NDArray[np.float64]
    message: Any


class RecordedDrive:
    """Iterate over the tracked objects of a recording, in bounded memory.

    A message that cannot be decoded is skipped and counted; a recording is read up to its damage.

    Args:
        path: folder of a ROS 2 bag, or one of its files (.mcap, .db3).
        topic: topic of the tracked objects; may be None if there is only one.
        frame: id of the map's frame, in which the objects must be.

    Attributes:
        topic: the topic being read.
        num_messages: number of messages on the topic according to the recording, or None.
        problems: how often each problem occurred.

    Raises: DataError if the recording or the topic cannot be read; while iterating, if the objects are in
        another frame.

    Example:
        >>> for tracked in RecordedDrive("drive.mcap"):
        ...     tracked.time_ns, tracked.track_id, tracked.position
    """

    def __init__(self, path: str | Path, topic: str | None = None, frame: str = "map") -> None:
        require_bags()
        self.path = Path(path)
        self.frame = frame
        self.problems = Counter[str]()
        self._reader = self._open()
        self.topic = self._choose(topic)
        self.num_messages: int | None = None
        self._types: dict[tuple[str, Any], Typestore] = {}
        self._connections: list[Connection] = []
        for connection in self._reader.connections:
            if connection.topic == self.topic and connection.msgtype in TRACKED:
                self._connections.append(connection)
                self._register(connection)

    @property
    def _repair(self) -> str:
        return _REPAIR.get(self.path.suffix, _REPAIR[""])

    def _open(self) -> Reader:
        """Open the recording. Raises: DataError naming how to repair it."""
        from rosbags.rosbag2 import Reader

        if not self.path.exists():
            raise DataError("no such recording", file=self.path)
        log = self.path.with_name(f"{self.path.name}-wal")
        if log.is_file() and log.stat().st_size > 0:
            problem = f"SQLite has not merged its write-ahead log; {self._repair}"
            raise DataError(problem, file=self.path)
        try:
            reader = Reader(self.path)
            reader.open()
        except Exception as error:  # damaged files raise many types
            problem = f"not a readable ROS 2 bag or MCAP file ({reason(error)})"
            raise DataError(f"{problem}; {self._repair}", file=self.path) from None
        return reader

    def _choose(self, topic: str | None) -> str:
        """Return the topic to read. Raises: DataError unless it is one with tracked objects."""
        tracked: set[str] = set()
        other_topics: dict[str, str] = {}
        for connection in self._reader.connections:
            if connection.msgtype in TRACKED:
                tracked.add(connection.topic)
            else:
                other_topics[connection.topic] = connection.msgtype
        if topic in tracked:
            return topic
        topics = ", ".join(sorted(tracked))
        if not tracked:
            present = ", ".join(f"{name} ({kind})" for name, kind in sorted(other_topics.items()))
            message = f"no topic of type {' or '.join(TRACKED)}; topics: {present or 'none'}"
        elif topic is not None:
            message = f"must be one of these, is {quoted(topic)}: {topics}"
        elif len(tracked) > 1:
            message = f"the recording has several of tracked objects, give --topic: {topics}"
        else:
            return topics
        raise DataError(message, file=self.path, field="topic")

    def _register(self, connection: Connection) -> None:
        """Count the messages of a connection, and prepare to decode them. Raises: DataError."""
        if connection.msgcount:
            self.num_messages = (self.num_messages or 0) + connection.msgcount
        key = connection.msgtype, connection.msgdef
        if key in self._types:
            return
        try:
            self._types[key] = recorded_types(connection, ros_types())
        except Exception as error:  # the text of a damaged definition may be anything
            message = f"the definition of {connection.msgtype} is damaged ({reason(error)})"
            raise DataError(message, file=self.path, field=self.topic) from None

    def _messages(self) -> Iterator[tuple[Connection, bytes]]:
        """Yield the messages of the topic in the order of recording, up to the first damage."""
        try:
            for connection, _, data in self._reader.messages(connections=self._connections):
                yield connection, bytes(data)
        except Exception as error:  # damaged files raise many types
            damage = f"{self.path.name} is damaged and ends early ({reason(error)}; {self._repair})"
            self.problems[damage] += 1

    def __iter__(self) -> Iterator[TrackedObjects]:
        """Yield the objects of each readable message. Raises: DataError if they are in another frame."""
        stamps: set[int] = set()
        count = 0
        for connection, data in self._messages():
            types = self._types[connection.msgtype, connection.msgdef]
            try:
                tracked = tracked_objects(types.deserialize_cdr(data, connection.msgtype))
            except Exception as error:
                cause = f"{type(error).__name__}: {reason(error)}"
                self.problems[f"a message was skipped ({cause})"] += 1
                continue
            frame = str(tracked.message.header.frame_id)
            if frame != self.frame:
                problem = f"objects are in {quoted(frame)}, the map is in {quoted(self.frame)}"
                advice = "record them in the map's frame, or give the id of that frame"
                raise DataError(f"{problem}: {advice}", file=self.path, field="frame_id")
            count += 1
            if len(stamps) < 2:
                stamps.add(tracked.time_ns)
            yield tracked
        if count > 1 and len(stamps) == 1:
            stamp_s = stamps.pop() / 1e9
            self.problems[f"the stamps of the headers never advance: all are {stamp_s:.3f} s"] += count


def tracked_objects(message: Any) -> TrackedObjects:
    """Convert a ``TrackedObjects`` message of Autoware to arrays.

    The type is the most probable classification. Velocities are given in the object's frame. If the sign of
    an orientation is unknown, the heading is turned to the motion; a zero quaternion gives NaN.

    Raises: AttributeError if it is another message.
    """
    objects = message.objects
    track_id: list[str] = []
    object_type: list[str] = []
    availability = np.zeros(len(objects), np.int64)
    position = np.zeros((len(objects), 2))
    quaternion = np.zeros((len(objects), 4))
    twist = np.zeros((len(objects), 2))
    size = np.zeros((len(objects), 3))
    for row, item in enumerate(objects):
        track_id.append(bytes(item.object_id.uuid).hex())
        object_type.append(_object_type(item.classification))
        availability[row] = item.kinematics.orientation_availability
        pose = item.kinematics.pose_with_covariance.pose
        position[row] = pose.position.x, pose.position.y
        orientation = pose.orientation
        quaternion[row] = orientation.x, orientation.y, orientation.z, orientation.w
        linear = item.kinematics.twist_with_covariance.twist.linear
        twist[row] = linear.x, linear.y
        extent = item.shape.dimensions
        size[row] = extent.x, extent.y, extent.z
    yaw = np.where(availability == NO_ORIENTATION, np.nan, _yaw(quaternion))
    backwards = (availability == UNSIGNED_ORIENTATION) & (twist[:, 0] < 0)
    stamp = message.header.stamp
    return TrackedObjects(
        time_ns=int(stamp.sec) * 10**9 + int(stamp.nanosec),
        track_id=track_id,
        position=position,
        heading=np.where(backwards, yaw + np.pi, yaw),
        velocity=rotate(twist, yaw),  # the twist is in the frame of the reported orientation
        object_type=object_type,
        size=size,
        message=message,
    )


def _yaw(quaternions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the headings ``[N]`` of quaternions ``[N, 4]`` of any length; NaN where undefined."""
    x, y, z, w = quaternions.T
    ahead = w**2 + x**2 - y**2 - z**2
    left = 2 * (w * z + x * y)
    shortest = _SHORTEST_AXIS * (quaternions**2).sum(axis=1)
    has_heading = np.hypot(ahead, left) > shortest
    return np.where(has_heading, np.arctan2(left, ahead), np.nan)


def _object_type(classification: list[Any]) -> str:
    """Return the object type of the most probable label, ``unknown`` without any; NaN is least probable."""
    if not len(classification):
        return "unknown"
    label = max(classification, key=lambda item: np.nan_to_num(item.probability, nan=-1.0)).label
    return LABELS[label] if label < len(LABELS) else "unknown"


def recorded_types(connection: Connection, defaults: Typestore) -> Typestore:
    """Return the message types defined in the recording.

    Args:
        defaults: types that the recording does not define: all types if the recorder wrote no definition, or
            ROS's own messages if a definition omits them.

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
    # The recording comes last, so that its own definitions take precedence.
    types = get_typestore(Stores.EMPTY)
    types.register({**defaults.fielddefs, **recorded})
    return types


def _types_from_idl(text: str) -> Typesdict:
    """Return the types of concatenated definitions in the interface definition language."""
    from rosbags.typesys import get_types_from_idl, get_types_from_msg

    types: Typesdict = {}
    for section in text.split(SEPARATOR):
        title, _, rest = section.partition("\n")
        if title.startswith("MSG: "):
            types |= get_types_from_msg(rest, title.removeprefix("MSG: ").strip())
            continue
        source = rest if title.startswith("IDL: ") else section
        # rosbags cannot parse lines for the preprocessor, such as includes.
        source = re.sub(r"^[ \t]*#.*$", "", source, flags=re.MULTILINE)
        if source.strip():
            types |= get_types_from_idl(source)
    return types


def reason(error: Exception) -> str:
    """Return an error's message in one line, or its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


@cache
def ros_types() -> Typestore:
    """Return the messages of ROS 2, Autoware and Foxglove. Raises: DataError if a package is missing."""
    require_bags()
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    types = get_typestore(Stores.ROS2_HUMBLE)
    types.register(get_types_from_msg(DEFINITIONS.read_text("utf-8"), TRACKED_OBJECTS))
    return types


@cache
def ros_messages() -> SimpleNamespace:
    """Return the classes of :func:`ros_types` by name without package; of two, the newer one."""
    classes: dict[str, type] = {}
    for kind, message in ros_types().types.items():
        package, _, name = kind.rpartition("/msg/")
        if package != EARLIER_PACKAGE:
            classes[name] = message
    return SimpleNamespace(**classes)


def require_bags() -> None:
    """Raise :class:`DataError` if the packages that read and write recordings are missing."""
    missing = [name for name in ("mcap", "rosbags") if find_spec(name) is None]
    if missing:
        raise DataError(f"recordings need {' and '.join(missing)}: {install_command('bags')}")
