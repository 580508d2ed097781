"""Tables with one row per state of a track, in files that may be damaged: limits and arrangement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.errors import DataError, require

#: Limits that a damaged or hostile file must not exceed, checked before memory is allocated: steps of a
#: window (1000 s at 10 Hz); tracks times steps, and rows of a table (100 times the largest scenario of
#: Argoverse 2); decompressed bytes of a row group.
MAX_STEPS, MAX_STATES, MAX_GROUP_BYTES = 10_000, 2**22, 2**28


@contextmanager
def readable(path: Path, what: str, field: str | None = None) -> Iterator[None]:
    """Name ``path`` in every DataError; report other errors as "is not a readable ``what``"."""
    try:
        yield
    except DataError as error:
        raise error.located(path) from None
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise DataError(f"is not a readable {what} ({error})", file=path, field=field) from None


def is_text(dtype: pa.DataType) -> bool:
    """Return whether a column holds text, dictionary-encoded or not."""
    value = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    return pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)


def require_small_groups(metadata: pq.FileMetaData) -> None:
    """Raise DataError if a row group of a parquet file declares more rows or bytes than the limits.

    Does not touch the metadata of single columns: damaged statistics there crash Arrow.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        rows, size = group.num_rows, group.total_byte_size
        require(rows <= MAX_STATES, "rows", f"a row group declares {rows} rows, more than {MAX_STATES}")
        require(size <= MAX_GROUP_BYTES, "rows", f"a row group declares {size} bytes")


def text_codes(table: pa.Table, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return for each row its text's index among the sorted distinct texts of the column, and those texts."""
    column = table[name] if pa.types.is_dictionary(table[name].type) else table[name].dictionary_encode()
    codes = column.unify_dictionaries().combine_chunks()
    # The dictionary of a table that was filtered may contain unused texts.
    used, code = np.unique(codes.indices.to_numpy(), return_inverse=True)
    try:
        texts: list[str] = codes.dictionary.take(used).to_pylist()
    except UnicodeDecodeError:
        raise DataError("contains text that is not UTF-8", field=name) from None
    ordered = sorted(set(texts))
    rank = {text: i for i, text in enumerate(ordered)}
    return np.array([rank[text] for text in texts], np.int64)[code], ordered


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
