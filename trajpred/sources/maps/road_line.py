"""The geometry of a road in OpenDRIVE: its reference line, and cubic polynomials along it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.geometry import Pose, arc_length, direction, to_global, unit_vector
from trajpred.sources.reading import number

#: Largest distance (metres) of a curve from the chords between its points.
TOLERANCE_M = 0.01
#: Shortest chord (metres).
MIN_STEP_M = 0.1
#: Longest chord (metres).
MAX_STEP_M = 1.0
#: Length of the chords of polynomials (metres).
POLYNOMIAL_STEP_M = 0.25
#: Longest road (metres).
MAX_ROAD_M = 1e5
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Cubics:
    """Cubic polynomials a + b ds + c ds² + d ds³, one after another; ds counts from the start of each.

    Attributes:
        start: ``[N]`` metres, ascending.
        factors: ``[N, 4]``: a, b, c, d.
    """

    start: Values
    factors: Values

    @classmethod
    def of(cls, elements: Sequence[Element], start: str) -> Cubics:
        """Read elements whose attribute ``start`` is the start. Raises: DataError naming the attribute."""
        rows = []
        for element in elements:
            factors = _numbers(element, "abcd")
            rows.append([number(element, start, 0.0), *factors])
        table = np.array(sorted(rows) or [[0.0] * 5])
        return cls(table[:, 0], table[:, 1:])

    def __call__(self, s: Values) -> Values:
        """Evaluate at ``s`` ``[S]``, 0 without polynomials."""
        row = (np.searchsorted(self.start, s + 1e-9, side="right") - 1).clip(0)
        a, b, c, d = self.factors[row].T
        ds = s - self.start[row]
        return a + ds * (b + ds * (c + ds * d))


@dataclass(frozen=True)
class RoadLine:
    """The reference line of a road at ``S`` stations.

    Attributes:
        s: ``[S]`` metres along the road, ascending.
        xy: ``[S, 2]`` metres.
        heading: ``[S]`` radians.
    """

    s: Values
    xy: Values
    heading: Values

    @classmethod
    def of(cls, road: Element, stations: Sequence[float], frame: Pose[np.ndarray]) -> RoadLine:
        """Sample the line of ``road``, whose coordinates are in ``frame``, also at ``stations`` (metres).

        Raises: DataError naming the element at fault.
        """
        length = number(road, "length")
        wrong = f"must be above 0 and at most {MAX_ROAD_M:g} m, is {length}"
        require(0 < length <= MAX_ROAD_M, "road.length", wrong)
        records = sorted(road.iterfind("planView/geometry"), key=_start)
        require(len(records) > 0, "planView.geometry", f"is missing in road {road.get('id')!r}")
        starts = [min(max(_start(record), 0.0), length) for record in records[1:]]
        bounds = [0.0, *starts, length]
        stations_of: list[Values] = []
        points_of: list[Values] = []
        headings_of: list[Values] = []
        for record, (start, end) in zip(records, pairwise(bounds), strict=True):
            grid = np.linspace(start, end, math.ceil((end - start) / _step(record)) + 1)
            inner = [station for station in stations if start < station < end]
            s = np.union1d(grid, inner)
            xy, heading = _curve(record, s - start)
            origin = np.array([number(record, "x"), number(record, "y")])
            origin_heading = np.float64(number(record, "hdg"))
            xy = to_global(xy, origin, origin_heading)
            xy = to_global(xy, frame.position, frame.heading)
            stations_of.append(s)
            points_of.append(xy)
            headings_of.append(heading + origin_heading + frame.heading)
        s = np.concatenate(stations_of)
        xy = np.concatenate(points_of)
        heading = np.concatenate(headings_of)
        first = np.unique(s, return_index=True)[1]  # the ends of records are the starts of the next
        return cls(s[first], xy[first], np.unwrap(heading[first]))

    def between(self, start: float, end: float) -> RoadLine:
        """Select the stations from ``start`` to ``end``."""
        kept = (self.s >= start) & (self.s <= end)
        return RoadLine(self.s[kept], self.xy[kept], self.heading[kept])

    def aside(self, t: Values) -> Values:
        """Return the points ``[S, 2]`` that lie ``t`` ``[S]`` metres to the left of the line."""
        return self.xy + t[:, None] * unit_vector(self.heading + np.pi / 2)

    def at(self, s: Values, t: Values) -> Values:
        """Return the points ``[M, 2]`` at the stations ``s`` ``[M]``, ``t`` ``[M]`` metres to the left."""
        x = np.interp(s, self.s, self.xy[:, 0])
        y = np.interp(s, self.s, self.xy[:, 1])
        heading = np.interp(s, self.s, self.heading)
        return RoadLine(s, np.stack((x, y), -1), heading).aside(t)


def _curvature(record: Element) -> tuple[float, float] | None:
    """Return the curvature (1/m) of a line, arc or spiral at its start and its end; None for polynomials."""
    spiral = record.find("spiral")
    if spiral is not None:
        return number(spiral, "curvStart"), number(spiral, "curvEnd")
    arc = record.find("arc")
    if arc is not None:
        curvature = number(arc, "curvature")
        return curvature, curvature
    if record.find("line") is not None:
        return 0.0, 0.0
    return None


def _start(record: Element) -> float:
    """Return the station (metres) at which a record starts."""
    return number(record, "s")


def _step(record: Element) -> float:
    ends = _curvature(record)
    if ends is None:
        return POLYNOMIAL_STEP_M
    sharpest = max(abs(ends[0]), abs(ends[1]), 1e-9)
    step = math.sqrt(8 * TOLERANCE_M / sharpest)
    return min(max(step, MIN_STEP_M), MAX_STEP_M)


def _curve(record: Element, ds: Values) -> tuple[Values, Values]:
    """Return points ``[S, 2]`` and headings ``[S]`` at ``ds`` ``[S]`` metres from the start, in its frame."""
    ends = _curvature(record)
    if ends is None:
        return _polynomial(record, ds)
    # The curvature is linear: integrate the direction from point to point (Gauss-Legendre).
    curvature = ends[0]
    slope = (ends[1] - curvature) / max(number(record, "length"), 1e-9)
    half = np.diff(ds, prepend=0.0)[:, None] / 2
    s = ds[:, None] + half * (_NODES - 1)
    directions = unit_vector(s * (curvature + s * slope / 2))
    weights = half * _WEIGHTS
    steps = (directions * weights[..., None]).sum(axis=1)
    heading = ds * (curvature + ds * slope / 2)
    return np.cumsum(steps, axis=0), heading


def _numbers(element: Element, names: Iterable[str]) -> list[float]:
    """Read several attributes of an element. Raises: DataError naming the attribute."""
    return [number(element, name) for name in names]


def _polynomial(record: Element, ds: Values) -> tuple[Values, Values]:
    """Return points and headings ``ds`` metres along a polynomial.

    A paramPoly3 gives u(p) and v(p), with p in metres or, normalised, from 0 to 1. A poly3 gives v(u): the u
    at ``ds`` is found by arc length.
    """
    cubic = record.find("poly3")
    pair = record.find("paramPoly3")
    unknown = "is no line, spiral, arc, poly3 or paramPoly3"
    require(cubic is not None or pair is not None, "planView.geometry", unknown)
    if pair is not None:
        u_factors = _numbers(pair, ("aU", "bU", "cU", "dU"))
        v_factors = _numbers(pair, ("aV", "bV", "cV", "dV"))
        factors = np.array([u_factors, v_factors])
        p = ds
        if pair.get("pRange", "normalized") == "normalized":
            p = ds / max(number(record, "length"), 1e-9)
    else:
        assert cubic is not None
        v_factors = _numbers(cubic, "abcd")
        factors = np.array([[0, 1, 0, 0], v_factors])
        u = np.linspace(0, ds[-1], 8 * len(ds))  # dense enough to invert the arc length
        length = arc_length(_points(factors, u))
        p = np.interp(ds, length, u)
    derivative = (factors @ np.stack((0 * p, p**0, 2 * p, 3 * p**2))).T
    return _points(factors, p), direction(derivative)


def _points(factors: Values, p: Values) -> Values:
    """Evaluate two cubic polynomials ``[2, 4]`` at ``p`` ``[S]``: ``[S, 2]``."""
    return (factors @ np.stack((p**0, p, p**2, p**3))).T
