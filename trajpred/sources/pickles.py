"""Read pickles of plain data without executing anything: containers, numbers, strings, NumPy arrays.

A pickle is a program. Its instructions are followed one by one, and the few calls that plain data need
(:data:`CALLS`) are treated as descriptions of values: nothing a file names is imported. Any other instruction
or name is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from pickletools import genops
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, quoted, require
from trajpred.sources.reading import readable

#: Largest file.
MAX_BYTES = 2**31
#: Element types of arrays: booleans, numbers, strings and bytes of a fixed length, never objects.
_ELEMENTS = re.compile(r"b1|[iu][1248]|f[248]|[US]\d{1,4}")
#: Types of keys and set elements, also within tuples. Other types may take arbitrarily long to hash.
_KEYS = (str, bytes, int, float, bool, type(None))
#: Instructions that push their argument on the stack.
_CONSTANTS = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING",
    "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "UNICODE",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
}  # fmt: skip
#: Values and empty containers with instructions of their own.
_SINGLE = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
}


def read_pickle(path: Path) -> Any:
    """Return the content of a file: dicts, lists, tuples, sets, numbers, strings, bytes and arrays.

    Ordered and default dicts become dicts. Arrays are read-only.

    Raises: DataError naming the file if it contains anything else, is damaged or is too large.
    """
    with readable(path, "pickle"):
        size = path.stat().st_size
        require(size <= MAX_BYTES, "file", f"is larger than {MAX_BYTES} bytes")
        return plain_value(path.read_bytes())


def plain_value(pickled: bytes) -> Any:
    """Return the value of a pickle, see :func:`read_pickle`. Raises: DataError."""
    machine = _Machine()
    try:
        for instruction, argument, _ in genops(pickled):
            machine.follow(instruction.name, argument)
        [value] = machine.stack
    except (ValueError, LookupError, TypeError, OverflowError, MemoryError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"is not a readable pickle ({error})") from None
    require(machine.unfinished == 0, "array", "has no content")
    return value


class _Name:
    """The name of something that data may refer to."""

    def __init__(self, text: str) -> None:
        self.text = text


class _Unfinished:
    """An array, or its element type, before the instruction that gives its content.

    Attributes:
        finish: returns the value from the content.
        places: its numbers in the memo.
    """

    def __init__(self, finish: Callable[[Any], Any]) -> None:
        self.finish = finish
        self.places: list[int] = []


class _Machine:
    """The stack and the memo of a pickle.

    Attributes:
        stack: the values above the last mark.
        below: the stacks below each mark.
        memo: values for reuse, by number.
        unfinished: number of arrays without content.
    """

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.unfinished = 0

    def follow(self, instruction: str, argument: Any) -> None:
        """Follow one instruction. Raises: DataError if plain data do not need it."""
        if instruction in _CONSTANTS:
            self._push(argument)
            return
        match instruction:
            case "BINGET" | "LONG_BINGET" | "GET":
                self._push(self.memo[argument])
            case "MEMOIZE":
                self._remember(len(self.memo))
            case "BINPUT" | "LONG_BINPUT" | "PUT":
                self._remember(argument)
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                self._push(_SINGLE[instruction])
            case "EMPTY_TUPLE" | "EMPTY_LIST" | "EMPTY_DICT" | "EMPTY_SET":
                self._push(_EMPTY[instruction]())
            case "MARK":
                self.below.append(self.stack)
                self.stack = []
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self._push(tuple(self._last(int(instruction[-1]))))
            case "TUPLE":
                self._push(tuple(self._above_mark()))
            case "LIST":
                self._push(self._above_mark())
            case "FROZENSET":
                self._push(_frozenset(self._above_mark()))
            case "DICT":
                items = self._above_mark()
                self._push({})
                self._set_items(items)
            case "APPEND":
                self._extend(self._last(1))
            case "APPENDS":
                self._extend(self._above_mark())
            case "SETITEM":
                self._set_items(self._last(2))
            case "SETITEMS":
                self._set_items(self._above_mark())
            case "ADDITEMS":
                items = self._above_mark()
                self._container(set).update(_frozenset(items))
            case "GLOBAL":
                self._push(_name(argument.replace(" ", ".", 1)))
            case "STACK_GLOBAL":
                module, name = self._last(2)
                self._push(_name(f"{module}.{name}"))
            case "REDUCE":
                self._call(*self._last(2))
            case "BUILD":
                self._finish(*self._last(2))
            case "DUP":
                self._push(self.stack[-1])
            case "POP" if self.stack:
                self.stack.pop()
            case "POP" | "POP_MARK":
                self._above_mark()
            case "PROTO" | "FRAME" | "STOP":
                pass
            case _:
                problem = f"has the instruction {instruction}, which data do not need: it is not executed"
                raise DataError(problem)

    def _push(self, value: Any) -> None:
        self.stack.append(value)

    def _last(self, count: int) -> list[Any]:
        """Remove and return the last values."""
        items = self.stack[-count:]
        if len(items) < count:
            raise IndexError("values are missing")
        del self.stack[-count:]
        return items

    def _above_mark(self) -> list[Any]:
        """Remove and return the values above the last mark."""
        items = self.stack
        self.stack = self.below.pop()
        return items

    def _remember(self, place: int) -> None:
        value = self.stack[-1]
        if isinstance(value, _Unfinished):
            value.places.append(place)
        self.memo[place] = value

    def _container(self, kind: type) -> Any:
        """Return the container that items are added to."""
        container = self.stack[-1]
        if type(container) is not kind:
            raise TypeError(f"items of a {kind.__name__} are added to a {type(container).__name__}")
        return container

    def _extend(self, items: list[Any]) -> None:
        self._container(list).extend(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self._container(dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_key(key)] = value

    def _call(self, name: Any, arguments: Any) -> None:
        is_known = isinstance(name, _Name) and name.text in CALLS and type(arguments) is tuple
        require(is_known, "call", "is not one that describes data: it is not executed")
        value = CALLS[name.text](*arguments)
        self.unfinished += isinstance(value, _Unfinished)
        self._push(value)

    def _finish(self, value: Any, content: Any) -> None:
        """Give an array its content, wherever it is stored."""
        require(isinstance(value, _Unfinished), "object", f"is a {type(value).__name__} with attributes")
        finished = value.finish(content)
        for place in value.places:
            self.memo[place] = finished
        self.unfinished -= 1
        self._push(finished)


def _name(text: str) -> _Name:
    """Return a name that data may refer to. Raises: DataError for any other."""
    # Names in earlier versions of Python and later versions of NumPy.
    text = text.replace("__builtin__.", "builtins.", 1).replace("numpy._core.", "numpy.core.", 1)
    is_known = text in CALLS or text in _TYPES
    require(is_known, "name", f"asks for {quoted(text)}, which is not data: nothing is executed")
    return _Name(text)


def _key(value: Any) -> Any:
    """Return a key of a dict or an element of a set. Raises: DataError if it may take long to hash."""
    parts = value if type(value) is tuple else (value,)
    for part in parts:
        is_key = type(part) in _KEYS or isinstance(part, np.generic)
        require(is_key, "key", f"is a {type(part).__name__}, must be text or a number")
    return value


def _frozenset(items: Any) -> frozenset[Any]:
    return frozenset([_key(item) for item in items])


# ------------------------------------------------------------------------------------------------ calls


def _element_type(text: Any, *_: Any) -> _Unfinished:
    """Return an array's element type, whose byte order follows."""
    is_plain = type(text) is str and _ELEMENTS.fullmatch(text) is not None
    require(is_plain, "dtype", f"is {quoted(text)}: arrays must hold numbers or texts")

    def finish(content: Any) -> np.dtype[Any]:
        order = content[1]
        require(order in ("<", ">", "|"), "dtype", "has no byte order")
        return np.dtype(text).newbyteorder(order)

    return _Unfinished(finish)


def _array(*_: Any) -> _Unfinished:
    """Return an array whose shape, type and bytes follow; its arguments are meaningless."""

    def finish(content: Any) -> NDArray[Any]:
        *_, shape, dtype, is_fortran, elements = content
        return _elements(elements, dtype, shape, "F" if is_fortran else "C")

    return _Unfinished(finish)


def _elements(content: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    """Return an array of bytes in the file."""
    require(isinstance(dtype, np.dtype), "dtype", "is missing")
    require(order in ("C", "F"), "array", "has elements in an unknown order")
    if type(content) is str:  # of Python 2
        content = content.encode("latin-1")
    require(type(content) in (bytes, bytearray), "array", "must consist of bytes")
    is_shape = type(shape) is tuple and all(type(size) is int and size >= 0 for size in shape)
    require(is_shape, "array", "must have a shape of whole numbers")
    expected = math.prod(shape) * dtype.itemsize
    require(len(content) == expected, "array", f"has {len(content)} bytes instead of {quoted(expected)}")
    values = np.frombuffer(content, dtype) if content else np.zeros(0, dtype)
    values.flags.writeable = False
    return values.reshape(shape, order=order)


def _scalar(dtype: Any, content: Any) -> Any:
    return _elements(content, dtype, (1,), "C")[0]


def _encoded(text: Any, encoding: Any) -> bytes:
    require(encoding in ("latin1", "latin-1"), "encode", f"has an unknown encoding, {quoted(encoding)}")
    return str(text).encode("latin-1")


def _bytes(content: Any = b"", encoding: Any = "latin-1") -> bytes:
    """Return bytes; a number would mean that many zeros."""
    if type(content) is str:
        return _encoded(content, encoding)
    require(type(content) is bytes, "bytes", "must consist of bytes")
    return bytes(content)


def _dict(*arguments: Any) -> dict[Any, Any]:
    """Return a dict, ordered or with a default, before its items."""
    for argument in arguments:
        require(isinstance(argument, _Name), "dict", "has unknown arguments")
    return {}


def _set(items: Any = ()) -> set[Any]:
    require(type(items) is list or items == (), "set", "must consist of a list")
    return set(_frozenset(items))


#: Calls that describe data.
CALLS: dict[str, Callable[..., Any]] = {
    "numpy.dtype": _element_type,
    "numpy.core.multiarray._reconstruct": _array,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _elements,
    "collections.defaultdict": _dict,
    "collections.OrderedDict": _dict,
    "builtins.set": _set,
    "builtins.frozenset": _frozenset,
    "builtins.bytes": _bytes,
    "builtins.bytearray": _bytes,
    "_codecs.encode": _encoded,
}
#: Types named without a call: for arrays, and for the defaults of dicts.
_TYPES = {"numpy.ndarray"}
for _type in ("int", "long", "float", "bool", "str", "unicode", "list", "dict", "set"):
    _TYPES.add(f"builtins.{_type}")
