"""Ways to spoil a table: its columns, and how it is written as a parquet or Arrow file."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.mutate import FLOATS, NUMBERS, TEXTS, spoil_bytes

#: What a column may be turned into.
TYPES = (
    pa.int8(),
    pa.int32(),
    pa.int64(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.string(),
)
TYPES += (pa.large_string(), pa.binary(), pa.bool_(), pa.timestamp("ns"), pa.decimal128(20, 3), pa.null())
TYPES += (pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.dictionary(pa.int8(), pa.string()))
TYPES += (pa.date32(), pa.time64("ns"), pa.list_(pa.int32(), 2), pa.struct([("x", pa.float64())]))
_NOT_UTF8 = b"\xff\xfe\xc3"


def spoil_parquet(random: Random, data: bytes) -> bytes:
    """Change columns and write them again; a file that cannot be read is spoilt by its bytes."""
    try:
        table = pq.read_table(io.BytesIO(data), use_threads=False)
        table.validate(full=True)
        for _ in range(random.choice((1, 1, 2))):
            table = spoil_table(random, table)
        return to_parquet(table, **_options(random))
    except Exception:  # what Arrow makes of a spoilt file is not what is tested here
        return spoil_bytes(random, data)


def to_parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _options(random: Random) -> dict[str, Any]:
    return {
        "compression": random.choice(("snappy", "none", "zstd", "lz4", "gzip")),
        "use_dictionary": random.random() < 0.6,
        "data_page_version": random.choice(("1.0", "2.0")),
        "version": random.choice(("1.0", "2.4", "2.6")),
        "store_schema": random.random() < 0.7,
        "write_statistics": random.random() < 0.7,
        "row_group_size": random.choice((None, None, 64)),
        "use_byte_stream_split": False,
    }


def spoil_table(random: Random, table: pa.Table) -> pa.Table:
    """Lose, double, rename, retype or spoil a column; or lose, double or shuffle rows."""
    if not table.num_columns:
        return table
    at = random.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    match random.randrange(12):
        case 0:
            return table.remove_column(at)
        case 1:
            return table.add_column(at, name, column)
        case 2:
            names = [*table.column_names]
            names[at] = random.choice((*TEXTS[:4], *table.column_names))
            return table.rename_columns(names)
        case 3 | 4:
            return _with(table, at, column.cast(random.choice(TYPES), safe=False))
        case 5:
            wrapped = [
                None if random.random() < 0.1 else [x] * random.randrange(3) for x in column.to_pylist()
            ]
            return _with(table, at, pa.array(wrapped))
        case 6:
            return table.slice(random.randrange(table.num_rows + 1), random.choice((0, 1, table.num_rows)))
        case 7:
            return pa.concat_tables([table] * random.choice((2, 30)))
        case 8:
            order = [random.randrange(max(table.num_rows, 1)) for _ in range(table.num_rows)]
            return table.take(order)
        case _:
            return _with(table, at, _spoilt(random, column))


def _with(table: pa.Table, at: int, column: Any) -> pa.Table:
    return table.set_column(at, table.column_names[at], column)


def _spoilt(random: Random, column: Any) -> Any:
    """The column with some values changed, of the same type where that can hold them."""
    kind, values = column.type, column.to_pylist()
    if not values:
        return column
    new = _odd(random, kind, values)
    for row in range(len(values)) if random.random() < 0.3 else {random.randrange(len(values))}:
        values[row] = new
    if new is _NOT_UTF8:
        texts = [x.encode() if isinstance(x, str) else x for x in values]
        return pa.Array.from_buffers(pa.string(), len(texts), pa.array(texts, pa.binary()).buffers())
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.array(values)


def _odd(random: Random, kind: Any, values: list[Any]) -> Any:
    """A value that does not belong into a column of this type, or one from elsewhere in it."""
    if random.random() < 0.15:
        return None
    if random.random() < 0.15:
        return random.choice(values)
    if pa.types.is_list(kind):
        inner = [_odd(random, kind.value_type, [0]) for _ in range(random.randrange(4))]
        return random.choice(([], inner, (values[0] or [0]) * 2))
    if pa.types.is_floating(kind):
        return random.choice(FLOATS)
    if pa.types.is_integer(kind):
        return random.choice(fitting(kind))
    if pa.types.is_string(kind) or pa.types.is_dictionary(kind):
        return random.choice((*(text.encode("utf-8", "replace").decode() for text in TEXTS), _NOT_UTF8))
    return random.choice((True, False, 7))


def fitting(kind: Any) -> list[int]:
    """The numbers that an integer type can hold."""
    bounds = np.iinfo(kind.to_pandas_dtype())
    return [number for number in NUMBERS if bounds.min <= number <= bounds.max]


def spoil_ipc(random: Random, data: bytes) -> bytes:
    """Change what an Arrow file of one batch says, mostly of the same columns, and how it is written."""
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        table.validate(full=True)  # else Arrow would follow spoilt offsets out of memory here
        other = spoil_table(random, table) if random.random() < 0.4 else _same_columns(random, table)
        return _to_ipc(random, other)
    except Exception:  # what Arrow makes of a spoilt file is not what is tested here
        return spoil_bytes(random, data)


def _same_columns(random: Random, table: pa.Table) -> pa.Table:
    at = random.randrange(table.num_columns)
    spoilt = _spoilt(random, table.column(at))
    spoilt = spoilt.cast(table.schema.field(at).type, safe=False) if spoilt.null_count == 0 else spoilt
    return table.set_column(at, table.schema.field(at), spoilt)


def _to_ipc(random: Random, table: pa.Table) -> bytes:
    compression = random.choice((None, None, None, "lz4", "zstd"))
    sink = pa.BufferOutputStream()
    make = pa.ipc.new_stream if random.random() < 0.03 else pa.ipc.new_file
    with make(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in table.combine_chunks().to_batches(random.choice((None, None, None, 1))):
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())
