"""Scenario: one recording window, as every source yields it and everything else consumes it.

City frame throughout: metres, radians, m/s, seconds, float64. Masks are True where valid. Sizes:
``A`` tracks, ``T`` steps, ``L`` lane segments, ``N`` points of all polylines together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.errors import as_array, encode, require, within
from trajpred.kinematics import causal_heading, causal_velocity
from trajpred.lane_map import LaneMap, Ragged

#: Argoverse 2's ten object types; ``Tracks.object_type`` indexes this tuple.
OBJECT_TYPES = (
    "vehicle",
    "pedestrian",
    "motorcyclist",
    "cyclist",
    "bus",
    "static",
    "background",
    "construction",
    "riderless_bicycle",
    "unknown",
)
#: The ``track_id`` of the recording vehicle.
EGO_ID = "AV"


class TrackCategory(IntEnum):
    """How far a track can be trusted, and whether it is judged (Argoverse 2's numbers)."""

    FRAGMENT = 0
    UNSCORED = 1
    SCORED = 2
    FOCAL = 3


@dataclass(frozen=True)
class Tracks:
    """The states of ``A`` road users over ``T`` steps. Values where ``valid`` is False are 0.

    Attributes:
        track_id: ``[A]`` strings, unique.
        object_type: ``[A]`` int8, index into :data:`OBJECT_TYPES`.
        category: ``[A]`` int8, :class:`TrackCategory`.
        valid: ``[A, T]`` bool.
        position: ``[A, T, 2]`` metres, city frame.
        heading: ``[A, T]`` radians, city frame.
        velocity: ``[A, T, 2]`` m/s, city frame.
    """

    track_id: NDArray[np.str_]
    object_type: NDArray[np.int8]
    category: NDArray[np.int8]
    valid: NDArray[np.bool_]
    position: NDArray[np.float64]
    heading: NDArray[np.float64]
    velocity: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.track_id)

    def __repr__(self) -> str:
        counts = np.bincount(self.object_type, minlength=len(OBJECT_TYPES))
        kinds = ", ".join(
            f"{counts[i]} {OBJECT_TYPES[i]}" for i in np.argsort(-counts, kind="stable") if counts[i]
        )
        return f"Tracks({len(self)} over {self.valid.shape[-1]} steps: {kinds})"

    def index(self, track_id: str) -> int:
        """The row of ``track_id``. Raises: KeyError."""
        rows = np.flatnonzero(self.track_id == track_id)
        if not len(rows):
            raise KeyError(f"no track {track_id!r} in this scenario")
        return int(rows[0])

    def last_seen(self, num_observed: int) -> NDArray[np.int64]:
        """``[A]``: of the first ``num_observed`` steps the last that is valid, -1 where none is."""
        seen = self.valid[:, :num_observed]
        return np.where(seen.any(axis=1), num_observed - 1 - seen[:, ::-1].argmax(axis=1), -1)

    def validate(self) -> None:
        """Raise :class:`DataError` naming the first field whose shape or values cannot be right."""
        A, T = self.valid.shape if self.valid.ndim == 2 else (-1, -1)
        require(A > 0 and T > 0, "valid", f"must be [tracks, steps] and not empty, is {self.valid.shape}")
        shapes = {"track_id": (A,), "object_type": (A,), "category": (A,), "position": (A, T, 2)}
        shapes |= {"heading": (A, T), "velocity": (A, T, 2)}
        for name, shape in shapes.items():
            found = getattr(self, name).shape
            require(found == shape, name, f"has shape {found} where {shape} is expected")
        for name in ("position", "heading", "velocity"):
            values = getattr(self, name)[self.valid]
            require(bool(np.isfinite(values).all()), name, "has a valid state that is not finite")
        require(within(self.object_type, len(OBJECT_TYPES)), "object_type", "is no index of OBJECT_TYPES")
        require(within(self.category, len(TrackCategory)), "category", "must be 0 to 3")
        require(len(np.unique(self.track_id)) == A, "track_id", "holds the same track twice")
        require(bool(self.valid.any(axis=1).all()), "valid", "has a track without any valid step")


@dataclass(frozen=True)
class Scenario:
    """One recording window: tracks, map, and what is to be predicted.

    Attributes:
        scenario_id: unique within a split.
        city: name of the city whose frame the coordinates are in.
        timestamps_ns: ``[T]`` int64 nanoseconds.
        num_observed: the first ``num_observed`` steps are input, the others are the future.
        focal_id: the track to predict.
        tracks: states of the road users; steps after ``num_observed`` may be invalid throughout (test split).
        map: lane segments, crossings, drivable areas; may be empty.
    """

    scenario_id: str
    city: str
    timestamps_ns: NDArray[np.int64]
    num_observed: int
    focal_id: str
    tracks: Tracks
    map: LaneMap

    def __repr__(self) -> str:
        tracks, lanes, now = len(self.tracks), len(self.map), self.num_observed
        seconds = f"{now * self.step_s:.1f} s observed + {(self.num_steps - now) * self.step_s:.1f} s"
        focal = self.tracks.object_type[self.tracks.track_id == self.focal_id]
        kind = " ".join(OBJECT_TYPES[i] for i in focal)
        return (
            f"Scenario({self.scenario_id}, {self.city or 'no city'}: {seconds}, {tracks} tracks, "
            f"focal {kind} {self.focal_id}, {lanes} lane segments)"
        )

    def _repr_png_(self) -> bytes:
        """Render the scenario as a notebook shows it, with :func:`trajpred.viz.draw_scene`."""
        # Through the package's lazy names: records need no matplotlib and import nothing above them.
        from trajpred import draw_scene

        png = BytesIO()
        draw_scene(self).savefig(png, format="png", dpi=100)
        return png.getvalue()

    @property
    def num_steps(self) -> int:
        """T: observed and future steps together."""
        return len(self.timestamps_ns)

    @property
    def step_s(self) -> float:
        """Seconds between steps, see :func:`mean_step_s`."""
        return float(mean_step_s(self.timestamps_ns, self.num_observed))

    @property
    def focal(self) -> int:
        """Row of the focal track."""
        return self.tracks.index(self.focal_id)

    @property
    def last_seen(self) -> NDArray[np.int64]:
        """``[A]`` last observed step of each track, -1 for tracks that appear only later."""
        return self.tracks.last_seen(self.num_observed)

    @property
    def has_future(self) -> bool:
        """Whether the focal track has any labelled future step."""
        return bool(self.tracks.valid[self.focal, self.num_observed :].any())

    def validate(self) -> Scenario:
        """Check shapes, ranges and finiteness; returns itself. Raises: :class:`DataError`."""
        self.tracks.validate()
        self.map.validate()
        T = self.tracks.valid.shape[1]
        require(self.num_steps == T, "timestamps_ns", f"has {self.num_steps} steps, the tracks have {T}")
        require(bool((np.diff(self.timestamps_ns) > 0).all()), "timestamps_ns", "must increase")
        require(0 < self.num_observed <= T, "num_observed", f"must be 1 to {T}, is {self.num_observed}")
        known = bool((self.tracks.track_id == self.focal_id).any())
        require(known, "focal_id", f"names no track of this scenario: {self.focal_id!r}")
        seen = bool(self.tracks.valid[self.focal, : self.num_observed].any())
        require(seen, "focal_id", f"focal track {self.focal_id!r} has no observed state")
        return self

    @classmethod
    def from_arrays(
        cls,
        position: ArrayLike,
        *,
        num_observed: int,
        step_s: float = 0.1,
        valid: ArrayLike | None = None,
        heading: ArrayLike | None = None,
        velocity: ArrayLike | None = None,
        object_type: Sequence[str] | str = "vehicle",
        track_id: Sequence[str] | None = None,
        focal: int = 0,
        category: ArrayLike | None = None,
        map: LaneMap | Sequence[ArrayLike] | None = None,
        scenario_id: str = "scenario",
        city: str = "local",
    ) -> Scenario:
        """A scenario from plain arrays: the door for people's own data.

        Args:
            position: ``[A, T, 2]`` metres in any fixed frame; NaN marks a missing step.
            num_observed: how many of the T steps are input; the rest is the future, if there is one.
            step_s: seconds between steps.
            valid: ``[A, T]``; by default True where the position is not NaN.
            heading: ``[A, T]`` radians; by default the direction of travel, causally.
            velocity: ``[A, T, 2]`` m/s; by default a causal line fit to the positions.
            object_type: one of :data:`OBJECT_TYPES` for all, or ``A`` of them.
            track_id: A unique names; ``"0"`` … by default.
            focal: row of the track to predict.
            category: ``[A]`` :class:`TrackCategory`; by default the focal one is FOCAL, the others SCORED.
            map: a :class:`LaneMap`, a list of centrelines ``[points, 2]``, or None for no map.
            scenario_id, city: names.

        Raises:
            DataError: an array has the wrong shape, an unknown type, or a valid state that is not finite.

        Example:
            >>> import numpy as np
            >>> steps = np.arange(110) * 0.1
            >>> car = np.stack((10 * steps, 0 * steps), -1)
            >>> scenario = Scenario.from_arrays(car[None], num_observed=50, map=[[[-50, 0], [200, 0]]])
            >>> scenario.tracks.velocity[0, 49].round(3).tolist(), len(scenario.map)
            ([10.0, 0.0], 1)
        """
        xy = as_array(position, np.float64, "position")
        require(xy.ndim == 3 and xy.shape[2] == 2, "position", f"must be [A, T, 2], is {xy.shape}")
        A, T = xy.shape[:2]
        mask = as_array(~np.isnan(xy).any(-1) if valid is None else valid, np.bool_, "valid")
        require(mask.shape == (A, T), "valid", f"must be [{A}, {T}], is {mask.shape}")
        require(0 <= focal < A, "focal", f"must be a row of the {A} tracks, is {focal}")
        require(bool(np.isfinite(xy[mask]).all()), "position", "has a valid state that is not finite")
        fitted = causal_velocity(xy, mask, step_s) if velocity is None else velocity
        speed = as_array(fitted, np.float64, "velocity")
        require(speed.shape == xy.shape, "velocity", f"must be {xy.shape}, is {speed.shape}")
        angle = as_array(causal_heading(speed, mask) if heading is None else heading, np.float64, "heading")
        require(angle.shape == mask.shape, "heading", f"must be {mask.shape}, is {angle.shape}")
        default = np.where(np.arange(A) == focal, TrackCategory.FOCAL, TrackCategory.SCORED)
        rank = as_array(default if category is None else category, np.int64, "category")
        require(within(rank, len(TrackCategory)), "category", "must be 0 to 3")
        names = [str(i) for i in range(A)] if track_id is None else [str(name) for name in track_id]
        require(len(names) == A, "track_id", f"must name {A} tracks, names {len(names)}")
        types = [object_type] * A if isinstance(object_type, str) else list(object_type)
        tracks = Tracks(
            track_id=np.array(names),
            object_type=encode(types, OBJECT_TYPES, "object_type"),
            category=rank.astype(np.int8),
            valid=mask,
            position=np.where(mask[..., None], xy, 0.0),
            heading=np.where(mask, angle, 0.0),
            velocity=np.where(mask[..., None], speed, 0.0),
        )
        lanes = map if isinstance(map, LaneMap) else LaneMap.from_centerlines([] if map is None else map)
        stamps = np.round(np.arange(T) * step_s * 1e9).astype(np.int64)
        return cls(scenario_id, city, stamps, num_observed, names[focal], tracks, lanes).validate()


def mean_step_s(timestamps_ns: NDArray[np.int64], num_observed: int) -> NDArray[np.float64]:
    """Seconds between steps ``[...]`` of windows ``[..., T]``; 0.1 where there is one step only.

    Mean over the observed steps, for the future is not known on the road.
    """
    stamps = timestamps_ns[..., : max(num_observed, 2)]
    if stamps.shape[-1] < 2:
        return np.full(stamps.shape[:-1], 0.1)
    mean: NDArray[np.float64] = (stamps[..., -1] - stamps[..., 0]) / 1e9 / (stamps.shape[-1] - 1)
    return mean


def equal(a: Scenario, b: Scenario, tolerance: float = 0.0) -> bool:
    """Whether two scenarios hold the same values, floats to within ``tolerance``."""
    return _same(a, b, tolerance)


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, (Scenario, Tracks, LaneMap, Ragged)):
        return all(_same(getattr(a, f.name), getattr(b, f.name), tolerance) for f in fields(a))
    if isinstance(a, np.ndarray) and a.dtype.kind == "f":
        return a.shape == b.shape and bool(np.allclose(a, b, rtol=0, atol=tolerance))
    return bool(np.array_equal(a, b))
