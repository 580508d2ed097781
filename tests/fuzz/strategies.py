"""Hypothesis strategies that damage a file: its bytes, its tokens, or the values it contains."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

#: Limits of number types and beyond, extreme floats, and texts with a meaning to parsers or file systems.
INTEGERS = (0, -1, 1, 2, 127, 255, 2**15, 2**31 - 1, -(2**31), 2**53 + 1, 2**62, 2**63, -(2**63) - 1, 10**400)
FLOATS = (-0.0, 0.5, 1e-320, 1e39, 1.7e308, float("nan"), float("inf"), -float("inf"))
TEXTS = ("", " ", "\0", "é", "\ud800", "../../x", "nan", "1e999", "x" * 5000, "None", "AV", "&x;", '"', "<")
TYPES = (
    *(pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.float64(), pa.string(), pa.large_string()),
    *(pa.binary(), pa.bool_(), pa.timestamp("ns"), pa.null(), pa.dictionary(pa.int8(), pa.string())),
    *(pa.list_(pa.float64()), pa.list_(pa.int32(), 2), pa.struct([("x", pa.float64())])),
)
Damage = Callable[[bytes], st.SearchStrategy[bytes]]


def nested(depth: int) -> Any:
    """Lists and mappings in each other."""
    inner: Any = 1
    for i in range(depth):
        inner = [inner] if i % 2 else {"a": inner}
    return inner


ODD_VALUES = st.one_of(
    *(st.sampled_from(values) for values in (INTEGERS, FLOATS, TEXTS)),
    st.sampled_from((None, True, False)),
    st.sampled_from(([], {}, [[]], [None], {"": None}, [1, "2", None], [2**31] * 200, nested(300))),
)


@st.composite
def bytes_of(draw: st.DrawFn, content: bytes) -> bytes:
    """Overwrite, cut, delete, repeat or insert bytes, often near the ends, where headers and footers lie."""
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        size = len(content)
        near = st.integers(0, min(size, 200))
        at = draw(st.one_of(st.integers(0, size), near, near.map(lambda x, size=size: size - x)))
        length, new = draw(st.sampled_from((1, 4, 16, 1000))), draw(st.binary(min_size=1, max_size=8))
        content = draw(
            st.sampled_from(
                (
                    content[:at] + new + content[at + len(new) :],
                    content[:at],
                    content[:at] + content[at + length :],
                    content[:at] + content[at : at + length] * 3 + content[at + length :],
                    content[:at] + new + content[at:],
                )
            )
        )
    return content


@st.composite
def text_of(draw: st.DrawFn, content: bytes) -> bytes:
    """Replace a token of a CSV or XML file by an odd value, or delete or repeat a line."""
    if draw(st.booleans()):
        tokens = list(re.finditer(rb"[^,\n\"<>=]+", content))
        token = tokens[draw(st.integers(0, len(tokens) - 1))]
        odd = str(draw(st.sampled_from((*INTEGERS[:-1], *FLOATS, *TEXTS)))).encode("utf-8", "surrogatepass")
        return content[: token.start()] + draw(st.sampled_from((odd, b"\xff\xfe"))) + content[token.end() :]
    lines = content.split(b"\n")
    at = draw(st.integers(0, len(lines) - 1))
    return b"\n".join(lines[:at] + lines[at : at + 1] * draw(st.sampled_from((0, 2))) + lines[at + 1 :])


def gzip_of(content: bytes) -> st.SearchStrategy[bytes]:
    """Damage the text in a gzip file, which stays valid."""
    return text_of(gzip.decompress(content)).map(lambda text: gzip.compress(text, 1))


@st.composite
def json_of(draw: st.DrawFn, content: bytes) -> bytes:
    """Replace, delete, copy or lengthen one value of a JSON file, or nest it too deeply."""
    if draw(st.integers(0, 40)) == 0:
        at = draw(st.integers(0, len(content)))
        return content[:at] + b'{"a":' * 100_000 + content[at:]
    root = [json.loads(content)]
    places = list(_places(root))
    holder, key = draw(st.sampled_from(places))
    other, name = draw(st.sampled_from(places))
    match draw(st.sampled_from(("replace", "replace", "delete", "copy", "lengthen"))):
        case "replace":
            holder[key] = draw(ODD_VALUES)
        case "delete":
            del holder[key]
        case "copy":
            holder[key] = json.loads(json.dumps(other[name]))  # a copy: nothing may contain itself
        case _:
            holder[key] = holder[key] * 3 if isinstance(holder[key], list) else [holder[key]]
    return json.dumps(root[0] if root else None).encode()


def _places(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container and key in a JSON value."""
    for key, inner in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
        yield holder, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


@st.composite
def table_of(draw: st.DrawFn, table: pa.Table) -> pa.Table:
    """Drop, duplicate, rename or retype a column, change its values, or select rows."""
    at = draw(st.integers(0, table.num_columns - 1))
    name, column = table.column_names[at], table.column(at)
    match draw(st.sampled_from(("drop", "duplicate", "rename", "cast", "rows", "value", "value", "utf8"))):
        case "drop":
            return table.remove_column(at)
        case "duplicate":
            return table.add_column(at, name, column)
        case "rename":
            names = [*table.column_names]
            names[at] = draw(st.sampled_from(("", "x", *table.column_names)))
            return table.rename_columns(names)
        case "rows":
            rows = draw(st.lists(st.integers(0, max(len(table) - 1, 0)), max_size=40))
            return table.take(pa.array(rows if len(table) else [], pa.int64()))
        case "utf8":
            letters = pa.array([b"\xff\xfe"] * len(table), pa.binary()).buffers()
            return table.set_column(at, name, pa.Array.from_buffers(pa.string(), len(table), letters))
        case "cast":
            changed = column.type, column.to_pylist(), draw(st.sampled_from(TYPES))
        case _:
            values = column.to_pylist()
            if values:
                values[draw(st.integers(0, len(values) - 1))] = draw(ODD_VALUES)
            changed = column.type, values, column.type
    try:
        return table.set_column(at, name, pa.array(changed[1], changed[2]))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return table.set_column(at, name, pa.nulls(len(table), changed[0]))


@st.composite
def parquet_of(draw: st.DrawFn, content: bytes) -> bytes:
    """Damage the table in a parquet file, and write it with other options."""
    table, sink = draw(table_of(pq.read_table(io.BytesIO(content), use_threads=False))), io.BytesIO()
    options = {"compression": draw(st.sampled_from(("snappy", "none", "zstd")))}
    options |= {name: draw(st.booleans()) for name in ("use_dictionary", "store_schema", "write_statistics")}
    pq.write_table(table, sink, **options)
    return sink.getvalue()


@st.composite
def arrow_of(draw: st.DrawFn, content: bytes) -> bytes:
    """Damage the table in an Arrow file, which keeps its schema's metadata."""
    table, sink = draw(table_of(pa.ipc.open_file(pa.py_buffer(content)).read_all())), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


@st.composite
def zip_of(
    draw: st.DrawFn, content: bytes, rehash: Callable[[dict[str, bytes]], None] | None = None
) -> bytes:
    """Damage one member of a zip file; ``rehash`` updates the others to match it."""
    with ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name = draw(st.sampled_from(sorted(files)))
    files[name] = draw((json_of if name.endswith(".json") else bytes_of)(files[name]))
    if rehash is not None and draw(st.booleans()):
        rehash(files)
    sink = io.BytesIO()
    with ZipFile(sink, "w", ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return sink.getvalue()
