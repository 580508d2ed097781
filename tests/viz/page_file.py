"""A page as a browser would find it, and what is encoded in it."""

from __future__ import annotations

import base64
import json
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np


class Page(HTMLParser):
    """What a browser would find: elements, the text of each script, references to other files."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.blocks: dict[str, str] = {}
        self.code: list[str] = []
        self.references: list[str] = []
        self.open: list[str] = []
        self.into: str | None = None
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        self.references += [str(named[name]) for name in ("src", "href", "action", "data") if name in named]
        if tag not in ("meta", "link", "input", "br", "img"):
            self.open.append(tag)
        if tag == "script":
            self.into = named["id"] if named.get("type") == "application/json" else ""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"
        self.into = None

    def handle_data(self, data: str) -> None:
        if self.into == "":
            self.code.append(data)
        elif self.into is not None:
            self.blocks[self.into] = self.blocks.get(self.into, "") + data

    def json(self, name: str) -> Any:
        return json.loads(self.blocks[name])


def decode(packed: dict[str, Any]) -> dict[str, np.ndarray]:
    """What ``encode`` was given, written down a second time."""
    data, at, found = zlib.decompress(base64.b64decode(packed["data"])), 0, {}
    for name, rows, columns in packed["arrays"]:
        size = rows * columns
        planes = np.frombuffer(data, np.uint8, 4 * size, at).reshape(4, size).astype(np.int64)
        folded = planes[0] | planes[1] << 8 | planes[2] << 16 | planes[3] << 24
        change = (folded >> 1) ^ -(folded & 1)
        found[name] = np.cumsum(change.reshape(columns, rows), axis=1).T.astype(np.int32)
        at += 4 * size
    assert at == len(data)
    return found
