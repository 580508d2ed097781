"""A tracker's detections: the input of every update, checked before use. NumPy only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.checks import MAX_NAME, as_array, as_name, encode, is_name
from trajpred.data.geometry import norm, wrap_angle
from trajpred.data.motion import given_heading
from trajpred.data.tracks import MAX_HEADING, OBJECT_TYPES
from trajpred.errors import DataError, quoted, require, shortened
from trajpred.onboard.history import States
from trajpred.onboard.lane_cache import MAX_COORDINATE

#: Fastest road user (m/s). A track that moves faster is another object with a reused id.
MAX_SPEED = 100.0
#: Maximum number of tracks in an update, and of tracks kept: those not seen for longest are dropped first.
MAX_TRACKS = 2_000


class Detections(NamedTuple):
    """Detections of ``N`` road users at one time, in the frame of the map.

    Attributes:
        track_id: N ids.
        position: ``[N, 2]`` metres.
        heading: ``[N]`` radians. Where missing or not finite, it is derived from the positions so far, as in
            training: the latest direction of travel, or, for tracks that have never moved, the direction of
            the nearest lane. If one is beyond :data:`~trajpred.data.tracks.MAX_HEADING`, all are derived,
            with a warning: they must be in degrees.
        velocity: ``[N, 2]`` m/s along the axes of the positions, not of the road user. Where missing, not
            finite or, with a warning, faster than :data:`MAX_SPEED`, it is also derived from the positions so
            far. If velocities contradict the positions, a stream says so once, with share and angle.
        object_type: N names of :data:`~trajpred.data.tracks.OBJECT_TYPES`, by default ``vehicle``. A track
            has the known type detected most often within the model's history.
    """

    track_id: Sequence[str]
    position: ArrayLike
    heading: ArrayLike | None = None
    velocity: ArrayLike | None = None
    object_type: Sequence[str] | None = None


def listed(names: Sequence[str], field: str) -> list[str]:
    """Return names as text, "" for invalid ones. Raises: DataError if they are not a list."""
    if isinstance(names, (str, bytes)):  # a sequence of its letters
        raise DataError(f"must be a list of names, is {quoted(names)}", field=field)
    try:
        values = list(names)
    except TypeError as error:
        raise DataError(f"must be a list of names ({error})", field=field) from None
    texts: list[str] = []
    for value in values:
        try:
            texts.append(as_name(value, field))
        except DataError:
            texts.append("")
    return texts


def ids_of(detections: Detections, warnings: list[str]) -> list[str]:
    """Return the ids as text, or none with a warning if they are not a list."""
    try:
        return listed(detections.track_id, "track_id")
    except DataError as error:
        warnings.append(f"detections omitted: {error}")
        return []


def validated(
    ids: list[str], detections: Detections, warnings: list[str]
) -> tuple[States, dict[str, str]] | None:
    """Return the usable states and why others are not usable, or None if the shapes do not fit."""
    N = len(ids)
    try:
        require(N <= MAX_TRACKS, "track_id", f"has {N:,} entries, more than {MAX_TRACKS:,}")
        position = _shaped(detections.position, (N, 2), "position")
        heading = _shaped(detections.heading, (N,), "heading")
        velocity = _shaped(detections.velocity, (N, 2), "velocity")
        object_type = _object_types(detections.object_type, N, warnings)
    except DataError as error:
        warnings.append(f"detections omitted: {error}")
        return None
    near: list[bool] = np.all(np.abs(position) <= MAX_COORDINATE, axis=1).tolist()
    far = f"its position is not finite or beyond {MAX_COORDINATE:g} m"
    nameless = f"its id is not 1 to {MAX_NAME} printable characters"
    rejected: dict[str, str] = {}
    first_usable: dict[str, int] = {}
    count: Counter[str] = Counter()
    for row, name in enumerate(ids):
        if not is_name(name):
            rejected[name] = nameless
            continue
        count[name] += 1
        if near[row]:
            first_usable.setdefault(name, row)
        else:
            rejected[name] = far
    duplicates = sorted(name for name in count if count[name] > 1)
    if duplicates:
        names = shortened(", ".join(duplicates))
        warnings.append(f"duplicate ids, the first usable detection counts: {names}")
    rows = np.array(list(first_usable.values()), np.int64)
    heading = _headings(heading, warnings)
    velocity = _velocities(velocity, warnings)
    track_id = np.array(list(first_usable), np.str_)
    states = States(track_id, position[rows], heading[rows], velocity[rows], object_type[rows])
    return states, rejected


def _headings(heading: NDArray[np.float64], warnings: list[str]) -> NDArray[np.float64]:
    """Return ``[N]`` wrapped headings, NaN where unknown; all unknown if one can only be in degrees."""
    finite = np.isfinite(heading)
    if (np.abs(heading[finite]) > MAX_HEADING).any():
        warnings.append("headings omitted, they follow from positions: must be radians, not degrees")
        finite[:] = False
    return given_heading(wrap_angle(np.where(finite, heading, np.nan)))


def _velocities(velocity: NDArray[np.float64], warnings: list[str]) -> NDArray[np.float64]:
    """Return ``[N, 2]`` velocities, NaN where unknown or faster than :data:`MAX_SPEED`."""
    usable = norm(velocity) <= MAX_SPEED
    too_fast = ~usable & np.isfinite(velocity).all(axis=1)
    if too_fast.any():
        limit = f"above {MAX_SPEED:g} m/s"
        warnings.append(f"velocities {limit} omitted, they follow from positions: must be metres per second")
    return np.where(usable[:, None], velocity, np.nan)


def _object_types(names: Sequence[str] | None, count: int, warnings: list[str]) -> NDArray[np.int8]:
    """Return ``[N]`` indices into ``OBJECT_TYPES``: ``unknown`` for other names, ``vehicle`` without names.

    Raises: DataError.
    """
    names = ["vehicle"] * count if names is None else listed(names, "object_type")
    if len(names) != count:
        raise DataError(f"has {len(names)} entries for {count} detections", field="object_type")
    other = sorted(set(names) - set(OBJECT_TYPES))
    if other:
        listing = ", ".join(quoted(name) for name in other)
        warnings.append(f"object types treated as unknown: {shortened(listing)}")
    object_types = [name if name in OBJECT_TYPES else "unknown" for name in names]
    return encode(object_types, OBJECT_TYPES, "object_type")


def _shaped(values: ArrayLike | None, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    """Return ``values`` as an array of ``shape``, NaN if they are None. Raises: DataError."""
    if values is None:
        return np.full(shape, np.nan)
    array = as_array(values, np.float64, name)
    if array.size == 0 and 0 in shape:
        array = array.reshape(shape)
    if array.shape != shape:
        raise DataError(f"has shape {array.shape} where {shape} is expected", field=name)
    return array
