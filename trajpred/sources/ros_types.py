"""The ROS 2 messages that trajpred reads and writes, without an installation of ROS."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from trajpred.errors import DataError
from trajpred.packages import install_command

if TYPE_CHECKING:
    from rosbags.typesys.store import Typestore

#: Definitions of all messages beyond those of ROS itself; the first one is :data:`TRACKED_OBJECTS`.
DEFINITIONS = Path(__file__).with_name("messages.msg")
TRACKED_OBJECTS = "autoware_perception_msgs/msg/TrackedObjects"


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
