"""How much a file may hold: a damaged one, or one made to do harm, must not fill the memory.

What a file claims is looked at before anything of that size is made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.errors import require

#: Tracks times steps of a scenario, and rows of a file or row group read at once: a hundred times the largest
#: scenario of Argoverse 2.
MOST_STATES = 2**22
#: Bytes of a row group, decompressed, that is read at once.
MOST_BYTES = 2**28
#: Letters of an array of names: NumPy gives each name the room of the longest.
MOST_LETTERS = 2**24


def require_states(tracks: int, steps: int) -> None:
    """Raise :class:`DataError` if a scenario of so many tracks and steps is too large."""
    message = f"{tracks} tracks over {steps} steps are more than {MOST_STATES} states"
    require(tracks * steps <= MOST_STATES, "track_id", message)


def require_small(metadata: pq.FileMetaData) -> None:
    """Raise :class:`DataError` if a row group of a parquet file claims to be too large.

    Arrow's accessors of single columns are left alone: on damaged statistics they end the process.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        rows, size = group.num_rows, group.total_byte_size
        require(rows <= MOST_STATES, "rows", f"a row group claims to hold {rows}, more than {MOST_STATES}")
        require(size <= MOST_BYTES, "rows", f"a row group claims to take {size} bytes of {MOST_BYTES}")


def names(texts: Sequence[str], field: str) -> NDArray[np.str_]:
    """``texts`` as an array ``[M]``. Raises: :class:`DataError` about ``field`` if one is absurdly long."""
    longest = max(map(len, texts), default=0)
    require(longest * len(texts) <= MOST_LETTERS, field, f"has a text of {longest} letters")
    return np.array(texts, np.str_)
