"""Read XML that may be damaged or hostile: bounded size, no document type, finite numbers."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from trajpred.errors import DataError, quoted, require

#: What unreadable files raise.
_UNREADABLE: tuple[type[Exception], ...] = (
    ElementTree.ParseError,
    OSError,
    EOFError,
    zlib.error,
    ValueError,
    LookupError,
    RecursionError,
)
#: Maximum size of a file, decompressed.
MAX_BYTES = 128 * 1024 * 1024


@contextmanager
def readable_xml(path: Path) -> Iterator[None]:
    """Name ``path`` in every DataError; report other errors as "is not readable"."""
    try:
        yield
    except DataError as error:
        raise error.located(path) from None
    except _UNREADABLE as error:
        raise DataError(f"is not readable ({error})", file=path) from None


def read_bytes(path: Path) -> bytes:
    """Read a file, decompressed if it ends in ``.gz``. Raises: OSError; DataError if it is too large."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    require(len(content) <= MAX_BYTES, "file", f"is larger than {MAX_BYTES} bytes")
    return content


def parse(content: bytes) -> Element:
    """Parse a document. Raises: ParseError; DataError on a document type, which could declare entities."""
    return ElementTree.fromstring(content, ElementTree.XMLParser(target=_Builder()))


class _Builder(ElementTree.TreeBuilder):
    def doctype(self, name: str, pubid: str, system: str) -> None:
        raise DataError("must not declare a document type or entities", field="DOCTYPE")


def number(element: Element, name: str, default: float | None = None) -> float:
    """Return an attribute as a finite number. Raises: DataError if it is missing or is no such number."""
    text = element.get(name)
    return as_number(text, f"{element.tag}.{name}") if text is not None or default is None else default


def as_number(text: str | None, field: str) -> float:
    """Return ``text`` as a finite number. Raises: DataError about ``field``."""
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    require(math.isfinite(value), field, f"must be a number, is {quoted(text)}")
    return value


def integer(text: str | None, field: str) -> int:
    """Return ``text`` as an integer. Raises: DataError about ``field``."""
    try:
        return int(text or "")
    except ValueError:
        raise DataError(f"must be an integer, is {quoted(text)}", field=field) from None
