"""LaneMap and Ragged: construction from centrelines, defaults, and rejected values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import rejects
from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged, evenly_spaced
from trajpred.errors import DataError

LINES = [[[0, 0], [1, 0]], [[1, 0], [2, 0]], [[2, 0], [3, 1], [4, 1]]]


def lane_map() -> LaneMap:
    """Return a map with something in every field."""
    return replace(
        LaneMap.from_centerlines(LINES),
        left_boundary=Ragged.from_rows(LINES, 2),
        crossing_id=np.array([4]),
        crossing_edge1=Ragged.from_rows([[[0, 0], [1, 1]]], 2),
        crossing_edge2=Ragged.from_rows([[[0, 1], [1, 2]]], 2),
        drivable_area_id=np.array([5]),
        drivable_area=Ragged.from_rows([[[0, 0], [1, 1], [0, 1]]], 2),
    )


@pytest.mark.parametrize("width", [None, 2, 3])
def test_ragged_rows_are_returned_as_given(width: int | None) -> None:
    shape = () if width is None else (width,)
    rows = [np.arange(n * int(np.prod(shape))).reshape(n, *shape).tolist() for n in (2, 0, 1)]
    ragged = Ragged.from_rows(rows, width)
    assert [row.tolist() for row in ragged] == rows
    assert (ragged.lengths.tolist(), len(ragged), ragged.values.shape) == ([2, 0, 1], 3, (3, *shape))
    assert Ragged.from_rows([], width).values.shape == (0, *shape)


def test_predecessors_are_the_inverse_of_successors() -> None:
    lanes = LaneMap.from_centerlines(LINES, lane_id=[10, 20, 30], successors=[[20, 30], [30], [99]])
    assert [row.tolist() for row in lanes.successors] == [[20, 30], [30], [99]]
    assert [row.tolist() for row in lanes.predecessors] == [[], [10], [10, 20]]


def test_long_lanes_are_cut_into_segments_that_follow_each_other() -> None:
    """600 m are twelve segments of 50 m; the lane after them follows the last one."""
    along = np.linspace([0, 0], [600, 0], 7)
    lanes = LaneMap.from_centerlines([along, [[600, 0], [640, 0]]], lane_id=[5, 9], successors=[[9], []])
    lanes.validate()
    assert lanes.lane_id.tolist() == [5, *range(10, 21), 9]
    assert [row.tolist() for row in lanes.successors] == [*([lane] for lane in range(10, 21)), [9], []]
    assert [row.tolist() for row in lanes.predecessors] == [[], [5], *([lane] for lane in range(10, 21))]
    ends = [line[[0, -1], 0].tolist() for line in lanes.centerline]
    np.testing.assert_allclose(ends[:12], [[50 * i, 50 * (i + 1)] for i in range(12)])


def test_a_map_of_too_many_segments_is_refused() -> None:
    with pytest.raises(DataError, match="field 'centerline': must be at most 200000 segments"):
        LaneMap.from_centerlines([[[0, 0], [2e7, 0]]])


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("lane_id", {"lane_id": [1]}),
        ("lane_id", {"lane_id": [1, 1, 2]}),
        ("lane_id", {"lane_id": [-1, 0, 1]}),
        ("successors", {"successors": [[1]]}),
        ("lane_id", {"lane_id": [0, 1.5, 2]}),
        *(("successors", {"successors": x}) for x in (5, [1, 2, 0], [[1.5], [], []], [None, [], []])),
    ],
)
def test_invalid_ids_of_centerlines_are_named(field: str, changes: dict[str, Any]) -> None:
    rejects(f"field '{field}'", lambda: LaneMap.from_centerlines(LINES, **changes).validate())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("lane_type", np.array(codes, np.int8)) for codes in ([0, 0, 3], [0])),
        ("is_intersection", np.zeros(4, bool)),
        ("right_mark", np.array([-1, 0, 0], np.int8)),
        ("left_neighbor", np.zeros(1, np.int64)),
        ("lane_id", np.array([1, 1, 2])),
        ("centerline", Ragged.from_rows(LINES[:2], 2)),
        ("centerline", Ragged.from_rows([*LINES[:2], [[0, 0]]], 2)),
        ("left_boundary", Ragged.from_rows([*LINES[:2], [[np.inf, 0]]], 2)),
        ("right_boundary", Ragged.from_rows([[]], 2)),
        ("successors", Ragged.from_rows([[1]], dtype=np.int64)),
        ("crossing_edge1", Ragged.from_rows([[[0, 0]]], 2)),
        ("crossing_edge2", Ragged.from_rows([], 2)),
        ("drivable_area", Ragged.from_rows([[[0, 0], [1, 1]]], 2)),
    ],
)
def test_invalid_fields_are_named(field: str, value: Any) -> None:
    lane_map().validate()
    rejects(f"field '{field}'", lambda: replace(lane_map(), **{field: value}).validate())


def test_wrong_rows_are_named() -> None:
    """Polylines padded with NaN, or with a mask, as those of one length often are."""
    padded = np.ma.masked_equal([[[0.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [-1.0, -1.0]]], -1.0)
    for lines in (padded, padded.filled(np.nan).tolist()):
        with pytest.raises(DataError, match=r"'centerline': contains a non-finite value: row 1$"):
            LaneMap.from_centerlines(lines).validate()
    with pytest.raises(DataError, match=r"'centerline': contains a row of the wrong shape \(3,\): row 1$"):
        LaneMap.from_centerlines([LINES[0], [1, 2, 3]])


def interpolated(line: np.ndarray, points: int) -> np.ndarray:
    if not len(line):
        return np.zeros((points, 2))
    lengths = np.linalg.norm(np.diff(line, axis=0), axis=1)
    arc = np.concatenate(([0.0], np.cumsum(lengths)))
    at = np.linspace(0, arc[-1], points)
    x = np.interp(at, arc, line[:, 0])
    y = np.interp(at, arc, line[:, 1])
    return np.stack((x, y), -1)


point = st.tuples(st.integers(-100, 100), st.integers(-100, 100))


@given(st.lists(st.lists(point, max_size=6), max_size=6), st.integers(2, 12))
def test_resampling_interpolates_each_polyline(lines: list[list[tuple[int, int]]], points: int) -> None:
    resampled = evenly_spaced(Ragged.from_rows(lines, 2), points)
    expected = [interpolated(np.array(line, float).reshape(-1, 2), points) for line in lines]
    np.testing.assert_allclose(resampled, np.array(expected).reshape(-1, points, 2), atol=1e-8)
