"""The states of the road users in a recording window: :class:`Tracks`, their types and categories.

City frame, metres, radians, m/s, float64. Masks: True = valid. Sizes: ``A`` tracks, ``T`` steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.errors import require, require_finite, require_rows, require_shape, within

#: Typical (length, width) in metres of Argoverse 2's ten object types, for tracks of unknown size.
TYPICAL_SIZE = {
    "vehicle": (4.6, 1.9),
    "pedestrian": (0.7, 0.7),
    "motorcyclist": (2.1, 0.8),
    "cyclist": (1.8, 0.7),
    "bus": (11.5, 2.6),
    "static": (0.8, 0.8),
    "background": (0.8, 0.8),
    "construction": (0.8, 0.8),
    "riderless_bicycle": (1.8, 0.6),
    "unknown": (1.0, 1.0),
}
#: The object types in order; ``Tracks.object_type`` indexes this tuple.
OBJECT_TYPES = tuple(TYPICAL_SIZE)
#: The type of road users of unknown class.
UNKNOWN_TYPE = OBJECT_TYPES.index("unknown")
#: ``[10, 2]`` metres, indexed by ``Tracks.object_type``.
TYPICAL_SIZES: NDArray[np.float64] = np.array(list(TYPICAL_SIZE.values()))
#: Largest heading (radians), four turns either way: a larger one must be in degrees.
MAX_HEADING = 8 * np.pi
#: The ``track_id`` of the recording vehicle.
EGO_ID = "AV"


class TrackCategory(IntEnum):
    """Quality of a track and whether it is scored (Argoverse 2's numbers)."""

    FRAGMENT = 0
    UNSCORED = 1
    SCORED = 2
    FOCAL = 3


@dataclass(frozen=True)
class Tracks:
    """The states of ``A`` road users over ``T`` steps. Values where ``valid`` is False are 0.

    Attributes:
        track_id: ``[A]`` strings, unique; see :func:`~trajpred.data.checks.require_names`.
        object_type: ``[A]`` int8, index into :data:`OBJECT_TYPES`.
        category: ``[A]`` int8, :class:`TrackCategory`.
        valid: ``[A, T]`` bool.
        position: ``[A, T, 2]`` metres, city frame.
        heading: ``[A, T]`` radians, city frame.
        velocity: ``[A, T, 2]`` m/s, city frame.
        size: ``[A, 2]`` length and width in metres, NaN where unknown; unknown by default. Models do not
            read it.
    """

    track_id: NDArray[np.str_]
    object_type: NDArray[np.int8]
    category: NDArray[np.int8]
    valid: NDArray[np.bool_]
    position: NDArray[np.float64]
    heading: NDArray[np.float64]
    velocity: NDArray[np.float64]
    size: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 2)))

    def __post_init__(self) -> None:
        if not len(self.size):
            object.__setattr__(self, "size", np.full((len(self), 2), np.nan))

    def __len__(self) -> int:
        return len(self.track_id)

    def __repr__(self) -> str:
        counts = np.bincount(self.object_type, minlength=len(OBJECT_TYPES))
        order = np.argsort(-counts, kind="stable")
        types = ", ".join(f"{counts[i]} {OBJECT_TYPES[i]}" for i in order if counts[i])
        return f"Tracks({len(self)} over {self.valid.shape[-1]} steps: {types})"

    def index(self, track_id: str) -> int:
        """Return the row of ``track_id``. Raises: KeyError if there is no such track."""
        rows = np.flatnonzero(self.track_id == track_id)
        if not len(rows):
            raise KeyError(f"no track {track_id!r} in this scenario")
        return int(rows[0])

    def indices(self, track_ids: Iterable[str]) -> NDArray[np.int64]:
        """Return the row ``[M]`` of each of ``track_ids``. Raises: KeyError if a track is missing."""
        return np.array([self.index(str(track_id)) for track_id in track_ids], np.int64)

    def box(self, typical: NDArray[np.float64] = TYPICAL_SIZES) -> NDArray[np.float64]:
        """Return the sizes ``[A, 2]``; unknown sizes get the object type's ``typical`` size, ``[10, 2]``."""
        return np.where(np.isnan(self.size), typical[self.object_type], self.size)

    def take(self, rows: NDArray[np.int64]) -> Tracks:
        """Select tracks by their rows, in any order."""
        columns: dict[str, Any] = {column.name: getattr(self, column.name)[rows] for column in fields(self)}
        return Tracks(**columns)

    def last_seen(self, num_observed: int) -> NDArray[np.int64]:
        """Return the last valid step ``[A]`` among the first ``num_observed``, -1 where there is none."""
        observed = self.valid[:, :num_observed]
        steps_ago = observed[:, ::-1].argmax(axis=1)
        return np.where(observed.any(axis=1), num_observed - 1 - steps_ago, -1)

    def window(self, first: ArrayLike, steps: int) -> Tracks:
        """Select ``steps`` steps from step ``first`` on, one number or ``[A]``.

        Steps that were never recorded are unknown. Tracks with no valid step in the window are kept.
        """
        step = np.broadcast_to(first, len(self))[:, None] + np.arange(steps)
        return self.at(step)

    def at(self, step: NDArray[np.int64]) -> Tracks:
        """Select the states at ``step`` ``[A, S]``, or ``[S]`` for all tracks; unknown outside 0 to T - 1."""
        row = np.arange(len(self))[:, None]
        last = self.valid.shape[1] - 1
        recorded = (step >= 0) & (step <= last)
        step = step.clip(0, last)
        valid = self.valid[row, step] & recorded
        return replace(
            self,
            valid=valid,
            position=self.position[row, step] * valid[..., None],
            heading=self.heading[row, step] * valid,
            velocity=self.velocity[row, step] * valid[..., None],
        )

    def validate(self) -> None:
        """Raise :class:`DataError` naming the first field with an invalid shape or value."""
        is_usable = self.valid.ndim == 2 and self.valid.size > 0
        require(is_usable, "valid", f"must be [A, T] and not empty, has shape {self.valid.shape}")
        A, T = self.valid.shape
        require_shape(self.track_id, (A,), "track_id")
        require_shape(self.object_type, (A,), "object_type")
        require_shape(self.category, (A,), "category")
        require_shape(self.position, (A, T, 2), "position")
        require_shape(self.heading, (A, T), "heading")
        require_shape(self.velocity, (A, T, 2), "velocity")
        require_shape(self.size, (A, 2), "size")
        is_size = np.isnan(self.size) | ((self.size > 0) & (self.size < np.inf))
        require_rows(is_size.all(axis=1), "size", "must be positive metres, NaN where unknown")
        for name in ("position", "heading", "velocity"):
            require_finite(getattr(self, name), name, self.valid)
        largest = np.abs(self.heading[self.valid]).max(initial=0.0)
        require(largest <= MAX_HEADING, "heading", f"contains {largest:.4g}: must be radians, not degrees")
        require(within(self.object_type, len(OBJECT_TYPES)), "object_type", "must index OBJECT_TYPES")
        require(within(self.category, len(TrackCategory)), "category", "must be 0 to 3")
        names, count = np.unique(self.track_id, return_counts=True)
        repeated = ", ".join(names[count > 1][:3].tolist())
        require(repeated == "", "track_id", f"contains a duplicate: {repeated}")
        require_rows(self.valid.any(axis=1), "valid", "contains a track without a valid step; leave it out")


def usual_types(count: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return the most frequent known object type ``[A]`` of each track: classifiers flicker.

    Args:
        count: ``[A, 10]`` how often each track had each of :data:`OBJECT_TYPES`.
    """
    known_count = count.copy()
    known_count[:, UNKNOWN_TYPE] = 0
    return np.where(known_count.any(axis=1), known_count.argmax(axis=1), UNKNOWN_TYPE).astype(np.int8)


#: Moving agents end at least this far (metres) from their last observed position.
MOVING_M = 3.0


def agent_groups(category: Any, known: Any, whole: Any, distance: Any) -> dict[str, Any]:
    """Return the members ``[A]`` of each of :data:`~trajpred.data.splits.GROUPS`.

    Args:
        category: :class:`~trajpred.data.tracks.TrackCategory` of each agent: a NumPy array or a tensor
            ``[A]``, as are the other arguments.
        known: observed at the last observed step, with a true future position.
        whole: every step of the future is known.
        distance: metres between the last observed and the last future position.
    """
    return {
        "focal": known & (category == TrackCategory.FOCAL),
        "scored": known & (category >= TrackCategory.SCORED),
        "moving": known & whole & (distance >= MOVING_M),
        "all": known,
    }
