"""Tracked objects of a recorded drive: ROS 2 bags and MCAP files, message by message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.environment import install_command
from trajpred.errors import DataError, quoted
from trajpred.geometry import rotate

if TYPE_CHECKING:
    from rosbags.interfaces import Connection
    from rosbags.typesys.store import Typestore

#: Definitions of all messages beyond those of ROS itself; the first one is :data:`TRACKED_OBJECTS`.
DEFINITIONS = Path(__file__).with_name("messages.msg")
TRACKED_OBJECTS = "autoware_perception_msgs/msg/TrackedObjects"
#: Message types with tracked objects: Autoware's, and its predecessor's with the same fields.
TRACKED = (TRACKED_OBJECTS, "autoware_auto_perception_msgs/msg/TrackedObjects")
#: The object type of each label of Autoware's ``ObjectClassification``; ``unknown`` for labels beyond.
LABELS = (
    "unknown", "vehicle", "vehicle", "bus", "vehicle", "motorcyclist", "cyclist", "pedestrian", "unknown",
    "static", "static", "static",
)  # fmt: skip
#: Autoware's ``orientation_availability``; its third value is a known orientation.
NO_ORIENTATION, UNSIGNED_ORIENTATION = 0, 1


class TrackedObjects(NamedTuple):
    """The ``N`` tracked objects of one message.

    Attributes:
        time_ns: of the message's header, in nanoseconds.
        track_id: N ids, UUIDs in hexadecimal digits.
        position: ``[N, 2]`` metres; heading: ``[N]`` radians; velocity: ``[N, 2]`` m/s; all in the frame of
            the message's header. Heading and velocity are NaN where the orientation is unknown.
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

    A message that cannot be decoded is skipped; a recording that is damaged ends there. Both are counted.

    Args:
        path: folder of a ROS 2 bag, or one of its files (.mcap, .db3).
        topic: of the tracked objects; may be None if there is one.
        frame: id of the map's frame, in which the objects must be.

    Attributes:
        topic: that is read; num_messages: on it, as the recording says.
        problems: number of times that each problem occurred.

    Raises: DataError if the recording or the topic cannot be read; while iterating, if the objects are in
        another frame.

    Example:
        >>> for tracked in RecordedDrive("drive.mcap"):
        ...     tracked.time_ns, tracked.track_id, tracked.position
    """

    def __init__(self, path: str | Path, topic: str | None = None, frame: str = "map") -> None:
        require_bags()
        from rosbags.rosbag2 import Reader

        self.path, self.frame, self.problems = Path(path), frame, Counter[str]()
        if not self.path.exists():
            raise DataError("no such recording", file=self.path)
        try:
            self._reader = Reader(self.path)
            self._reader.open()
            connections = list(self._reader.connections)
        except Exception as error:  # damaged files raise many types
            advice = "" if self.path.is_dir() else "; the command mcap recover repairs MCAP files"
            message = f"not a readable ROS 2 bag or MCAP file ({_reason(error)}{advice})"
            raise DataError(message, file=self.path) from None
        self._connection = self._choose(connections, topic)
        self.topic, self.num_messages = self._connection.topic, self._connection.msgcount
        try:
            self._types = _types_of(self._connection)
        except Exception as error:  # the text of a damaged definition may be anything
            message = f"the definition of {self._connection.msgtype} is damaged ({_reason(error)})"
            raise DataError(message, file=self.path, field=self.topic) from None

    def _choose(self, connections: list[Connection], topic: str | None) -> Connection:
        """Return the connection of ``topic``. Raises: DataError unless there is one with tracked objects."""
        tracked = {one.topic: one for one in connections if one.msgtype in TRACKED}
        name = next(iter(tracked)) if topic is None and len(tracked) == 1 else topic
        if name in tracked:
            return tracked[name]
        found = f"must be one of these, is {quoted(topic)}: {', '.join(sorted(tracked))}"
        none = f"no topic of type {TRACKED_OBJECTS}"
        raise DataError(found if tracked else none, file=self.path, field="topic")

    def __iter__(self) -> Iterator[TrackedObjects]:
        kind = self._connection.msgtype
        messages = self._reader.messages(connections=[self._connection])
        while True:
            try:
                _, _, data = next(messages)
            except StopIteration:
                return
            except Exception as error:
                self.problems[f"the recording is damaged and ends early ({_reason(error)})"] += 1
                return
            try:
                tracked = tracked_objects(self._types.deserialize_cdr(data, kind))
            except Exception as error:
                self.problems[f"a message was skipped ({type(error).__name__})"] += 1
                continue
            found = str(tracked.message.header.frame_id)
            if found != self.frame:
                problem = f"objects are in {quoted(found)}, the map is in {quoted(self.frame)}"
                advice = "record them in the map's frame, or give the id of that frame"
                raise DataError(f"{problem}: {advice}", file=self.path, field="frame_id")
            yield tracked


def tracked_objects(message: Any) -> TrackedObjects:
    """Convert a ``TrackedObjects`` message of Autoware to arrays.

    The type is the most probable classification. Velocities are given in the object's frame. An orientation
    of unknown sign is that of the motion. Raises: AttributeError if it is another message.
    """
    objects = message.objects
    motion = [one.kinematics for one in objects]
    poses = [one.pose_with_covariance.pose for one in motion]
    twists = [one.twist_with_covariance.twist.linear for one in motion]
    turns = np.array([[p.orientation.x, p.orientation.y, p.orientation.z, p.orientation.w] for p in poses])
    x, y, z, w = turns.reshape(-1, 4).T
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y**2 + z**2))
    twist = np.array([[v.x, v.y] for v in twists], np.float64).reshape(-1, 2)
    known = np.array([one.orientation_availability for one in motion])
    velocity = np.where((known == NO_ORIENTATION)[:, None], np.nan, rotate(twist, yaw))
    reversed_ = (known == UNSIGNED_ORIENTATION) & (twist[:, 0] < 0)
    heading = np.where(known == NO_ORIENTATION, np.nan, np.where(reversed_, yaw + np.pi, yaw))
    dimensions = [one.shape.dimensions for one in objects]
    stamp = message.header.stamp
    return TrackedObjects(
        time_ns=int(stamp.sec) * 10**9 + int(stamp.nanosec),
        track_id=[bytes(one.object_id.uuid).hex() for one in objects],
        position=np.array([[p.position.x, p.position.y] for p in poses], np.float64).reshape(-1, 2),
        heading=heading,
        velocity=velocity,
        object_type=[_object_type(one.classification) for one in objects],
        size=np.array([[d.x, d.y, d.z] for d in dimensions], np.float64).reshape(-1, 3),
        message=message,
    )


def _object_type(classification: list[Any]) -> str:
    """Return the object type of the most probable label, ``unknown`` without any."""
    label = max(classification, key=lambda one: one.probability).label if classification else 0
    return LABELS[label] if label < len(LABELS) else "unknown"


def _types_of(connection: Connection) -> Typestore:
    """Return the message types as the recording defines them, or as this package does if it does not."""
    from rosbags.interfaces import MessageDefinitionFormat
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    definition, kind = connection.msgdef, connection.msgtype
    if definition.format is not MessageDefinitionFormat.MSG:
        return ros_types()
    types = get_typestore(Stores.EMPTY)
    types.register(get_types_from_msg(definition.data, kind))
    return types


def _reason(error: Exception) -> str:
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
    """Return the classes of :func:`ros_types` by their names without the package."""
    return SimpleNamespace(**{kind.rpartition("/")[2]: one for kind, one in ros_types().types.items()})


def require_bags() -> None:
    """Raise :class:`DataError` if the packages that read and write recordings are missing."""
    missing = [name for name in ("mcap", "rosbags") if find_spec(name) is None]
    if missing:
        raise DataError(f"recordings need {' and '.join(missing)}: {install_command('bags')}")
