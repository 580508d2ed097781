"""Ways to spoil a file: its bytes, or what it says.

All take their choices from a ``random.Random``: a seeded one in a campaign, hypothesis's own in the tests,
the fuzzer's bytes where coverage guides it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

#: Spoils one file's content.
Mutator = Callable[[Random, bytes], bytes]

#: Numbers at which types end, and beyond.
NUMBERS = (0, -1, 1, 2, 127, 128, 255, 2**15, -(2**15), 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1)
NUMBERS += (2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30, 10**400)
FLOATS = (
    0.0,
    -0.0,
    0.5,
    1e-320,
    1e38,
    1e39,
    1e300,
    1.7e308,
    -1.7e308,
    float("nan"),
    float("inf"),
    -float("inf"),
)
TEXTS = (
    "",
    " ",
    "\0",
    "a\0",
    "é",
    "\ud800",
    "../../x",
    "/etc/passwd",
    "con",
    "nan",
    "1e999",
    "-1",
    "x" * 5000,
    "None",
)
_PACKED = ("<b", "<h", "<i", "<q", ">i", "<f", "<d")


def stacked(*mutators: Mutator) -> Mutator:
    """Mostly one of the ``mutators``, sometimes several, one after another."""

    def mutate(random: Random, data: bytes) -> bytes:
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            data = random.choice(mutators)(random, data)
        return data

    return mutate


def _place(random: Random, size: int) -> int:
    """Somewhere in ``size`` bytes: often near the ends, where headers and footers lie."""
    edge = min(size, 200)
    kind = random.randrange(3)
    inside = random.randrange(size + 1) if kind == 0 else random.randrange(edge + 1)
    return size - inside if kind == 2 else inside


def spoil_bytes(random: Random, data: bytes) -> bytes:
    """Flip, overwrite, cut, repeat, insert or move bytes."""
    at, length = _place(random, len(data)), random.choice((1, 2, 4, 8, 16, 64, 1000))
    cut = data[at : at + length]
    match random.randrange(8):
        case 0:
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        case 1:
            flipped = bytes(byte ^ 1 << random.randrange(8) for byte in data[at : at + 1])
            return data[:at] + flipped + data[at + 1 :]
        case 2:
            number = _number_bytes(random)
            return data[:at] + number + data[at + len(number) :]
        case 3:
            return data[:at]
        case 4:
            return data[:at] + data[at + length :]
        case 5:
            return data[:at] + cut * random.choice((2, 3, 50)) + data[at + length :]
        case 6:
            return data[:at] + random.randbytes(length) + data[at:]
        case _:
            other = _place(random, len(data))
            return data[:other] + cut + data[other + len(cut) :]


def _number_bytes(random: Random) -> bytes:
    kind = random.choice(_PACKED)
    if kind[1] in "fd":
        value = random.choice(FLOATS)
        return struct.pack(kind, value) if kind[1] == "d" or not 3.4e38 < abs(value) < 1e309 else b"\xff" * 4
    bits = 8 * struct.calcsize(kind)
    return struct.pack(kind, (random.choice(NUMBERS) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1))


def value(random: Random) -> Any:
    """Something that a JSON file may say, mostly where it should not."""
    match random.randrange(8):
        case 0 | 1:
            return random.choice(NUMBERS)
        case 2:
            return random.choice(FLOATS)
        case 3:
            return random.choice(TEXTS)
        case 4:
            return random.choice((None, True, False))
        case 5:
            return random.choice(([], {}, [[]], [None], {"": None}, [1, "2", None], {"a": {"b": []}}))
        case 6:
            return [random.choice(NUMBERS) for _ in range(random.choice((1, 3, 200)))]
        case _:
            return nested(random.choice((5, 50, 300)), random)


def nested(depth: int, random: Random) -> Any:
    """Lists or objects within each other."""
    inner: Any = random.choice(NUMBERS)
    for _ in range(depth):
        inner = [inner] if random.random() < 0.5 else {"a": inner}
    return inner


def spoil_tree(random: Random, tree: Any) -> Any:
    """``tree``, a JSON value, with one place changed, lost, doubled, or swapped for another; in place."""
    root = [tree]
    slots = list(_slots(root))
    holder, key = random.choice(slots)
    match random.randrange(6):
        case 0 | 1:
            holder[key] = value(random)
        case 2:
            del holder[key]
        case 3:
            other, name = random.choice(slots)
            holder[key] = json.loads(json.dumps(other[name]))  # a copy: nothing may hold itself
        case 4:
            holder[key] = _grown(random, holder[key])
        case _:
            holder[key] = _shifted(random, holder[key])
    return root[0] if root else None


def _slots(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value: what holds it, and under which key."""
    for key, inner in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
        yield holder, key
        if isinstance(inner, dict | list):
            yield from _slots(inner)


def _grown(random: Random, found: Any) -> Any:
    """Longer or shorter than it was."""
    if isinstance(found, list):
        return found * random.choice((2, 3, 100)) if random.random() < 0.6 else found[: len(found) // 2]
    if isinstance(found, dict):
        return found | {random.choice(TEXTS): value(random)}
    return [found] if random.random() < 0.5 else str(found)


def _shifted(random: Random, found: Any) -> Any:
    """A number nearby, or of another type."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return random.choice((0, 1, None, found))
    return random.choice((found + 1, found - 1, -found, found * 2.0**40, str(found), bool(found)))


def spoil_json(random: Random, data: bytes) -> bytes:
    """Change what a JSON file says; one that cannot be read is spoilt by its bytes."""
    try:
        text = json.dumps(spoil_tree(random, json.loads(data)))
    except (ValueError, RecursionError, OverflowError):
        return spoil_bytes(random, data)
    return hollow(random, text) if random.random() < 0.02 else text.encode()


def hollow(random: Random, text: str) -> bytes:
    """``text`` with a hole so deep that a parser which calls itself runs out of stack."""
    at = random.randrange(len(text) + 1)
    return (text[:at] + random.choice(("[", '{"a":')) * random.choice((2_000, 100_000)) + text[at:]).encode()
