"""A tracker's detections: the input of every update, checked before it is used. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.checks import MAX_NAME, as_array, as_name, encode, is_name
from trajpred.data.geometry import norm, wrap_angle
from trajpred.data.motion import given_heading
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import DataError, quoted, require, shortened
from trajpred.onboard.history import States
from trajpred.onboard.lane_cache import MAX_COORDINATE

#: Fastest road user (m/s). A track that moves faster is another object under the same id.
MAX_SPEED = 100.0
#: Number of tracks in an update, and of tracks remembered: those not seen for longest are forgotten first.
MAX_TRACKS = 2_000


class Detections(NamedTuple):
    """Detections of ``N`` road users at one time, in the frame of the map.

    Attributes:
        track_id: N ids.
        position: ``[N, 2]`` metres.
        heading: ``[N]`` radians. Where missing or not finite, it is derived from the positions so far, as in
            training: the latest direction of travel in the history, or, for tracks that never moved in it,
            the direction of the nearest lane.
        velocity: ``[N, 2]`` m/s. Where missing, not finite or faster than :data:`MAX_SPEED`, it is derived
            from the positions so far too.
        object_type: N names of :data:`~trajpred.data.tracks.OBJECT_TYPES`, by default ``vehicle``.
    """

    track_id: Sequence[str]
    position: ArrayLike
    heading: ArrayLike | None = None
    velocity: ArrayLike | None = None
    object_type: Sequence[str] | None = None


def listed(names: Sequence[str], field: str) -> list[str]:
    """Return names as text, "" for what is no name. Raises: DataError if they are not a list."""
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
    """Return the usable states and why the others are not, or None if the shapes do not fit."""
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
    track_id = np.array([name if is_name(name) else "" for name in ids], np.str_)
    near = (np.abs(position) <= MAX_COORDINATE).all(axis=1)
    named = track_id != ""
    far = f"its position is not finite or beyond {MAX_COORDINATE:g} m"
    nameless = f"its id is not 1 to {MAX_NAME} printable characters"
    usable = near & named
    rejected: dict[str, str] = {}
    for row in np.flatnonzero(~usable):
        rejected[ids[row]] = far if named[row] else nameless
    unique, count = np.unique(track_id[named], return_counts=True)
    if (count > 1).any():
        duplicates = shortened(", ".join(unique[count > 1].tolist()))
        warnings.append(f"duplicate ids, the first usable detection counts: {duplicates}")
    rows = np.flatnonzero(usable)
    rows = rows[np.sort(np.unique(track_id[rows], return_index=True)[1])]
    velocity = np.where(norm(velocity)[:, None] <= MAX_SPEED, velocity, np.nan)
    heading = given_heading(wrap_angle(np.where(np.isfinite(heading), heading, np.nan)))
    motion = np.concatenate((heading[:, None], velocity), axis=1)
    return States(track_id[rows], position[rows], motion[rows], object_type[rows]), rejected


def _object_types(names: Sequence[str] | None, count: int, warnings: list[str]) -> NDArray[np.int8]:
    """Return ``[N]`` indices into ``OBJECT_TYPES``; other names become ``unknown``. Raises: DataError."""
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
