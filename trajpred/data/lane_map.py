"""The vector map around a scenario: lane segments, pedestrian crossings, drivable areas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.checks import as_array
from trajpred.data.geometry import arc_length, cut_line, norm
from trajpred.data.ragged import Ragged
from trajpred.errors import require, require_shape, within

#: ``LaneMap.lane_type`` and ``…_mark`` index these tuples.
LANE_TYPES = ("VEHICLE", "BIKE", "BUS")
MARK_TYPES = (
    "NONE", "UNKNOWN", "DASHED_WHITE", "DASHED_YELLOW", "SOLID_WHITE", "SOLID_YELLOW", "SOLID_BLUE",
    "DOUBLE_SOLID_WHITE", "DOUBLE_SOLID_YELLOW", "DOUBLE_DASH_WHITE", "DOUBLE_DASH_YELLOW",
    "DASH_SOLID_WHITE", "DASH_SOLID_YELLOW", "SOLID_DASH_WHITE", "SOLID_DASH_YELLOW",
)  # fmt: skip
_CODES = {"lane_type": LANE_TYPES, "left_mark": MARK_TYPES, "right_mark": MARK_TYPES}
#: Attributes that a map may lack, and their fields in :class:`LaneMap`.
MAP_ATTRIBUTES = {
    "boundaries": ("left_boundary", "right_boundary"),
    "marks": ("left_mark", "right_mark"),
    "lane_types": ("lane_type",),
    "crossings": ("crossing_id", "crossing_edge1", "crossing_edge2"),
}
#: Neighbour id of lanes without a neighbour.
NO_LANE = -1
#: Longest lane segment (metres): models select lanes by their midpoints, and Argoverse's are about this long.
MAX_LENGTH_M = 50.0
#: Models read lanes up to this distance (metres) from a road user, unless configured to less.
REACH_M = 100.0
#: Half the width (metres) of lanes without boundaries.
HALF_WIDTH_M = 2.0
#: Largest angle (radians) between a road user and a lane of its direction.
SAME_DIRECTION = np.pi / 4
#: Pairs of positions and centreline pieces compared at once: a bound on memory.
MAX_PAIRS = 2**20
#: Maximum number of lane segments of a map.
MAX_LANES = 200_000
#: Largest id.
MAX_ID = 2**63 - 1
_NOT_LANES = ("crossing", "drivable")


def _empty(dtype: Any) -> Any:
    return field(default_factory=lambda: np.zeros(0, dtype))


def _no_rows(width: int | None, dtype: Any = np.float64) -> Any:
    return field(default_factory=lambda: Ragged.from_rows([], width, dtype))


@dataclass(frozen=True)
class LaneMap:
    """The vector map around a scenario: ``L`` lane segments, pedestrian crossings, drivable areas.

    Everything but a lane's id and centreline may be left empty and then gets the default.

    Attributes:
        lane_id: ``[L]`` int64, unique.
        centerline: L polylines in driving direction.
        left_boundary: L polylines; empty rows by default.
        right_boundary: L polylines; empty rows by default.
        lane_type: ``[L]`` int8, index into :data:`LANE_TYPES`.
        is_intersection: ``[L]`` bool.
        left_mark: ``[L]`` int8, index into :data:`MARK_TYPES`.
        right_mark: ``[L]`` int8, index into :data:`MARK_TYPES`.
        left_neighbor: ``[L]`` int64 lane ids; :data:`NO_LANE` by default.
        right_neighbor: ``[L]`` int64 lane ids; :data:`NO_LANE` by default.
        predecessors: L rows of lane ids, which may lie outside this map.
        successors: L rows of lane ids, which may lie outside this map.
        crossing_id: ``[C]`` int64.
        crossing_edge1: C polylines, one long side of each crossing.
        crossing_edge2: C polylines, the other long side.
        drivable_area_id: ``[D]`` int64.
        drivable_area: D polygons, the first vertex not repeated at the end.

    Example:
        >>> LaneMap.from_centerlines([[[0, 0], [50, 0]], [[50, 0], [90, 9]]], successors=[[1], []])
        LaneMap(2 lane segments, 0 crossings, 0 drivable areas; 4 points of lanes)
    """

    lane_id: NDArray[np.int64] = _empty(np.int64)
    lane_type: NDArray[np.int8] = _empty(np.int8)
    is_intersection: NDArray[np.bool_] = _empty(np.bool_)
    centerline: Ragged = _no_rows(2)
    left_boundary: Ragged = _no_rows(2)
    right_boundary: Ragged = _no_rows(2)
    left_mark: NDArray[np.int8] = _empty(np.int8)
    right_mark: NDArray[np.int8] = _empty(np.int8)
    left_neighbor: NDArray[np.int64] = _empty(np.int64)
    right_neighbor: NDArray[np.int64] = _empty(np.int64)
    predecessors: Ragged = _no_rows(None, np.int64)
    successors: Ragged = _no_rows(None, np.int64)
    crossing_id: NDArray[np.int64] = _empty(np.int64)
    crossing_edge1: Ragged = _no_rows(2)
    crossing_edge2: Ragged = _no_rows(2)
    drivable_area_id: NDArray[np.int64] = _empty(np.int64)
    drivable_area: Ragged = _no_rows(2)

    def __post_init__(self) -> None:
        """Fill the columns that were left out with unknown values."""
        L = len(self)
        for column in fields(self):
            name = column.name
            values = getattr(self, name)
            is_required = name in ("lane_id", "centerline")
            if len(values) or is_required or name.startswith(_NOT_LANES):
                continue
            filled: Any
            if isinstance(values, Ragged):
                filled = Ragged.from_lengths(values.values, np.zeros(L, np.int64))
            elif name.endswith("_neighbor"):
                filled = np.full(L, NO_LANE, values.dtype)
            else:
                filled = np.zeros(L, values.dtype)
            object.__setattr__(self, name, filled)

    @classmethod
    def from_centerlines(
        cls,
        centerlines: Sequence[ArrayLike],
        *,
        lane_id: ArrayLike | None = None,
        successors: Sequence[Sequence[int]] | None = None,
    ) -> LaneMap:
        """Build a map of centrelines ``[points, 2]`` in driving direction, for your own data.

        A lane longer than :data:`MAX_LENGTH_M` becomes consecutive segments of equal length: the first has
        the lane's id, the others have ids after the largest one.

        Args:
            lane_id: an id for each lane; 0, 1, … by default.
            successors: ids of each lane's successors; the predecessors are derived from them.

        Raises: DataError about the argument that does not fit.
        """
        text = isinstance(centerlines, (str, Path))
        require(not text, "centerline", "is the name of a file: trajpred.read_map reads map files")
        lanes = Ragged.from_rows(centerlines, 2, name="centerline")
        L = len(lanes)
        if lane_id is None:
            lane_id = range(L)
        ids = as_array(lane_id, np.int64, "lane_id", (L,)).tolist()
        rows = [[]] * L if successors is None else successors
        onward = Ragged.from_rows(rows, dtype=np.int64, name="successors")
        require(len(onward) == L, "successors", f"must have {L} rows, has {len(onward)}")
        lines: list[NDArray[np.float64]] = []
        segment_ids: list[int] = []
        following: list[list[int]] = []  # by segment
        free = free_ids(set(ids))
        counts = num_segments(list(lanes), "centerline")
        for line, lane, lane_successors, parts in zip(lanes, ids, onward, counts, strict=True):
            further = list(islice(free, parts - 1))
            lines += cut_line(line, parts)
            segment_ids += [lane, *further]
            following += [[segment] for segment in further]
            following.append(lane_successors.tolist())
        preceding: dict[int, list[int]] = {segment: [] for segment in segment_ids}
        for segment, successor_ids in zip(segment_ids, following, strict=True):
            for successor in successor_ids:
                preceding.setdefault(successor, []).append(segment)
        return cls(
            lane_id=np.array(segment_ids, np.int64),
            centerline=Ragged.from_rows(lines, 2),
            predecessors=Ragged.from_rows([preceding[segment] for segment in segment_ids], dtype=np.int64),
            successors=Ragged.from_rows(following, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.lane_id)

    def __repr__(self) -> str:
        lines = (self.centerline, self.left_boundary, self.right_boundary)
        points = sum(len(line.values) for line in lines)
        areas = f"{len(self.crossing_id)} crossings, {len(self.drivable_area_id)} drivable areas"
        return f"LaneMap({len(self)} lane segments, {areas}; {points} points of lanes)"

    def take(self, lanes: NDArray[np.int64], crossings: NDArray[np.int64]) -> LaneMap:
        """Select lane segments and crossings by their rows; all drivable areas stay."""
        columns: dict[str, Any] = {}
        for column in fields(self):
            name = column.name
            values = getattr(self, name)
            rows = crossings if name.startswith("crossing") else lanes
            if name.startswith("drivable"):
                columns[name] = values
            elif isinstance(values, Ragged):
                columns[name] = values.take(rows)
            else:
                columns[name] = values[rows]
        return LaneMap(**columns)

    def without(self, attributes: Iterable[str]) -> LaneMap:
        """Return the map with these :data:`MAP_ATTRIBUTES` reset to the defaults, as if not recorded."""
        values = vars(self).copy()
        for attribute in attributes:
            for name in MAP_ATTRIBUTES.get(attribute, ()):
                del values[name]
        return LaneMap(**values)

    def distance(self, position: NDArray[np.float64]) -> float:
        """Return the least distance (metres) from ``position`` ``[N, 2]`` to the middle of a lane.

        0 within :data:`REACH_M`, and without lanes or positions.
        """
        middle = self.centerline.offsets[:-1] + self.centerline.lengths // 2
        points = self.centerline.values[middle, :2]
        nearest = np.inf
        for place in position:
            nearest = min(nearest, float(norm(points - place).min(initial=np.inf)))
            if nearest <= REACH_M:
                return 0.0
        return nearest if nearest < np.inf else 0.0

    def carries(self, position: NDArray[np.float64], velocity: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether positions ``[N, 2]`` are on a lane in the direction of ``velocity`` ``[N, 2]``.

        A position is on a lane within half its width of the centreline. The width is the mean distance
        between the boundaries at both ends.
        """
        start, step, half = self._pieces_near(position)
        length = norm(step)
        carried = np.zeros(len(position), np.bool_)
        count = max(1, MAX_PAIRS // max(len(start), 1))
        for row in range(0, len(position), count):
            rows = slice(row, row + count)
            offset = position[rows, None] - start
            share = ((offset * step).sum(-1) / length**2).clip(0.0, 1.0)
            is_within = norm(offset - share[..., None] * step) <= half
            along = (velocity[rows, None] * step).sum(-1) / length
            is_along = along >= np.cos(SAME_DIRECTION) * norm(velocity[rows])[:, None]
            carried[rows] = (is_within & is_along).any(axis=1)
        return carried

    def _pieces_near(
        self, position: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return start and step ``[P, 2]`` of the straight pieces of centrelines that may carry a position.

        The last array ``[P]`` is half the width of their lanes.
        """
        line = self.centerline
        is_last = np.zeros(len(line.values), np.bool_)
        is_last[line.offsets[1:] - 1] = True
        first = np.flatnonzero(~is_last)
        start = line.values[first, :2]
        step = line.values[first + 1, :2] - start
        half = np.repeat(self._half_width(), line.lengths)[first]
        low = position.min(axis=0, initial=np.inf) - half[:, None]
        high = position.max(axis=0, initial=-np.inf) + half[:, None]
        end = start + step
        is_near = (np.maximum(start, end) >= low) & (np.minimum(start, end) <= high)
        near = np.flatnonzero(is_near.all(axis=1) & (norm(step) > 0))
        return start[near], step[near], half[near]

    def _half_width(self) -> NDArray[np.float64]:
        """Return half the width ``[L]`` of each lane in metres."""
        left = self.left_boundary
        right = self.right_boundary
        half = np.full(len(self), HALF_WIDTH_M)
        rows = np.flatnonzero((left.lengths > 0) & (right.lengths > 0))
        at_start = left.values[left.offsets[rows], :2] - right.values[right.offsets[rows], :2]
        at_end = left.values[left.offsets[rows + 1] - 1, :2] - right.values[right.offsets[rows + 1] - 1, :2]
        half[rows] = (norm(at_start) + norm(at_end)) / 4
        return half

    def extent(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the lower left and upper right corner ``[2]`` around all lanes; there must be one."""
        lines = (self.centerline, self.left_boundary, self.right_boundary)
        points = np.concatenate([line.values[:, :2] for line in lines])
        return points.min(axis=0), points.max(axis=0)

    def validate(self) -> None:
        """Raise :class:`DataError` naming the first field with an invalid shape or value."""
        L = len(self)
        for name in (*_CODES, "is_intersection", "left_neighbor", "right_neighbor"):
            require_shape(getattr(self, name), (L,), name)
        require(len(np.unique(self.lane_id)) == L, "lane_id", "contains a duplicate")
        reserved = f"contains {NO_LANE}, which stands for no neighbour: number the lanes from 0"
        require(NO_LANE not in self.lane_id, "lane_id", reserved)
        for name, types in _CODES.items():
            in_range = within(getattr(self, name), len(types))
            require(in_range, name, f"must be 0 to {len(types) - 1}")
        self.centerline.validate("centerline", L, shortest=2)
        for name in ("left_boundary", "right_boundary", "predecessors", "successors"):
            getattr(self, name).validate(name, L)
        for name in ("crossing_edge1", "crossing_edge2"):
            getattr(self, name).validate(name, len(self.crossing_id), shortest=2)
        self.drivable_area.validate("drivable_area", len(self.drivable_area_id), shortest=3)


def num_segments(lines: Sequence[NDArray[np.float64]], name: str) -> list[int]:
    """Return the number of segments of at most :data:`MAX_LENGTH_M` that each lane is cut into.

    Raises: DataError about ``name`` if there are too many for a map.
    """
    sizes: list[int] = []
    for line in lines:
        length = arc_length(line)[-1] if len(line) else 0.0
        parts = length / MAX_LENGTH_M if np.isfinite(length) else 1.0  # validate() reports the others
        sizes.append(max(1, int(np.ceil(parts - 1e-9))))
    require(sum(sizes) <= MAX_LANES, name, f"must be at most {MAX_LANES} segments, are {sum(sizes)}")
    return sizes


def free_ids(taken: set[int]) -> Iterator[int]:
    """Yield ids after the largest one taken, or between those taken if too few are left."""
    after = max(taken, default=-1) + 1
    start = 0
    if 0 <= after <= MAX_ID - MAX_LANES:
        start = after
    for number in count(start):
        if number not in taken:
            yield number
