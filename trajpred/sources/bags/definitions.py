"""The message types that a recording defines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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
