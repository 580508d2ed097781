"""The rows of a ``submission.h5`` of Argoverse 1's challenge, as argoverse-api's ``generate_forecasting_h5``.

One dataset ``[N, 3 or 4]``, a row per step, mode after mode: sequence, x, y, and perhaps the probability of
the mode, without which all are equally likely. It names no tracks: each is the focal one of its sequence.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trajpred.data.environment import install_command
from trajpred.data.files import require_file
from trajpred.errors import DataError, require, require_rows
from trajpred.predictors.prediction_rows import Lists, Rows

#: The suffix of these files.
SUFFIX = ".h5"
#: The name of the dataset.
DATASET = "argoverse_forecasting"
#: F, the steps of every mode.
STEPS = 30
#: What messages call the track of a sequence.
FOCAL = "focal"
#: Deflate packs at most so many bytes into one: a file that claims more is rejected as damaged.
MAX_PER_BYTE = 1032


def read_submission(path: Path) -> Rows:
    """Read the rows. Raises: DataError naming the file and what in it is not as the challenge defines it."""
    require_file(path)
    try:
        return _rows(_table(path))
    except DataError as error:
        raise error.located(path) from None


def _table(path: Path) -> NDArray[np.float64]:
    """Read the dataset ``[N, 3 or 4]``."""
    try:
        import h5py
    except ImportError:
        raise DataError(f"needs h5py: {install_command('h5')}") from None
    try:
        with h5py.File(path) as file:
            table = file.get(DATASET)
            require(
                isinstance(table, h5py.Dataset), DATASET, "is missing: the file needs a dataset of this name"
            )
            require(table.dtype.kind in "fiu", DATASET, f"must contain numbers, contains {table.dtype}")
            fits = table.ndim == 2 and table.shape[1] in (3, 4)
            columns = "must have 3 or 4 columns (sequence, x, y, perhaps probability)"
            require(fits, DATASET, f"{columns}, has shape {table.shape}")
            plausible = table.nbytes <= MAX_PER_BYTE * path.stat().st_size
            require(plausible, DATASET, f"claims to unpack the file to {table.nbytes} bytes")
            return np.asarray(table, np.float64)
    except DataError:
        raise
    except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"is not a readable HDF5 file ({error})") from None


def _rows(table: NDArray[np.float64]) -> Rows:
    """Cut the steps into modes. Raises: DataError if that is impossible."""
    number = table[:, 0]
    whole = (np.abs(number) < 2**53) & (number == np.floor(number))
    require_rows(whole, "sequence", "must be a whole number")
    first = np.flatnonzero(np.diff(number, prepend=np.nan) != 0)
    ids = [str(int(one)) for one in number[first]]
    _, where = np.unique(number[first], return_index=True)
    _require_of_each(np.isin(np.arange(len(ids)), where), ids, "sequence", "is in two places of the file")
    steps = np.diff(first, append=len(table))
    _require_of_each(steps % STEPS == 0, ids, "sequence", f"must have {STEPS} rows for each of its modes")
    modes = steps // STEPS
    scenario = np.repeat(np.arange(len(ids)), modes)
    probability = 1 / modes[scenario]
    if table.shape[1] == 4:
        by_step = table[:, 3].reshape(-1, STEPS)
        probability = by_step.max(axis=1)
        varies = np.bincount(scenario, probability > by_step.min(axis=1), len(ids)) > 0
        _require_of_each(~varies, ids, "probability", f"must be the same in the {STEPS} rows of a mode")
    start = STEPS * np.arange(len(scenario))
    length = np.full(len(scenario), STEPS)
    return Rows(
        scenario=scenario,
        scenario_ids=ids,
        track=np.zeros_like(scenario),
        track_ids=[FOCAL],
        probability=probability,
        x=Lists(table[:, 1], start, length),
        y=Lists(table[:, 2], start, length),
    )


def _require_of_each(correct: NDArray[np.bool_], ids: list[str], field: str, message: str) -> None:
    """Raise :class:`DataError` that names the first sequence that is not correct."""
    if not correct.all():
        raise DataError(f"{message}: sequence {ids[correct.argmin()]}", field=field)
