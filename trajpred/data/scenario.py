"""The record of one recording window: :class:`Scenario`.

City frame, metres, radians, m/s, seconds, float64. Masks: True = valid. Sizes: ``A`` tracks, ``T`` steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.checks import as_array, as_names, as_number, as_whole_number, encode, require_names
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import (
    STEP_S,
    causal_heading,
    causal_velocity,
    compared_velocities,
    disagreement,
    given_heading,
    mean_step_s,
)
from trajpred.data.time import require_step_s, require_times, with_lost_frames
from trajpred.data.tracks import OBJECT_TYPES, TrackCategory, Tracks
from trajpred.errors import quoted, require, require_finite


@dataclass(frozen=True)
class Scenario:
    """One recording window: tracks, map, and the track to predict.

    Steps are regular. Where timestamps show lost frames, the constructor adds steps at which no track is
    valid.

    Attributes:
        scenario_id: unique within a split; see :func:`~trajpred.data.checks.require_names`.
        city: name of the city whose frame the coordinates are in, or "".
        timestamps_ns: ``[T]`` int64 nanoseconds.
        num_observed: number of steps that are input; the steps after them are the future.
        focal_id: the track to predict.
        tracks: states of the road users; a test split may have no valid future step.
        map: lane segments, crossings, drivable areas; may be empty.
        continued: number of final steps that were not recorded but continued by a model
            (:mod:`trajpred.predictors.continuation`): labels for training, never evaluated.
    """

    scenario_id: str
    city: str
    timestamps_ns: NDArray[np.int64]
    num_observed: int
    focal_id: str
    tracks: Tracks
    map: LaneMap
    continued: int = 0

    def __post_init__(self) -> None:
        regular = with_lost_frames(self.timestamps_ns, self.num_observed)
        shape = (len(self.tracks), len(self.timestamps_ns))
        arrays = (self.tracks.valid, self.tracks.heading, self.tracks.position, self.tracks.velocity)
        fits = all(states.shape[:2] == shape for states in arrays)
        if regular is None or not fits:
            return
        object.__setattr__(self, "timestamps_ns", regular.timestamps_ns)
        object.__setattr__(self, "num_observed", regular.num_observed)
        object.__setattr__(self, "tracks", self.tracks.at(regular.frame))

    def __repr__(self) -> str:
        future = self.num_steps - self.continued - self.num_observed
        seconds = f"{self.num_observed * self.step_s:.1f} s observed + {future * self.step_s:.1f} s"
        if self.continued:
            seconds += f" + {self.continued * self.step_s:.1f} s continued"
        focal = self.tracks.object_type[self.tracks.track_id == self.focal_id]
        focal_type = " ".join(OBJECT_TYPES[i] for i in focal)
        return (
            f"Scenario({self.scenario_id}, {self.city or 'no city'}: {seconds}, {len(self.tracks)} tracks, "
            f"focal {focal_type} {self.focal_id}, {len(self.map)} lane segments)"
        )

    @property
    def num_steps(self) -> int:
        """Number of observed and future steps together (T)."""
        return len(self.timestamps_ns)

    @property
    def num_future(self) -> int:
        """Number of steps after the observed ones."""
        return self.num_steps - self.num_observed

    @property
    def step_s(self) -> float:
        """Mean seconds between observed steps, see :func:`~trajpred.data.motion.mean_step_s`."""
        return float(mean_step_s(self.timestamps_ns, self.num_observed))

    @property
    def focal(self) -> int:
        """Row of the focal track."""
        return self.tracks.index(self.focal_id)

    @property
    def last_seen(self) -> NDArray[np.int64]:
        """Last observed step ``[A]`` of each track, -1 for tracks that appear only later."""
        return self.tracks.last_seen(self.num_observed)

    @property
    def has_future(self) -> bool:
        """Whether the focal track has any labelled future step."""
        return bool(self.tracks.valid[self.focal, self.num_observed :].any())

    @property
    def lane_distance(self) -> float:
        """Metres from a road user to the nearest lane (:meth:`LaneMap.distance`); 0 if models read a lane."""
        step = self.last_seen
        seen = np.flatnonzero(step >= 0)
        return self.map.distance(self.tracks.position[seen, step[seen]])

    @property
    def digest(self) -> int:
        """CRC-32 of id, last observed time, and the tracks visible then with their positions, to 1 mm.

        It does not depend on the time step and the lengths of history and future.
        """
        now = self.num_observed - 1
        visible = np.flatnonzero(self.tracks.valid[:, now])
        mm = np.round(self.tracks.position[visible, now] * 1000).astype(np.int64)
        names = "\n".join([self.scenario_id, *self.tracks.track_id[visible].tolist()])
        value = crc32(names.encode(), int(self.timestamps_ns[now]) & 0xFFFFFFFF)
        return crc32(mm.astype("<i8").tobytes(), value)

    def window(self, observed: int | None = None, future: int | None = None, later: int = 0) -> Scenario:
        """Return a window of ``observed`` past and ``future`` future steps, by default as long as this one.

        Steps that were never recorded are unknown. Tracks keep their rows, as :meth:`Tracks.window` says.

        Args:
            observed: number of steps that are input.
            future: number of steps after them.
            later: steps by which the last observed step moves; negative numbers move it back.
        """
        if observed is None:
            observed = self.num_observed
        if future is None:
            future = self.num_future
        first = self.num_observed + later - observed
        step = first + np.arange(observed + future)
        recorded = step.clip(0, self.num_steps - 1)
        beyond_ns = (step - recorded) * round(self.step_s * 1e9)
        continued = int((step >= self.num_steps - self.continued).sum()) if self.continued else 0
        return replace(
            self,
            timestamps_ns=self.timestamps_ns[recorded] + beyond_ns,
            num_observed=observed,
            continued=continued,
            tracks=self.tracks.window(first, observed + future),
        )

    def without_future(self) -> Scenario:
        """Return the scenario with the steps of its future, at which nothing is known."""
        step = np.arange(self.num_steps)
        source = np.where(step < self.num_observed, step, -1)
        return replace(self, continued=0, tracks=self.tracks.at(source))

    def without_continuation(self) -> Scenario:
        """Return the scenario with only its recorded steps."""
        if self.continued == 0:
            return self
        return self.window(future=self.num_future - self.continued)

    def validate(self) -> Scenario:
        """Check shapes, ranges and finiteness; return self. Raises: DataError naming the field."""
        require_names([self.scenario_id], "scenario_id")
        if self.city != "":
            require_names([self.city], "city")
        require_names(self.tracks.track_id.tolist(), "track_id")
        self.tracks.validate()
        self.map.validate()
        T = self.tracks.valid.shape[1]
        require(self.num_steps == T, "timestamps_ns", f"has {self.num_steps} steps, the tracks have {T}")
        require(0 < self.num_observed <= T, "num_observed", f"must be 1 to {T}, is {self.num_observed}")
        require_times(self.timestamps_ns, self.num_observed)
        most = T - self.num_observed
        require(0 <= self.continued <= most, "continued", f"must be 0 to {most}, is {self.continued}")
        has_focal = bool((self.tracks.track_id == self.focal_id).any())
        require(has_focal, "focal_id", f"is not a track of this scenario: {quoted(self.focal_id)}")
        observed = bool(self.tracks.valid[self.focal, : self.num_observed].any())
        require(observed, "focal_id", f"focal track {self.focal_id!r} has no observed state")
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
        size: ArrayLike | None = None,
        object_type: Sequence[str] | str = "vehicle",
        track_id: Sequence[str] | None = None,
        focal: int = 0,
        category: ArrayLike | None = None,
        map: LaneMap | Sequence[ArrayLike] | None = None,
        scenario_id: str = "scenario",
        city: str = "local",
    ) -> Scenario:
        """Build a scenario from plain arrays, for your own data.

        Args:
            position: ``[A, T, 2]`` metres in any fixed frame; NaN or a NumPy mask marks a missing step.
            num_observed: number of steps that are input; the rest is the future, if any.
            step_s: seconds between steps. A lost frame is a step of NaN.
            valid: ``[A, T]`` True and False or 1 and 0; by default True where the position is not NaN.
            heading: ``[A, T]`` radians; by default :func:`~trajpred.data.motion.causal_heading`.
            velocity: ``[A, T, 2]`` m/s along the axes of the positions (not of the road user); by default
                :func:`~trajpred.data.motion.causal_velocity`.
            size: ``[A, 2]`` length and width in metres, NaN or 0 where unknown; all unknown by default.
            object_type: one of :data:`OBJECT_TYPES` for all tracks, or one for each.
            track_id: ``[A]`` unique names; ``"0"`` … by default.
            focal: row of the track to predict.
            category: ``[A]`` :class:`TrackCategory`, by default SCORED; the focal track's is FOCAL.
            map: a :class:`LaneMap`, a list of centrelines ``[points, 2]``, or None for no map.
            scenario_id: name of the scenario.
            city: name of the frame of the coordinates.

        Raises: DataError naming the argument with a wrong shape, an unknown type or a non-finite state. Warns
            about velocities that contradict the positions.

        Example:
            >>> steps = np.arange(110) * 0.1
            >>> car = np.stack((10 * steps, 0 * steps), -1)
            >>> scenario = Scenario.from_arrays(car[None], num_observed=50, map=[[[-50, 0], [200, 0]]])
            >>> scenario.tracks.velocity[0, 49].round(3).tolist(), len(scenario.map)
            ([10.0, 0.0], 5)
        """
        num_observed = as_whole_number(num_observed, "num_observed")
        step_s = as_number(step_s, "step_s")
        focal = as_whole_number(focal, "focal")
        xy = as_array(position, np.float64, "position")
        require(xy.ndim == 3 and xy.shape[2] == 2, "position", f"must be [A, T, 2], has shape {xy.shape}")
        A, T = xy.shape[:2]
        require_step_s(step_s)
        if valid is None:
            valid = ~np.isnan(xy).any(-1)
        mask = as_array(valid, np.bool_, "valid", (A, T))
        require(0 <= focal < A, "focal", f"must be a row of the {A} tracks, is {focal}")
        require_finite(xy, "position", mask)
        if velocity is None:
            velocity = causal_velocity(xy, mask, step_s)
        speed = as_array(velocity, np.float64, "velocity", (A, T, 2))
        problem = disagreement(*compared_velocities(xy, speed, mask, step_s))
        if problem:
            warnings.warn(f"velocity: {problem}", stacklevel=2)
        if heading is None:
            angle = causal_heading(speed, xy, mask)
        else:
            angle = given_heading(as_array(heading, np.float64, "heading", (A, T)))
        if category is None:
            category = np.full(A, TrackCategory.SCORED)
        rank = as_array(category, np.int8, "category", (A,))
        rank[focal] = TrackCategory.FOCAL
        names = as_names(range(A) if track_id is None else track_id, "track_id", A)
        box = as_array(np.full((A, 2), np.nan) if size is None else size, np.float64, "size", (A, 2))
        types = object_type
        if isinstance(object_type, (str, bytes)):
            types = [object_type] * A
        tracks = Tracks(
            track_id=names,
            object_type=encode(as_names(types, "object_type", A).tolist(), OBJECT_TYPES, "object_type"),
            category=rank,
            valid=mask,
            position=np.where(mask[..., None], xy, 0.0),
            heading=np.where(mask, angle, 0.0),
            velocity=np.where(mask[..., None], speed, 0.0),
            size=np.where(box == 0, np.nan, box),
        )
        if map is None:
            lanes = LaneMap()
        elif isinstance(map, LaneMap):
            lanes = map
        else:
            lanes = LaneMap.from_centerlines(map)
        if T == num_observed == 1 and step_s != STEP_S:
            # One stamp does not define the step length: put a step without states before it.
            T = num_observed = 2
            tracks = tracks.window(-1, T)
        stamps = np.round(np.arange(T) * step_s * 1e9).astype(np.int64)
        return cls(scenario_id, city, stamps, num_observed, str(names[focal]), tracks, lanes).validate()


def of_other_scenes(digests: Mapping[str, int], others: Mapping[str, int]) -> str:
    """Name the scenarios whose :attr:`Scenario.digest` differs; "" without any.

    Args:
        digests: digests by id.
        others: other digests by id; ids in only one of both are not compared.
    """
    differing = [name for name, digest in others.items() if digests.get(name, digest) != digest]
    if len(differing) <= 1:
        return "".join(f"{name} has the same name" for name in differing)
    return f"{differing[0]} and {len(differing) - 1} more have the same names"
