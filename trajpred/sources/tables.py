"""Read CSV and parquet tables with a row per state of a road user, by a mapping of their columns.

A mapping has entries ``role=column`` or ``role=column:unit``; docs/how-to/own-data.md describes the language.
Units are stated, never guessed.
"""

from __future__ import annotations

import codecs
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from trajpred.sources.reading import is_text, readable, require_small_groups

#: Roles of columns, and the kinds of their values.
ROLES = {
    "recording": "text",
    "track": "text",
    "type": "text",
    "time": "time",
    "x": "length",
    "y": "length",
    "heading": "angle",
    "vx": "speed",
    "vy": "speed",
    "length": "length",
    "width": "length",
}
#: The roles that a mapping must have.
NEEDED = ("track", "time", "x", "y")
#: Factor of each unit, by kind of value. Times and angles must state a unit; the defaults are m and m/s.
UNITS = {
    "text": {},
    "time": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "iso": 1.0},
    "length": {"m": 1.0, "km": 1000.0, "cm": 0.01, "mm": 0.001, "ft": 0.3048},
    "angle": {"rad": 1.0, "deg": math.pi / 180, "bearing": math.pi / 180},
    "speed": {"m/s": 1.0, "km/h": 1 / 3.6, "ft/s": 0.3048},
}
#: Frames at a rate, or at the rate in a column.
_RATE = re.compile(r"(\d+(?:\.\d+)?)hz|\{(\w+)\}hz")
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
#: Start of the message for a file that is not a table with the expected columns.
_NO_NUMBER = re.compile(r"In CSV column #(\d+): .*?invalid value '(.*)'", re.DOTALL)
#: The object type of each class, in lower case; any other is ``unknown``.
CLASSES = {
    **dict.fromkeys(("vehicle", "car", "van", "truck", "truck_bus", "trailer", "taxi"), "vehicle"),
    **dict.fromkeys(("vehicle.car", "vehicle.truck", "vehicle.trailer", "type_vehicle"), "vehicle"),
    **dict.fromkeys(("bus", "vehicle.bus.rigid", "vehicle.bus.bendy"), "bus"),
    **dict.fromkeys(("motorcycle", "motorcyclist", "motorbike", "vehicle.motorcycle"), "motorcyclist"),
    **dict.fromkeys(("bicycle", "cyclist", "bike", "vehicle.bicycle", "type_cyclist"), "cyclist"),
    **dict.fromkeys(("pedestrian", "person", "type_pedestrian"), "pedestrian"),
    **dict.fromkeys(("human.pedestrian.adult", "human.pedestrian.child"), "pedestrian"),
    "human.pedestrian.construction_worker": "pedestrian",
    "human.pedestrian.police_officer": "pedestrian",
}


class Preset(NamedTuple):
    """The files and columns of a published data set.

    Attributes:
        columns: the mapping; a role with ``?`` may be missing.
        files: regular expression for its file names; files of one ``recording`` are read together. Track ids
            are unique within files of a ``kind``.
        metadata: accompanying files with the other columns, with one row per track or one row in all.
        header: column names of files without a header.
        origin: latitude and longitude of its Lanelet2 maps' origin.
        origin_columns: metadata columns with the origin instead: easting and northing in UTM, and latitude
            and longitude of a place in the zone, which is the origin if the first two are missing.
    """

    columns: str
    files: str = r"(?P<recording>.+)\.((csv|txt|tsv)(\.gz)?|parquet)"
    metadata: tuple[str, ...] = ()
    header: str = ""
    origin: tuple[float, float] | None = None
    origin_columns: tuple[str, ...] = ()

    def matches(self, name: str) -> bool:
        """Return whether a file with this name belongs to the data set."""
        return re.fullmatch(self.files, name) is not None

    def recording_of(self, path: Path) -> str:
        """Return a file's recording, or its stem if it is not named like the data set's files."""
        match = re.fullmatch(self.files, path.name)
        return match["recording"] if match else path.stem

    def kind_of(self, path: Path) -> str:
        """Return the kind of a recording's file, "" if it has none."""
        match = re.fullmatch(self.files, path.name)
        return (match.groupdict().get("kind") or "") if match else ""

    def metadata_of(self, path: Path) -> list[Path]:
        """Return the metadata files beside a file."""
        return [path.with_name(pattern.format(self.recording_of(path))) for pattern in self.metadata]


_LEVELX = Preset(
    "track=trackId time=frame:{frameRate}hz x=xCenter y=yCenter heading=heading:deg vx=xVelocity "
    "vy=yVelocity type=class length?=length width?=width",
    r"(?P<recording>.+)_tracks\.csv",
    ("{}_tracksMeta.csv", "{}_recordingMeta.csv"),
    origin_columns=("xUtmOrigin", "yUtmOrigin", "latLocation", "lonLocation"),
)
#: Published data sets.
PRESETS = {
    "ind": _LEVELX,
    "round": _LEVELX,
    "exid": _LEVELX,
    "unid": _LEVELX,
    "highd": _LEVELX._replace(
        # Its positions are the upper left corners of boxes along the axes of the image.
        columns="track=id time=frame:{frameRate}hz x=x:corner y=y:corner:down vx=xVelocity vy=yVelocity "
        "type=class length=width width=height"
    ),
    "interaction": Preset(
        "recording?=case_id track=track_id time=timestamp_ms:ms x=x y=y heading?=psi_rad:rad vx=vx vy=vy "
        "type=agent_type:pedestrian/bicycle=pedestrian length?=length width?=width",
        r"((vehicle|pedestrian)_tracks_)?(?P<recording>.+)\.csv",
        origin=(0.0, 0.0),
    ),
    "eth-ucy": Preset(
        "track=track time=frame:25hz x=x y=y type=pedestrian",
        r"(?P<recording>.+)\.(txt|csv|tsv)",
        header="frame track x y",
    ),
    "ngsim": Preset(
        "recording?=Location track=Vehicle_ID time=Global_Time:ms x=Local_X:ft y=Local_Y:ft "
        "type=v_Class:1=motorcyclist:2=vehicle:3=vehicle length=v_Length:ft width=v_Width:ft",
        r"(?P<recording>.+)\.(csv|txt)",
        header="Vehicle_ID Frame_ID Total_Frames Global_Time Local_X Local_Y Global_X Global_Y v_Length "
        "v_Width v_Class v_Vel v_Acc Lane_ID Preceding Following Space_Headway Time_Headway",
    ),
    # SOTIF-AVLab/SinD, Format.md: "the origin of the map coincides with the origin of the ground coordinate
    # system"; each recording has a folder.
    "sind": Preset(
        "track=track_id time=timestamp_ms:ms x=x y=y heading?=yaw_rad:rad vx=vx vy=vy type=agent_type:"
        "tricycle=motorcyclist:pedestrain=pedestrian length?=length width?=width",
        r"(Veh|Ped)_(?P<recording>smoothed_tracks)\.csv",
        origin=(0.0, 0.0),
    ),
    # eclipse-sumo/sumo, docs of FCDOutput and of tools/xml/xml2csv.py: metres, degrees clockwise from north.
    "sumo": Preset(
        "track=vehicle_id time=timestep_time:s x=vehicle_x y=vehicle_y heading=vehicle_angle:bearing "
        "type=vehicle"
    ),
    # PedestrianDynamics/PedPy, pedpy/io/trajectory_loader.py: metres, white space, the rate in a comment.
    "pedpy": Preset(
        "track=id time=frame:{framerate}hz x=x y=y type=pedestrian",
        r"(?P<recording>.+)\.txt",
        header="id frame x y z",
    ),
    # dongfang-steven-yang/vci-dataset-citr, README.md and scripts/filter_trajectories.py: metres from pixels.
    "citr": Preset(
        "track=id time=frame:29.97hz x=x_est y=y_est:down heading?=psi_est:rad vx?=vx_est vy?=vy_est "
        "type=label:ped=pedestrian:veh=vehicle",
        r"(?P<recording>.+)_traj_(?P<kind>ped|veh)_filtered\.csv",
    ),
    "nuscenes": Preset(
        "recording=scene_token track=instance_token time=timestamp:us x=translation_x y=translation_y "
        "heading?=yaw:rad type=category_name length?=length width?=width"
    ),
    "waymo": Preset(
        "recording=scenario_id track=id time=timestamps_seconds:s x=center_x y=center_y heading?=heading:rad "
        "vx?=velocity_x vy?=velocity_y type=object_type:1=vehicle:2=pedestrian:3=cyclist length?=length "
        "width?=width"
    ),
}


@dataclass(frozen=True)
class Column:
    """Column and unit of a role's values.

    Attributes:
        name: name of the column; for a type also an object type for all.
        optional: whether it may be missing.
        factor: factor to seconds, metres, radians or m/s.
        rate: name of the column with the frames per second.
        is_corner: positions are corners of axis-aligned boxes, with the smallest coordinates.
        is_down: the y axis of the table points down.
        is_bearing: angles are clockwise from north, the y axis.
        is_iso: times are dates and times as text.
        classes: object types by the text of the column.
    """

    name: str
    optional: bool = False
    factor: float = 1.0
    rate: str = ""
    is_corner: bool = False
    is_down: bool = False
    is_bearing: bool = False
    is_iso: bool = False
    classes: Mapping[str, str] = field(default_factory=dict)


def parse_columns(preset: Iterable[str], own: Iterable[str] = ()) -> dict[str, Column]:
    """Parse the entries of a mapping; ``own`` entries replace a preset's entries for their roles.

    Raises: DataError about ``columns``.
    """
    columns = _entries(preset) | _entries(own)
    missing = [role for role in NEEDED if role not in columns]
    require(not missing, "columns", f"lacks {', '.join(missing)}; it has {', '.join(columns) or 'no column'}")
    for first, second in (("vx", "vy"), ("vy", "vx")):
        alone = f"has {first} without {second}: state both, or neither and they follow from the positions"
        require(first not in columns or second in columns, "columns", alone)
    for role, size in (("x", "length"), ("y", "width")):
        sizeless = f"{role}={columns[role].name}:corner needs {size}=COLUMN"
        require(not columns[role].is_corner or size in columns, "columns", sizeless)
    return columns


def _entries(entries: Iterable[str]) -> dict[str, Column]:
    """Parse entries ``role=column:unit``, by role. Raises: DataError about the first invalid one."""
    columns: dict[str, Column] = {}
    for entry in entries:
        role, _, value = entry.partition("=")
        name, *words = value.split(":")
        form = f"{quoted(entry)} must be ROLE=COLUMN or ROLE=COLUMN:UNIT with a role of {', '.join(ROLES)}"
        optional = role.endswith("?")
        role = role.removesuffix("?")
        require(role in ROLES and name != "", "columns", form)
        require(role not in columns, "columns", f"states {role} twice, the second time as {quoted(entry)}")
        columns[role] = _column(role, name, words, optional)
    return columns


def _column(role: str, name: str, words: Sequence[str], optional: bool) -> Column:
    """Build a role's column from its name and the words after it. Raises: DataError about an unknown word."""
    facts: dict[str, Any] = {}
    classes: dict[str, str] = {}
    units = UNITS[ROLES[role]]
    for word in words:
        text, _, kind = word.rpartition("=")
        rate = _RATE.fullmatch(word) if role == "time" else None
        is_rate = rate is not None and float(rate[1] or 1) > 0
        if word in units or is_rate:
            several = f"{role}={name} has several units, such as {word}: state one"
            require("factor" not in facts, "columns", several)
        if word in units:
            facts["factor"] = units[word]
            facts["is_bearing"] = word == "bearing"
            facts["is_iso"] = word == "iso"
        elif rate is not None and is_rate:
            facts["factor"] = 1 / float(rate[1] or 1)
            facts["rate"] = rate[2] or ""
        elif word == "corner" and role in ("x", "y"):
            facts["is_corner"] = True
        elif word == "down" and role == "y":
            facts["is_down"] = True
        elif role == "type" and kind in OBJECT_TYPES:
            classes[text.lower()] = kind
        else:
            _refuse(role, name, word)
    if ROLES[role] in ("time", "angle") and "factor" not in facts:
        _refuse(role, name, "")
    return Column(name, optional, classes=classes, **facts)


def _refuse(role: str, name: str, word: str) -> None:
    """Raise DataError about the unit of a role."""
    units = list(UNITS[ROLES[role]])
    if role == "time":
        units += ["25hz for frames at that rate", "{COLUMN}hz for the rate in a column"]
    if role in ("x", "y"):
        units += ["corner"] + ["down"] * (role == "y")
    if role == "type":
        units = [f"CLASS=TYPE with a type of {', '.join(OBJECT_TYPES)}"]
    problem = f"{word!r} is not a unit of {role}" if word else f"{role}={name} lacks its unit"
    raise DataError(f"{problem}; units: {', '.join(units) or 'none'}", field="columns")


# ---------------------------------------------------------------------------------------------- files


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
    with readable(path, "table"):
        names = column_names(path, preset)
        requested = dict(columns)
        rate = columns["time"].rate
        if rate:
            requested["rate"] = Column(rate)
        name_of: dict[str, str] = {}
        for role, column in requested.items():
            name = _find(column.name, names)
            if name is not None:
                name_of[role] = name
        table = _read(path, names, name_of, only, columns["time"].is_iso)
    metadata = preset.metadata_of(path)
    for role, column in requested.items():
        if role in name_of:
            continue
        values = None
        for meta in metadata:
            if role != "track" and values is None:
                with readable(meta, "table"):
                    values = _joined(table, meta, role, column.name, columns["track"].name)
        if role == "rate" and values is None:
            values = _rate_in_comments(path, rate, table.num_rows)
        if values is None:
            values = _absent(table.num_rows, role, column, [path, *metadata], preset)
        table = table.append_column(role, values)
    with readable(path, "table"):
        return _in_units(table, columns)


def numbers_beside(path: Path, preset: Preset, names: Sequence[str]) -> list[float]:
    """Return the value of each column in the metadata beside a file; NaN if there is none.

    Raises: DataError naming the file and the column.
    """
    numbers: list[float] = []
    for name in names:
        number = math.nan
        for meta in preset.metadata_of(path):
            with readable(meta, "table"):
                header = column_names(meta, Preset(""))
                column = _find(name, header)
                if column is not None:
                    values = _read(meta, header, {"x": column}, ())["x"]
                    number = values[0].as_py() if len(values) else math.nan
        numbers.append(math.nan if number is None else number)
    return numbers


def _rate_in_comments(path: Path, name: str, rows: int) -> pa.Array | None:
    """Return the rate stated as ``name: RATE`` in a comment at the top of a file; None if there is none."""
    if path.suffix == ".parquet":
        return None
    for comment in _sniff(path).comments:
        match = re.search(rf"\b{name}\W+(\d+(\.\d+)?)", comment, re.IGNORECASE)
        if match:
            return pa.repeat(float(match[1]), rows)
    return None


def _absent(rows: int, role: str, column: Column, files: Sequence[Path], preset: Preset) -> pa.Array:
    """Return the values of a column that no file has: one type for all rows, or none.

    Raises: DataError if the column is needed.
    """
    if role == "type" and column.name in OBJECT_TYPES:
        return pa.repeat(column.name, rows)
    if not column.optional:
        listed = " and ".join(file.name for file in files) + (" has" if len(files) == 1 else " have")
        names = [name for file in files for name in column_names(file, preset)]
        absent = f"column is missing; {listed}: {shortened(', '.join(dict.fromkeys(names)), 500)}"
        raise DataError(absent, file=files[0], field=column.name)
    return pa.nulls(rows, _kind(role))


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


def recordings_in(path: Path, columns: Mapping[str, Column], preset: Preset) -> dict[str, int]:
    """Return the number of rows per recording of a file, in one pass; empty without a recording column."""
    with readable(path, "table"):
        names = column_names(path, preset)
        column = columns.get("recording")
        name = _find(column.name, names) if column else None
        if name is None:
            return {}
        counts: dict[str, int] = {}
        for batch in _batches(path, names, {name: pa.string()}):
            for part in pc.value_counts(pc.fill_null(batch[name], "")).to_pylist():
                counts[part["values"]] = counts.get(part["values"], 0) + part["counts"]
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
    comments: list[str] = []
    skipped = 0
    for line in lines:
        if line.strip() and not line.startswith("#"):
            break
        comments.append(line)
        skipped += 1
    require(bool(start), "rows", "the file is empty")
    require(skipped < len(lines), "rows", f"has no row in its first {len(start):,} bytes")
    first = lines[skipped]
    require("\ufffd" not in first, "rows", _NOT_UTF8)
    is_markup = first.lstrip().startswith(("<", "{", "["))
    require(not is_markup, "rows", "are XML, HTML or JSON: save the file as CSV or parquet")
    delimiter = max(",;\t", key=first.count)
    for other in ";\t":
        if first.count(",") <= first.count(other) + 1 and first.count(other):
            delimiter = other  # the commas are decimal ones
    cells = [cell.strip().strip('"') for cell in first.split(delimiter)]
    if delimiter not in first or (delimiter == "\t" and any(" " in cell for cell in cells)):
        delimiter = " "
        cells = [cell.strip('"') for cell in first.split()]
    decimal = "."
    if delimiter != ",":
        for line in lines[skipped:]:
            if any(_COMMA.fullmatch(cell.strip().strip('"')) for cell in _split(line, delimiter)):
                decimal = ","
    return Layout(delimiter, cells, skipped, comments, encoding, decimal)


def _split(line: str, delimiter: str) -> list[str]:
    return line.split() if delimiter == " " else line.split(delimiter)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ".", 1))
    except ValueError:
        return False
    return True


def _read(
    path: Path, names: list[str], here: Mapping[str, str], only: Sequence[str], is_iso: bool = False
) -> pa.Table:
    """Read the column of each role in ``here``, renamed to the role."""
    types: dict[str, pa.DataType] = {}
    for role, name in here.items():
        require(names.count(name) == 1, name, "column is duplicated")
        types[name] = pa.string() if role == "time" and is_iso else _kind(role)
    batches: list[pa.Table] = []
    for batch in _batches(path, names, types):
        if only and "recording" in here:
            names_here = pc.fill_null(batch[here["recording"]], "")
            batch = batch.filter(pc.is_in(names_here, pa.array(only)))
        batches.append(batch)
    if not batches:
        batches = [pa.table({name: pa.array([], kind) for name, kind in types.items()})]
    table = pa.concat_tables(batches)
    return pa.table({role: table[name] for role, name in here.items()})


def _batches(path: Path, names: list[str], types: dict[str, pa.DataType]) -> Iterator[pa.Table]:
    """Read columns of a file in batches; times in parquet keep their type.

    Raises: DataError about a column with text instead of numbers.
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
        text = _NO_NUMBER.match(str(error))
        if text is None:
            raise
        raise DataError(f"must be numbers, has {quoted(text[2])}", field=names[int(text[1])]) from None


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
    values: dict[str, Any] = {}
    for role, kind in ROLES.items():
        if kind == "text":
            default = pa.repeat("vehicle" if role == "type" else "", table.num_rows)
            values[role] = table[role].cast(pa.string()) if role in columns else default
            if role == "recording":
                values[role] = pc.fill_null(values[role], "")
        elif role == "time":
            values[role] = _seconds(table[role], columns[role])
        elif role in columns:
            values[role] = table[role].cast(pa.float64()).to_numpy() * columns[role].factor
        else:
            values[role] = pa.repeat(math.nan, table.num_rows).to_numpy()
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
