"""Drives as text, an update a line, for runtimes in other languages. NumPy only.

Each line is a JSON object:

- ``time_s``: seconds; ``track_id``: N ids; ``position``: N pairs of metres;
- ``heading``, ``velocity``, ``object_type`` (may be missing): as in :class:`Detections`;
- ``targets`` (may be missing): ids of the tracks to predict;
- ``map`` (may be missing): the map from this update on, in Argoverse 2's format;
- ``forecast`` (may be missing): ``track_id``, ``trajectory`` ``[A, K, F, 2]`` metres and ``probability``
  ``[A, K]`` that another runtime predicted.

A number that is not finite is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import ArrayLike

from trajpred.arrays import as_array
from trajpred.files import atomic_file
from trajpred.forecast import Forecast
from trajpred.onboard.detections import Detections, listed

#: Digits behind the point of predicted positions: a tenth of a millimetre.
DIGITS = 4


def drive_line(
    timestamp_s: float,
    detections: Detections,
    *,
    targets: Sequence[str] | None = None,
    map: dict[str, Any] | None = None,
    forecast: Forecast | None = None,
) -> str:
    """Return an update as a line, without the line's end.

    Args:
        timestamp_s: seconds.
        targets: ids of the tracks to predict, by default all.
        map: new map, see :func:`~trajpred.sources.argoverse2_map.archive_of`.
        forecast: of this update, to compare another runtime's with.

    Raises: DataError if ids are no list of names, or numbers are none.

    Example:
        >>> drive_line(12.3, Detections(["car 7"], [[4.0, 7.5]]))
        '{"time_s": 12.3, "track_id": ["car 7"], "position": [[4.0, 7.5]]}'
    """
    line: dict[str, Any] = {
        "time_s": timestamp_s if math.isfinite(timestamp_s) else None,
        "track_id": listed(detections.track_id, "track_id"),
        "position": _numbers(detections.position, "position"),
    }
    if detections.heading is not None:
        line["heading"] = _numbers(detections.heading, "heading")
    if detections.velocity is not None:
        line["velocity"] = _numbers(detections.velocity, "velocity")
    if detections.object_type is not None:
        line["object_type"] = listed(detections.object_type, "object_type")
    if targets is not None:
        line["targets"] = listed(targets, "targets")
    if map is not None:
        line["map"] = map
    if forecast is not None:
        line["forecast"] = {
            "track_id": forecast.track_id.tolist(),
            "trajectory": forecast.trajectory.round(DIGITS).tolist(),
            "probability": forecast.probability.tolist(),
        }
    return json.dumps(line, allow_nan=False)


class DriveLines:
    """Write a drive to a file, update by update; what it held before stays if the block raises.

    Args:
        path: usually ends in ``.jsonl``.
        map: of the first update, see :func:`~trajpred.sources.argoverse2_map.archive_of`.

    Example:
        >>> with DriveLines("drive.jsonl") as file:
        ...     file.add(12.3, Detections(["car 7"], [[4.0, 7.5]]))
    """

    def __init__(self, path: str | Path, map: dict[str, Any] | None = None) -> None:
        self._path, self._map = path, map
        self._stack = ExitStack()

    def __enter__(self) -> DriveLines:
        unfinished = self._stack.enter_context(atomic_file(self._path))
        self._file: TextIO = self._stack.enter_context(unfinished.open("w", encoding="utf-8"))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def add(self, timestamp_s: float, detections: Detections, forecast: Forecast | None = None) -> None:
        """Write an update, with its forecast to compare another runtime's with."""
        line = drive_line(timestamp_s, detections, map=self._map, forecast=forecast)
        self._map = None
        self._file.write(f"{line}\n")


def _numbers(values: ArrayLike, field: str) -> Any:
    """Return numbers as nested lists, None for those that are masked or not finite. Raises: DataError."""
    array = as_array(values, np.float64, field)
    numbers = array.astype(object)
    numbers[~np.isfinite(array)] = None
    return numbers.tolist()
