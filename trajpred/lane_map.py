"""The vector map around a scenario, and the ragged array it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.errors import as_array, require, within

#: ``LaneMap.lane_type`` indexes this tuple.
LANE_TYPES = ("VEHICLE", "BIKE", "BUS")
#: ``LaneMap.left_mark`` and ``right_mark`` index this tuple.
MARK_TYPES = (
    "NONE",
    "UNKNOWN",
    "DASHED_WHITE",
    "DASHED_YELLOW",
    "SOLID_WHITE",
    "SOLID_YELLOW",
    "SOLID_BLUE",
    "DOUBLE_SOLID_WHITE",
    "DOUBLE_SOLID_YELLOW",
    "DOUBLE_DASH_WHITE",
    "DOUBLE_DASH_YELLOW",
    "DASH_SOLID_WHITE",
    "DASH_SOLID_YELLOW",
    "SOLID_DASH_WHITE",
    "SOLID_DASH_YELLOW",
)
#: ``LaneMap.turn_direction`` indexes this tuple.
TURN_DIRECTIONS = ("UNKNOWN", "NONE", "LEFT", "RIGHT")
#: ``LaneMap.has_traffic_control`` indexes this tuple.
TRAFFIC_CONTROL = ("UNKNOWN", "NO", "YES")
_CODES = {
    "lane_type": ("LANE_TYPES", LANE_TYPES),
    "left_mark": ("MARK_TYPES", MARK_TYPES),
    "right_mark": ("MARK_TYPES", MARK_TYPES),
    "turn_direction": ("TURN_DIRECTIONS", TURN_DIRECTIONS),
    "has_traffic_control": ("TRAFFIC_CONTROL", TRAFFIC_CONTROL),
}
#: Stands for "no such lane" among neighbour ids.
NO_LANE = -1


@dataclass(frozen=True)
class Ragged:
    """``M`` rows of differing lengths in one array: row i is ``values[offsets[i]:offsets[i + 1]]``.

    Attributes:
        values: ``[N, ...]``; polylines are ``[N, 2]``, or ``[N, 3]`` where heights are known.
        offsets: ``[M + 1]`` int64, from 0 to N.
    """

    values: NDArray[Any]
    offsets: NDArray[np.int64]

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[ArrayLike],
        width: int | None = None,
        dtype: Any = np.float64,
        name: str = "rows",
    ) -> Ragged:
        """Join ``rows``; ``width`` is the number of columns (None: rows of scalars).

        Raises: :class:`DataError` about ``name`` on a row of another shape.
        """
        empty = np.zeros((0,) if width is None else (0, width), dtype)
        arrays = [as_array(row, dtype, name) for row in rows]
        arrays = [array if array.size else empty for array in arrays]
        for array in arrays:
            fits = array.ndim == empty.ndim and array.shape[1:] == empty.shape[1:]
            require(fits, name, f"has a row of the wrong shape {array.shape}")
        return cls.from_lengths(np.concatenate([empty, *arrays]), [len(array) for array in arrays])

    @classmethod
    def from_lengths(cls, values: NDArray[Any], lengths: ArrayLike) -> Ragged:
        """Rows of the given ``lengths`` ``[M]`` lying one behind another in ``values``."""
        ends = np.cumsum(np.asarray(lengths, np.int64), dtype=np.int64)
        return cls(values, np.concatenate((np.zeros(1, np.int64), ends)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows, {self.values.dtype}{list(self.values.shape)})"

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``[M]`` row lengths."""
        return np.diff(self.offsets)

    def validate(self, name: str, rows: int | None = None, shortest: int = 0) -> None:
        """Raise :class:`DataError` unless there are ``rows`` rows, all finite and long enough."""
        require(rows is None or len(self) == rows, name, f"has {len(self)} rows where {rows} are expected")
        require(int(self.offsets[-1]) == len(self.values), name, "offsets do not end at the last value")
        require(bool((self.lengths >= shortest).all()), name, f"has a row shorter than {shortest} points")
        require(bool(np.isfinite(self.values).all()), name, "has a value that is not finite")


@dataclass(frozen=True)
class LaneMap:
    """The vector map around a scenario: ``L`` lane segments, pedestrian crossings, drivable areas.

    Attributes:
        lane_id: ``[L]`` int64, unique.
        lane_type: ``[L]`` int8, index into :data:`LANE_TYPES`.
        is_intersection: ``[L]`` bool.
        centerline, left_boundary, right_boundary: L polylines in driving direction. A source without
            boundaries leaves their rows empty.
        left_mark, right_mark: ``[L]`` int8, index into :data:`MARK_TYPES`.
        left_neighbor, right_neighbor: ``[L]`` int64 lane ids, :data:`NO_LANE` for none.
        predecessors, successors: L rows of lane ids. Ids may name lanes outside this map.
        turn_direction: ``[L]`` int8, index into :data:`TURN_DIRECTIONS`; UNKNOWN throughout if not given.
        has_traffic_control: ``[L]`` int8, index into :data:`TRAFFIC_CONTROL`; likewise.
        crossing_id: ``[C]`` int64.
        crossing_edge1, crossing_edge2: C polylines, the two long sides of each crossing.
        drivable_area_id: ``[D]`` int64.
        drivable_area: D polygons, the first vertex not repeated at the end.
    """

    lane_id: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    lane_type: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    is_intersection: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    centerline: Ragged = field(default_factory=lambda: Ragged.from_rows([], 2))
    left_boundary: Ragged = field(default_factory=lambda: Ragged.from_rows([], 2))
    right_boundary: Ragged = field(default_factory=lambda: Ragged.from_rows([], 2))
    left_mark: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    right_mark: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    left_neighbor: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    right_neighbor: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    predecessors: Ragged = field(default_factory=lambda: Ragged.from_rows([], dtype=np.int64))
    successors: Ragged = field(default_factory=lambda: Ragged.from_rows([], dtype=np.int64))
    turn_direction: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    has_traffic_control: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    crossing_id: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    crossing_edge1: Ragged = field(default_factory=lambda: Ragged.from_rows([], 2))
    crossing_edge2: Ragged = field(default_factory=lambda: Ragged.from_rows([], 2))
    drivable_area_id: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    drivable_area: Ragged = field(default_factory=lambda: Ragged.from_rows([], 2))

    def __post_init__(self) -> None:
        for name in ("turn_direction", "has_traffic_control"):
            if not len(getattr(self, name)):  # not given: most sources do not tell
                object.__setattr__(self, name, np.zeros(len(self), np.int8))

    @classmethod
    def from_centerlines(
        cls,
        centerlines: Sequence[ArrayLike],
        *,
        lane_id: ArrayLike | None = None,
        successors: Sequence[Sequence[int]] | None = None,
    ) -> LaneMap:
        """A map of bare centrelines (each ``[points, 2]``, in driving direction), for people's own data.

        Args:
            centerlines: L polylines of at least 2 points, metres, city frame.
            lane_id: ``[L]`` ids; 0 … L-1 if not given.
            successors: for each lane the ids of those that follow it; predecessors are its inverse.
        """
        L = len(centerlines)
        ids = as_array(range(L) if lane_id is None else lane_id, np.int64, "lane_id")
        following = [list(row) for row in successors] if successors is not None else [[] for _ in range(L)]
        require(ids.shape == (L,), "lane_id", f"must name {L} lanes, has shape {ids.shape}")
        require(len(following) == L, "successors", f"must have {L} rows, has {len(following)}")
        preceding: dict[int, list[int]] = {int(i): [] for i in ids}
        for own, row in zip(ids, following, strict=True):
            for other in row:
                preceding.setdefault(other, []).append(int(own))
        bare = Ragged.from_rows([[] for _ in range(L)], 2)
        unmarked, alone = np.zeros(L, np.int8), np.full(L, NO_LANE, np.int64)
        return cls(
            lane_id=ids,
            lane_type=np.zeros(L, np.int8),
            is_intersection=np.zeros(L, np.bool_),
            centerline=Ragged.from_rows(centerlines, 2, name="centerline"),
            left_boundary=bare,
            right_boundary=bare,
            left_mark=unmarked,
            right_mark=unmarked,
            left_neighbor=alone,
            right_neighbor=alone,
            predecessors=Ragged.from_rows([preceding[int(i)] for i in ids], dtype=np.int64),
            successors=Ragged.from_rows(following, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.lane_id)

    def __repr__(self) -> str:
        parts = {"lane segments": len(self), "crossings": len(self.crossing_id)}
        parts["drivable areas"] = len(self.drivable_area_id)
        points = (
            len(self.centerline.values) + len(self.left_boundary.values) + len(self.right_boundary.values)
        )
        counts = ", ".join(f"{count} {name}" for name, count in parts.items())
        return f"LaneMap({counts}; {points} points of lanes)"

    def validate(self) -> None:
        """Raise :class:`DataError` naming the first field whose shape or values cannot be right."""
        L = len(self)
        for name in (*_CODES, "is_intersection", "left_neighbor", "right_neighbor"):
            require(getattr(self, name).shape == (L,), name, f"must have one entry for each of {L} lanes")
        require(len(np.unique(self.lane_id)) == L, "lane_id", "holds the same lane twice")
        for name, (table, known) in _CODES.items():
            require(within(getattr(self, name), len(known)), name, f"is no index of {table}")
        self.centerline.validate("centerline", L, shortest=2)
        for name in ("left_boundary", "right_boundary", "predecessors", "successors"):
            getattr(self, name).validate(name, L)
        for name in ("crossing_edge1", "crossing_edge2"):
            getattr(self, name).validate(name, len(self.crossing_id), shortest=2)
        self.drivable_area.validate("drivable_area", len(self.drivable_area_id), shortest=3)
