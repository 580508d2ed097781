"""Pickles of plain data: the values of Python's own unpickler, and nothing else is followed or executed."""

from __future__ import annotations

import os
import pickle
import struct
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import rejects
from trajpred.sources.pickles import plain_value

ARRAY = np.arange(6, dtype=">f4").reshape(2, 3)
VALUES = {
    "turned": ARRAY.T,
    "again": ARRAY,
    "flags": np.array([True, False]),
    "one": np.array(5),
    "none": np.zeros((0, 3)),
    "texts": np.array(["ab", "c"]),
    "scalar": np.float32(3),
    "sets": ({1, 2}, frozenset("ab")),
    "dicts": (defaultdict(int, q=1), OrderedDict(z=1), {(1, "a"): None}),
    "numbers": [True, 1, -2, 70_000, 2**70, 0.5, 1e300],
    "bytes": b"\xff\0",
    "deep": [[[[]]]],
}


class Call:
    """A value that is pickled as a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def same(a: Any, b: Any) -> bool:
    if isinstance(b, dict):
        return isinstance(a, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in b)
    if isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(b, np.ndarray):
        return a.dtype.newbyteorder("=") == b.dtype.newbyteorder("=") and np.array_equal(a, b)
    return bool(type(a) is type(b) and a == b)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_values_are_those_of_the_unpickler(protocol: int) -> None:
    pickled = pickle.dumps(VALUES, protocol)
    assert same(plain_value(pickled), pickle.loads(pickled))


@pytest.mark.parametrize("names", [(b"numpy._core", b"numpy.core"), (b"numpy.core", b"numpy._core")])
def test_arrays_of_both_generations_of_numpy(names: tuple[bytes, bytes]) -> None:
    pickled = pickle.dumps([ARRAY, np.float64(2)], 2)  # names are lines of text
    assert same(plain_value(pickled.replace(*names)), [ARRAY, np.float64(2)])


HUGE = struct.pack("<Q", 2**50)
HOSTILE = {
    "a program": pickle.dumps(Call(os.system, "touch owned")),
    "an expression": pickle.dumps(Call(eval, "open('owned', 'w')")),
    "an expression, protocol 0": b"c__builtin__\neval\n(S\"open('owned','w')\"\ntR.",
    "an old instance": b"(S'touch owned'\nios\nsystem\n.",
    "an attribute": b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.",
    "a file": pickle.dumps(Call(np.load, "data.npy")),
    "raw memory": pickle.dumps(Call(np.memmap, "data.npy")),
    "a huge array": pickle.dumps(Call(np.zeros, 10**13)),
    "huge bytes": pickle.dumps(Call(bytearray, 10**13)),
    "a huge text": b"\x80\x04\x8d" + HUGE + b"a.",
    "huge in-band bytes": b"\x80\x05\x96" + HUGE + b"a.",
    "objects": pickle.dumps(np.array([1, "a"], object)),
    "objects, protocol 5": pickle.dumps(np.array([1, "a"], object), 5),
    "a structure": pickle.dumps(np.zeros(2, [("a", "f4")])),
    "a shape without bytes": pickle.dumps(np.zeros(3), 2).replace(b"K\x03\x85", b"K\xff\x85"),
    "a call of a type": pickle.dumps(Call(list, "abc")),
    "a class": pickle.dumps(Path("a")),
    "attributes": b"\x80\x04}}b.",
    "keys that never end": b"\x80\x04})" + b"\x85" * 100_000 + b"Ns.",
    "a reference outside": b"Pabc\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "half of it": pickle.dumps(VALUES)[:-99],
    "no end": b"\x80\x04N",
    "nothing": b"",
    "other data": b"PK\x03\x04",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_anything_else_is_refused_and_not_executed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rejects("", plain_value, HOSTILE[kind])
    assert not list(tmp_path.iterdir())


def test_a_memo_of_four_billion_places_needs_no_memory() -> None:
    assert plain_value(b"\x80\x04Nr\xff\xff\xff\xff.") is None
