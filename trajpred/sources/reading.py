"""Read files that may be damaged or hostile: limits, broken parts of maps, XML, tables of states."""

from __future__ import annotations

import gzip
import math
import warnings
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.data.checks import row_of
from trajpred.data.files import require_file
from trajpred.errors import MAX_QUOTED, DataError, quoted, require, require_finite, shortened

#: Exceptions raised by unreadable files.
_UNREADABLE: tuple[type[Exception], ...] = (
    pa.ArrowException,
    ElementTree.ParseError,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    LookupError,
    RecursionError,
)
#: Maximum size of an XML file, decompressed.
MAX_BYTES = 128 * 1024 * 1024
# Limits that a damaged or hostile file must not exceed, checked before memory is allocated.
#: Steps of a window (1000 s at 10 Hz).
MAX_STEPS = 10_000
#: Tracks times steps, and rows of a table (100 times the largest scenario of Argoverse 2).
MAX_STATES = 2**22
#: Decompressed bytes of a row group.
MAX_GROUP_BYTES = 2**28


@contextmanager
def readable(path: Path, what: str, field: str | None = None) -> Iterator[None]:
    """Name ``path`` in every DataError; report other errors as "is not a readable ``what``"."""
    try:
        require_file(path)
        yield
    except DataError as error:
        raise error.located(path) from None
    except _UNREADABLE as error:
        raise DataError(f"is not a readable {what} ({error})", file=path, field=field) from None


def folders(parent: Path) -> list[Path]:
    """List the folders in ``parent``, which may be missing."""
    return sorted(path for path in parent.glob("*") if path.is_dir())


def only_file(folder: Path, pattern: str) -> Path:
    """Return the only file that matches ``pattern``. Raises: DataError if there is not exactly one."""
    matches = sorted(folder.glob(pattern))
    if not matches:
        raise DataError(f"{pattern} is missing", file=folder)
    if len(matches) > 1:
        raise DataError(f"{pattern} is ambiguous", file=folder)
    return matches[0]


# ----------------------------------------------------------------------------------- broken parts of maps


#: Number of parts of each kind that a summary names.
MAX_NAMED = 10


@dataclass
class MapProblems:
    """The parts of a map file that were left out in order to read the rest.

    Attributes:
        left_out: for each kind of part (``lanelet``, ``road``, ``link`` …) the reasons by the part's name.

    Example:
        >>> problems = MapProblems()
        >>> with problems.leaving_out("road", "7"):
        ...     raise DataError("must be above 0", field="road.length")
        >>> problems.summaries()
        ["1 road left out: 7 (field 'road.length': must be above 0)"]
    """

    left_out: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, kind: str, name: str, reason: str) -> None:
        """Record a part as left out; the first of several reasons is kept."""
        self.left_out.setdefault(kind, {}).setdefault(name, reason)

    @contextmanager
    def leaving_out(self, kind: str, name: str) -> Iterator[None]:
        """Leave a part out and continue if reading it raises a DataError."""
        try:
            yield
        except DataError as error:
            self.add(kind, name, str(error))

    def has(self, kind: str, name: str) -> bool:
        """Return whether a part was left out."""
        return name in self.left_out.get(kind, ())

    def summaries(self) -> list[str]:
        """Describe each kind: how many were left out, the first names, and the first reason."""
        return [_summary(kind, reasons) for kind, reasons in self.left_out.items()]

    def warn(self, path: Path) -> None:
        """Warn about what was left out of the file ``path``, if anything was."""
        if self.left_out:
            # Attribute the warning to the caller of the reader, which calls this.
            warnings.warn(f"{path}: {'; '.join(self.summaries())}", stacklevel=3)


def require_lanes(count: int, problems: MapProblems) -> None:
    """Raise a DataError that names what was left out if a map has no lane."""
    if count:
        return
    sentence = "the map has no lane that road users drive on"
    reasons = "; ".join(problems.summaries())
    if reasons:
        sentence = f"{sentence}: {reasons}"
    raise DataError(sentence, field="lanes")


def _summary(kind: str, reasons: dict[str, str]) -> str:
    """Describe the parts of one kind that were left out, with the first reason."""
    count = len(reasons)
    names = [shortened(name, MAX_QUOTED) or "without a name" for name in reasons]
    reason = next(iter(reasons.values()))
    if count == 1:
        return f"1 {kind} left out: {names[0]} ({reason})"
    listed = ", ".join(names[:MAX_NAMED])
    if count > MAX_NAMED:
        listed += ", …"
    return f"{count} {kind}s left out: {listed} ({names[0]}: {reason})"


# ------------------------------------------------------------------------------------------------ XML


def read_bytes(path: Path) -> bytes:
    """Read a file, decompressed if it ends in ``.gz``. Raises: OSError; DataError if it is too large."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    require(len(content) <= MAX_BYTES, "file", f"is larger than {MAX_BYTES} bytes")
    return content


def parse(content: bytes) -> Element:
    """Parse a document; elements in the namespace of the root element have plain names.

    Raises: ParseError; DataError on a document type, which could declare entities.
    """
    return ElementTree.fromstring(content, ElementTree.XMLParser(target=_Builder()))


class _Builder(ElementTree.TreeBuilder):
    def __init__(self) -> None:
        super().__init__()
        self._namespace: str | None = None

    def start(self, tag: str, attrs: dict[Any, Any], /) -> Element:
        if self._namespace is None:
            self._namespace = "".join(tag.rpartition("}")[:2])
        return super().start(tag.removeprefix(self._namespace), attrs)

    def end(self, tag: str, /) -> Element:
        return super().end(tag.removeprefix(self._namespace or ""))

    def doctype(self, name: str, pubid: str, system: str) -> None:
        raise DataError("must not declare a document type or entities", field="DOCTYPE")


def number(element: Element, name: str, default: float | None = None) -> float:
    """Return an attribute as a finite number. Raises: DataError if it is missing or not such a number."""
    text = element.get(name)
    if text is None and default is not None:
        return default
    return as_number(text, f"{element.tag}.{name}")


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


# --------------------------------------------------------------------------------------------- tables


def is_text(dtype: pa.DataType) -> bool:
    """Return whether a column contains text, dictionary-encoded or not."""
    value = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    return pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)


def require_small_groups(metadata: pq.FileMetaData) -> None:
    """Raise DataError if a row group of a parquet file declares more rows or bytes than the limits.

    Does not touch the metadata of single columns: damaged statistics there crash Arrow.
    """
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows = group.num_rows
        size = group.total_byte_size
        require(rows <= MAX_STATES, "rows", f"a row group declares {rows} rows, more than {MAX_STATES}")
        require(size <= MAX_GROUP_BYTES, "rows", f"a row group declares {size} bytes")


def require_columns(names: list[str], wanted: Collection[str]) -> None:
    """Raise DataError about the first ``wanted`` column that is not among ``names`` exactly once."""
    for name in wanted:
        count = names.count(name)
        require(count > 0, name, "column is missing")
        require(count == 1, name, "column is duplicated")


def require_values(table: pa.Table, names: Collection[str]) -> None:
    """Raise DataError if a table has no rows, or a row has no value in one of the columns."""
    for name in names:
        require(table.num_rows > 0, name, "the file has no rows")
        require(table[name].null_count == 0, name, "is missing in at least one row")


def finite(table: pa.Table, name: str) -> NDArray[Any]:
    """Return a column of numbers ``[N]``. Raises: DataError if one is not finite."""
    values: NDArray[Any] = table[name].to_numpy()
    require_finite(values, name)
    return values


def text_codes(table: pa.Table, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return each row's index among the column's sorted distinct texts, and these texts."""
    column = table[name]
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.unify_dictionaries().combine_chunks()
    # The dictionary of a filtered table may contain unused texts.
    indices, code = np.unique(codes.indices.to_numpy(), return_inverse=True)
    try:
        texts: list[str] = codes.dictionary.take(indices).to_pylist()
    except UnicodeDecodeError:
        raise DataError("contains text that is not UTF-8", field=name) from None
    ordered = sorted(set(texts))
    rank = row_of(ordered)
    ranks = np.array([rank[text] for text in texts], np.int64)
    return ranks[code], ordered


def of_tracks(values: NDArray[Any], row: NDArray[np.int64], num_tracks: int, field: str) -> NDArray[Any]:
    """Collapse a column of states to one value per track; it must be constant within a track.

    Args:
        values: ``[N]`` the value of each row.
        row: ``[N]`` the track of each row.

    Raises: DataError about ``field`` if a track has several values.
    """
    value = np.zeros(num_tracks, values.dtype)
    value[row] = values
    require(bool((value[row] == values).all()), field, "changes within a track")
    return value


def sizes_of(size: NDArray[np.float64], row: NDArray[np.int64], num_tracks: int) -> NDArray[np.float64]:
    """Return the sizes ``[A, 2]`` of tracks: the medians over states with a positive size.

    Args:
        size: ``[N, 2]`` metres, the length and width of each state; NaN or 0 where unknown.
        row: ``[N]`` the track of each state.

    Returns:
        NaN for tracks without any.
    """
    median = np.full((num_tracks, 2), np.nan)
    for axis, values in enumerate(size.T):
        is_known = np.isfinite(values) & (values > 0)
        order = np.lexsort((values[is_known], row[is_known]))
        tracks, first, count = np.unique(row[is_known][order], return_index=True, return_counts=True)
        median[tracks, axis] = values[is_known][order][first + (count - 1) // 2]
    return median


def valid_states(
    row: NDArray[np.int64], step: NDArray[np.int64], num_tracks: int, num_steps: int, field: str
) -> NDArray[np.bool_]:
    """Return a mask ``[num_tracks, num_steps]`` of the states with these tracks and steps ``[N]``.

    Raises: DataError about ``field`` if a track has two states at one step, and if the mask is too large.
    """
    too_large = f"{num_tracks} tracks of {num_steps} steps exceed {MAX_STATES} states"
    require(num_tracks * num_steps <= MAX_STATES, "track_id", too_large)
    valid = np.zeros((num_tracks, num_steps), np.bool_)
    valid[row, step] = True
    require(int(valid.sum()) == len(row), field, "contains two states of a track at the same step")
    return valid


@dataclass(frozen=True)
class RawScenario:
    """A scenario in raw data, as sources discover it.

    Attributes:
        name: its name, unique within a split; in messages and in the records of a store.
        path: the file or folder that contains it. The scenario is prepared again when the content of the
            file, of a file in the folder, or of one named by ``part`` or ``beside`` changes.
        part: the part of ``path``, as the source counts: the number of a sequence in a pack, or the first
            step of a window, with the name of its recording if a file has several; None for the whole, or for
            the first window.
        recording: the drive, log or file that it is a window of, so that halves of a split never share a
            recording; empty if it is the only window.
        beside: other files and folders that it is read from, such as a map or metadata.

    Example:
        >>> RawScenario("17", Path("datasets/argoverse1/val.parquet"), part=17).name
        '17'
    """

    name: str
    path: Path
    part: Any = None
    recording: str = ""
    beside: tuple[Path, ...] = ()

    @classmethod
    def of(cls, path: Path, beside: tuple[Path, ...] = ()) -> RawScenario:
        """Name a file without its suffix, or a folder, as a whole."""
        return cls(path.name if path.is_dir() else path.stem, path, beside=beside)
