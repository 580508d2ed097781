"""Read CSV and parquet tables with a row per state of a road user; the metadata beside them are joined."""

from __future__ import annotations

import codecs
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import DataError, quoted, require, shortened
from trajpred.sources.columns import ROLES, Column, Preset
from trajpred.sources.reading import is_text, readable, require_small_groups

#: A number with a decimal comma.
_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
#: Other ways to write dates and times, and the usual one.
_USUAL = (
    (r"^(\d{4})[-/]?(\d\d)[-/]?(\d\d)[T ](\d\d):?(\d\d):?(\d\d)", r"\1-\2-\3T\4:\5:\6"),
    (r"^\d\d:\d\d:\d\d", r"1970-01-01T\0"),
)
#: The zone at the end of a date and time.
_ZONE = r"(Z|[+-]\d\d:?(\d\d)?)$"
_NOT_UTF8 = "have text that is not UTF-8: save the file as UTF-8"
#: Encodings of files by their first bytes; other files are UTF-8.
_ENCODINGS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
#: Arrow's message about text in a column of numbers.
_NO_NUMBER = re.compile(r"In CSV column #(\d+): .*?invalid value '(.*)'", re.DOTALL)


def read_rows(
    path: Path, columns: Mapping[str, Column], preset: Preset, only: Sequence[str] = ()
) -> pa.Table:
    """Read one column for each of :data:`ROLES`, from a file and the metadata beside it.

    Numbers are in seconds, metres, radians and m/s, NaN for missing optional columns. Types are text as in
    the file. Without a recording column, every row has recording "".

    Args:
        only: recordings whose rows to read.

    Raises: DataError naming the file and the column.
    """
    requested = dict(columns)
    rate = columns["time"].rate
    if rate:
        requested["rate"] = Column(rate)
    name_of: dict[str, str] = {}
    with readable(path, "table"):
        names = column_names(path, preset)
        for role, column in requested.items():
            name = _find(column.name, names)
            if name is not None:
                name_of[role] = name
        table = _read(path, names, name_of, only, columns["time"].is_iso)
    for role, column in requested.items():
        if role not in name_of:
            values = _from_elsewhere(path, preset, table, role, column, columns["track"].name)
            table = table.append_column(role, values)
    with readable(path, "table"):
        return _in_units(table, columns)


def _from_elsewhere(
    path: Path, preset: Preset, table: pa.Table, role: str, column: Column, track: str
) -> pa.Array | pa.ChunkedArray:
    """Return a column that the file itself lacks, for each row of its ``table``.

    It comes from the metadata, a comment with the rate, or a type stated for all rows; optional columns are
    null.

    Raises: DataError if the column is required and missing.
    """
    metadata = preset.metadata_of(path)
    if role != "track":
        for meta in metadata:
            with readable(meta, "table"):
                values = _joined(table, meta, role, column.name, track)
            if values is not None:
                return values
    if role == "rate":
        rate = _rate_in_comments(path, column.name)
        if rate is not None:
            return pa.repeat(rate, table.num_rows)
    if role == "type" and column.name in OBJECT_TYPES:
        return pa.repeat(column.name, table.num_rows)
    if column.optional:
        return pa.nulls(table.num_rows, _kind(role))
    files = [path, *metadata]
    names: dict[str, None] = {}
    for file in files:
        names |= dict.fromkeys(column_names(file, preset))
    listed = " and ".join(file.name for file in files) + (" has" if len(files) == 1 else " have")
    absent = f"column is missing; {listed}: {shortened(', '.join(names), 500)}"
    raise DataError(absent, file=path, field=column.name)


def numbers_beside(path: Path, preset: Preset, names: Sequence[str]) -> list[float]:
    """Return the value of each column in the metadata beside a file; NaN if there is none.

    Raises: DataError naming the file and the column.
    """
    numbers: list[float] = []
    for name in names:
        number: float | None = None
        for meta in preset.metadata_of(path):
            with readable(meta, "table"):
                header = column_names(meta, Preset(""))
                column = _find(name, header)
                if column is not None:
                    values = _read(meta, header, {"x": column}, ())["x"]
                    number = values[0].as_py() if len(values) else None
        numbers.append(math.nan if number is None else number)
    return numbers


def _rate_in_comments(path: Path, name: str) -> float | None:
    """Return the rate stated as ``name: RATE`` in a comment at the top of a file; None if there is none."""
    if path.suffix == ".parquet":
        return None
    for comment in _sniff(path).comments:
        match = re.search(rf"\b{name}\W+(\d+(\.\d+)?)", comment, re.IGNORECASE)
        if match:
            return float(match[1])
    return None


def _kind(role: str) -> pa.DataType:
    return pa.string() if ROLES.get(role) == "text" else pa.float64()


def column_names(path: Path, preset: Preset) -> list[str]:
    """Return a file's column names; without a header, the preset's names, or 1, 2, ….

    Raises: DataError; OSError or pa.ArrowException.
    """
    if path.suffix == ".parquet":
        return list(pq.read_schema(path).names)
    layout = _sniff(path)
    if layout.has_names:
        return layout.cells
    header = preset.header.split()[: len(layout.cells)]
    return header + [str(number + 1) for number in range(len(header), len(layout.cells))]


def recordings_in(path: Path, columns: Mapping[str, Column], preset: Preset) -> Counter[str]:
    """Return the number of rows per recording of a file, in one pass; empty without a recording column."""
    with readable(path, "table"):
        names = column_names(path, preset)
        column = columns.get("recording")
        name = _find(column.name, names) if column else None
        counts = Counter[str]()
        if name is None:
            return counts
        for batch in _batches(path, names, {name: pa.string()}):
            for part in pc.value_counts(pc.fill_null(batch[name], "")).to_pylist():
                counts[part["values"]] += part["counts"]
    return counts


def _find(name: str, names: Sequence[str]) -> str | None:
    """Return the column of this name; case is ignored if that is unambiguous."""
    if name in names:
        return name
    alike = [other for other in names if other.strip().lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


class Layout(NamedTuple):
    """The dialect of a CSV file.

    Attributes:
        delimiter: a blank stands for any white space.
        cells: cells of the first line that is neither empty nor a comment (``#``).
        skipped: number of lines before that line.
        comments: the comments among these lines.
        encoding: text encoding.
        decimal: the decimal point.
    """

    delimiter: str
    cells: list[str]
    skipped: int
    comments: list[str]
    encoding: str
    decimal: str

    @property
    def has_names(self) -> bool:
        """Whether the first line is a header: none of its cells is a number."""
        return not any(_is_number(cell) for cell in self.cells)


def _sniff(path: Path) -> Layout:
    """Detect the dialect of a CSV file. Raises: DataError if it has no line."""
    with pa.input_stream(str(path)) as file:
        start = file.read(2**16)
    encoding = _ENCODINGS.get(start[:2], "utf-8-sig")
    lines = start.decode(encoding, "replace").splitlines()
    skipped = 0
    while skipped < len(lines) and (lines[skipped].startswith("#") or not lines[skipped].strip()):
        skipped += 1
    require(bool(start), "rows", "the file is empty")
    require(skipped < len(lines), "rows", f"has no row in its first {len(start):,} bytes")
    first = lines[skipped]
    require("\ufffd" not in first, "rows", _NOT_UTF8)
    is_markup = first.lstrip().startswith(("<", "{", "["))
    require(not is_markup, "rows", "are XML, HTML or JSON: save the file as CSV or parquet")
    delimiter = _delimiter_of(first)
    decimal = "."
    if delimiter != ",":
        for line in lines[skipped:]:
            if any(_COMMA.fullmatch(cell) for cell in _cells(line, delimiter)):
                decimal = ","
    return Layout(delimiter, _cells(first, delimiter), skipped, lines[:skipped], encoding, decimal)


def _delimiter_of(line: str) -> str:
    """Return the delimiter of the cells in a line; a blank stands for any white space."""
    delimiter = max(",;\t", key=line.count)
    for other in ";\t":
        if line.count(",") <= line.count(other) + 1 and line.count(other):
            delimiter = other  # the commas are decimal ones
    if delimiter not in line:
        return " "
    if delimiter == "\t" and any(" " in cell for cell in _cells(line, delimiter)):
        return " "
    return delimiter


def _cells(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line, without white space and quotation marks around them."""
    cells = line.split() if delimiter == " " else line.split(delimiter)
    return [cell.strip().strip('"') for cell in cells]


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ".", 1))
    except ValueError:
        return False
    return True


def _read(
    path: Path, names: list[str], name_of: Mapping[str, str], only: Sequence[str], is_iso: bool = False
) -> pa.Table:
    """Read the column of each role in ``name_of``, renamed to the role.

    Args:
        names: names of all columns of the file.
        only: recordings whose rows to read; by default all.
        is_iso: read times as text.
    """
    types: dict[str, pa.DataType] = {}
    for role, name in name_of.items():
        require(names.count(name) == 1, name, "column is duplicated")
        types[name] = pa.string() if role == "time" and is_iso else _kind(role)
    batches: list[pa.Table] = []
    for batch in _batches(path, names, types):
        if only and "recording" in name_of:
            recording = pc.fill_null(batch[name_of["recording"]], "")
            batch = batch.filter(pc.is_in(recording, pa.array(only)))
        batches.append(batch)
    if not batches:
        batches = [pa.table({name: pa.array([], kind) for name, kind in types.items()})]
    table = pa.concat_tables(batches)
    return pa.table({role: table[name] for role, name in name_of.items()})


def _batches(path: Path, names: list[str], types: dict[str, pa.DataType]) -> Iterator[pa.Table]:
    """Read columns of a file in batches; times in parquet keep their type.

    Raises: DataError about a column with text instead of numbers, or text that is not UTF-8.
    """
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        require_small_groups(file.metadata)
        for batch in file.iter_batches(columns=list(types)):
            yield pa.table({name: _cast(batch[name], name, kind) for name, kind in types.items()})
        return
    try:
        for batch in _open_csv(path, names, types):
            yield pa.Table.from_batches([batch])
    except pa.ArrowInvalid as error:
        require("invalid UTF8" not in str(error), "rows", _NOT_UTF8)
        no_number = _NO_NUMBER.match(str(error))
        if no_number is None:
            raise
        column, text = no_number.groups()
        raise DataError(f"must be numbers, has {quoted(text)}", field=names[int(column)]) from None


def _open_csv(path: Path, names: list[str], types: dict[str, pa.DataType]) -> csv.CSVStreamingReader:
    """Open a CSV file in its dialect; white space between cells becomes a tabulator."""
    layout = _sniff(path)
    delimiter = layout.delimiter
    encoding = layout.encoding.removesuffix("-sig")
    source: Any = path
    if delimiter == " ":
        delimiter = "\t"
        with pa.input_stream(str(path)) as stream:
            text = stream.read().decode(layout.encoding).encode()
        content = re.sub(rb"(?m)^[ \t]+|[ \t\r]+$", b"", text)
        source = io.BytesIO(re.sub(rb"[ \t]+", b"\t", content))
        encoding = "utf-8"
    return csv.open_csv(
        source,
        csv.ReadOptions(
            column_names=names,
            skip_rows=layout.skipped + int(layout.has_names),
            block_size=2**23,
            encoding=encoding,
        ),
        csv.ParseOptions(delimiter=delimiter, invalid_row_handler=_comment),
        csv.ConvertOptions(include_columns=list(types), column_types=types, decimal_point=layout.decimal),
    )


def _comment(row: csv.InvalidRow) -> str:
    """Skip comments between rows, which differ in the number of columns."""
    return "skip" if row.text.startswith("#") else "error"


def _cast(column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """Convert a parquet column, unless it has dates, times or durations."""
    if pa.types.is_temporal(column.type):
        return column
    try:
        return column.cast(kind, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        what = "numbers" if pa.types.is_floating(kind) else "text"
        raise DataError(f"must be {what} ({error})", field=name) from None


def _seconds(column: pa.ChunkedArray, unit: Column) -> NDArray[np.float64]:
    """Return times in seconds: numbers in the stated unit, dates and times of day in their own.

    Raises: DataError about the column.
    """
    try:
        if is_text(column.type):
            column = _moments(column)
        kind = column.type
        if not pa.types.is_temporal(kind):
            return column.to_numpy() * unit.factor
        if pa.types.is_time(kind):
            column = column.cast(pa.time64("ns"))
        elif pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("ns", kind.tz))
        elif pa.types.is_duration(kind):
            column = column.cast(pa.duration("ns"))
        nanoseconds = column.cast(pa.int64()).cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        text = re.search("parse string: '(.*?)Z?'", str(error))
        found = quoted(text[1]) if text else f"{column.type}"
        problem = f"must be times, or dates and times as in 2024-05-31T12:00:00.5, has {found}"
        raise DataError(problem, field=unit.name) from None
    return nanoseconds.to_numpy() * 1e-9


def _moments(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Parse dates and times in ISO 8601, or times of a day; without a zone they are in UTC."""
    text = pc.replace_substring(pc.utf8_trim_whitespace(text), ",", ".")
    for pattern, usual in _USUAL:
        text = pc.replace_substring_regex(text, pattern, usual)
    zoned = pc.fill_null(pc.match_substring_regex(text, rf"[T :]\d\d.*{_ZONE}"), False)
    full = pc.if_else(zoned, text, pc.binary_join_element_wise(text, "Z", ""))
    return full.cast(pa.timestamp("ns", "UTC"))


def _joined(table: pa.Table, meta: Path, role: str, column: str, track: str) -> pa.ChunkedArray | None:
    """Return a metadata column for each row of a table, by track or from the only row; None if missing."""
    names = column_names(meta, Preset(""))
    name = _find(column, names)
    if name is None:
        return None
    name_of = {role: name}
    track_column = _find(track, names)
    if track_column is not None:
        name_of["track"] = track_column
    values = _read(meta, names, name_of, ())
    if values.num_rows == 1:
        return pa.chunked_array([pa.repeat(values[role][0], table.num_rows)])
    require(track_column is not None, name, f"has {values.num_rows} rows, but no column of tracks")
    index = pc.index_in(table["track"], values["track"].combine_chunks())
    if index.null_count:
        missing = table["track"].filter(pc.is_null(index))[0].as_py()
        raise DataError(f"has no row of track {quoted(missing)}", field=track_column)
    return values[role].take(index)


def _in_units(table: pa.Table, columns: Mapping[str, Column]) -> pa.Table:
    """Convert all numbers, and add columns for roles missing from the mapping."""
    rows = table.num_rows
    values: dict[str, Any] = {"recording": pa.repeat("", rows), "type": pa.repeat("vehicle", rows)}
    for role, kind in ROLES.items():
        if role not in columns:
            values.setdefault(role, np.full(rows, math.nan))
        elif kind == "text":
            values[role] = table[role].cast(pa.string())
        elif kind == "time":
            values[role] = _seconds(table[role], columns[role])
        else:
            values[role] = table[role].cast(pa.float64()).to_numpy() * columns[role].factor
    values["recording"] = pc.fill_null(values["recording"], "")
    rate = columns["time"].rate
    if rate:
        rates = table["rate"].to_numpy()
        require(bool((rates > 0).all()), rate, "must be a rate of frames above 0 in every row")
        values["time"] = values["time"] / rates
    for role, size in (("x", "length"), ("y", "width")):
        if columns[role].is_corner:
            values[role] = values[role] + values[size] / 2
    if columns["y"].is_down:
        for role in ("y", "vy", "heading"):
            values[role] = -values[role]
    if "heading" in columns and columns["heading"].is_bearing:
        # North is up on any map, wherever the y axis points.
        values["heading"] = math.pi / 2 - table["heading"].to_numpy() * columns["heading"].factor
    return pa.table(values)
