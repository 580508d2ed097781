"""The geometry of a road in OpenDRIVE: its reference line, and cubic polynomials along it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.geometry import direction, norm, rotate, unit_vector
from trajpred.sources.maps.xml_file import number

#: Distance (metres) of a curve from the chords between its points, and bounds of the step between them.
TOLERANCE_M, MIN_STEP_M, MAX_STEP_M, POLYNOMIAL_STEP_M = 0.01, 0.1, 1.0, 0.25
#: Longest road (metres).
MAX_ROAD_M = 1e5
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Cubics:
    """Cubic polynomials, one after another: a + b ds + c ds² + d ds³, where ds counts from each start.

    Attributes:
        start: ``[N]`` metres, ascending.
        factors: ``[N, 4]``: a, b, c, d.
    """

    start: Values
    factors: Values

    @classmethod
    def of(cls, elements: Sequence[Element], start: str) -> Cubics:
        """Read elements whose attribute ``start`` is the start. Raises: DataError naming the attribute."""
        rows = sorted([number(one, start, 0.0), *(number(one, name) for name in "abcd")] for one in elements)
        table = np.array(rows, np.float64).reshape(-1, 5)
        return cls(table[:, 0], table[:, 1:])

    def __call__(self, s: Values) -> Values:
        """Evaluate at ``s`` ``[S]``; 0 where there is no polynomial."""
        if not len(self.start):
            return np.zeros_like(s)
        row = (np.searchsorted(self.start, s + 1e-9, side="right") - 1).clip(0)
        a, b, c, d = self.factors[row].T
        ds = s - self.start[row]
        return a + ds * (b + ds * (c + ds * d))


@dataclass(frozen=True)
class RoadLine:
    """The reference line of a road at ``S`` stations.

    Attributes:
        s: ``[S]`` metres along the road, ascending.
        xy: ``[S, 2]`` metres; heading: ``[S]`` radians.
    """

    s: Values
    xy: Values
    heading: Values

    @classmethod
    def of(cls, road: Element, stations: Sequence[float]) -> RoadLine:
        """Sample the reference line of ``road``, so that ``stations`` (metres) are among the points.

        Raises: DataError naming the element at fault.
        """
        length = number(road, "length")
        require(0 < length <= MAX_ROAD_M, "road.length", f"must be above 0, at most {MAX_ROAD_M:g}: {length}")
        records = sorted(road.iterfind("planView/geometry"), key=lambda one: number(one, "s"))
        require(len(records) > 0, "planView.geometry", f"is missing in road {road.get('id')!r}")
        starts = [0.0, *(min(max(number(one, "s"), 0.0), length) for one in records[1:]), length]
        marks = np.array([one for one in stations if 0 < one < length])
        parts = []
        for record, start, end in zip(records, starts[:-1], starts[1:], strict=True):
            curve = _Curve.of(record)
            step = min(max(curve.step, MIN_STEP_M), MAX_STEP_M)
            grid = np.linspace(start, end, math.ceil((end - start) / step) + 1)
            s = np.unique(np.concatenate((grid, marks[(marks > start) & (marks < end)])))
            xy, heading = curve.at(s - start)
            last = len(s) if end == length else -1  # the next record repeats the point
            parts.append((s[:last], xy[:last], heading[:last]))
        s, xy, heading = (np.concatenate(column) for column in zip(*parts, strict=True))
        return cls(s, xy, np.unwrap(heading))

    def between(self, start: float, end: float) -> RoadLine:
        """Select the stations from ``start`` to ``end``."""
        kept = (self.s >= start - 1e-9) & (self.s <= end + 1e-9)
        return RoadLine(self.s[kept], self.xy[kept], self.heading[kept])

    def aside(self, t: Values) -> Values:
        """Return the points ``[S, 2]`` that lie ``t`` ``[S]`` metres to the left of the line."""
        return self.xy + t[:, None] * unit_vector(self.heading + np.pi / 2)

    def at(self, s: Values, t: Values) -> Values:
        """Return the points ``[M, 2]`` at the stations ``s`` ``[M]``, ``t`` ``[M]`` metres to the left."""
        x, y, heading = (np.interp(s, self.s, values) for values in (*self.xy.T, self.heading))
        return RoadLine(s, np.stack((x, y), -1), heading).aside(t)


@dataclass(frozen=True)
class _Curve:
    """One record of a plan view, from its start in its own direction.

    Lines, arcs and spirals are curves whose curvature is linear; others are polynomials u(p), v(p).
    """

    origin: Values
    heading: float
    step: float
    curvature: tuple[float, float] = (0.0, 0.0)  # at the start (1/m), and its slope (1/m²)
    polynomials: Values | None = None  # [2, 4]
    scale: float | None = None  # p of a metre; None if p is u, and metres are those of the curve

    @classmethod
    def of(cls, record: Element) -> _Curve:
        origin = np.array([number(record, axis) for axis in "xy"])
        heading, length = number(record, "hdg"), number(record, "length")
        shape = next((one for one in record if one.tag in _SHAPES), None)
        if shape is None:
            raise DataError(f"is none of {', '.join(_SHAPES)}", field="planView.geometry")
        if shape.tag in ("poly3", "paramPoly3"):
            names = ("aU", "bU", "cU", "dU", "aV", "bV", "cV", "dV")
            v = [number(shape, name) for name in "abcd"] if shape.tag == "poly3" else []
            numbers = [0, 1, 0, 0, *v] if v else [number(shape, name) for name in names]
            normalised = shape.get("pRange", "normalized") == "normalized"
            scale = None if v else 1 / max(length, 1e-9) if normalised else 1.0
            uv = np.array(numbers, np.float64).reshape(2, 4)
            return cls(origin, heading, POLYNOMIAL_STEP_M, polynomials=uv, scale=scale)
        first, last = (number(shape, name) if name else 0.0 for name in _SHAPES[shape.tag])
        step = math.sqrt(8 * TOLERANCE_M / max(abs(first), abs(last), 1e-9))
        return cls(origin, heading, step, (first, (last - first) / max(length, 1e-9)))

    def at(self, ds: Values) -> tuple[Values, Values]:
        """Return points ``[S, 2]`` and headings ``[S]`` at ``ds`` ``[S]`` metres from the start, from 0 on."""
        local, heading = self._linear_curvature(ds) if self.polynomials is None else self._polynomial(ds)
        return self.origin + rotate(local, np.float64(self.heading)), self.heading + heading

    def _linear_curvature(self, ds: Values) -> tuple[Values, Values]:
        """Integrate the direction, a quadratic in the arc length, from point to point (Gauss-Legendre)."""
        first, slope = self.curvature
        half = np.diff(ds, prepend=0.0)[:, None] / 2
        s = ds[:, None] + half * (_NODES - 1)
        steps = (unit_vector(s * (first + s * slope / 2)) * (half * _WEIGHTS)[..., None]).sum(axis=1)
        return np.cumsum(steps, axis=0), ds * (first + ds * slope / 2)

    def _polynomial(self, ds: Values) -> tuple[Values, Values]:
        assert self.polynomials is not None
        p = ds * self.scale if self.scale is not None else self._u(ds)
        powers = np.stack((np.ones_like(p), p, p**2, p**3))
        rates = np.stack((np.zeros_like(p), np.ones_like(p), 2 * p, 3 * p**2))
        return (self.polynomials @ powers).T, direction((self.polynomials @ rates).T)

    def _u(self, ds: Values) -> Values:
        """Return u at the arc lengths ``ds`` of v(u)."""
        assert self.polynomials is not None
        u = np.linspace(0, ds[-1], 4 * len(ds) + 1)
        _, b, c, d = self.polynomials[1]
        rate = norm(np.stack((np.ones_like(u), b + u * (2 * c + 3 * u * d)), -1))
        arc = np.concatenate((np.zeros(1), np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(u))))
        return np.interp(ds, arc, u)


#: The attributes of the curvature at the start and the end of each shape; polynomials have none.
_SHAPES: dict[str, tuple[str, str]] = {
    "line": ("", ""),
    "arc": ("curvature", "curvature"),
    "spiral": ("curvStart", "curvEnd"),
    "poly3": ("", ""),
    "paramPoly3": ("", ""),
}
