"""The recent past of every track, and the clock of its updates. NumPy only."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.data.checks import as_number, row_of
from trajpred.data.geometry import direction, norm
from trajpred.data.motion import (
    MOVED_M,
    STANDING_SPEED,
    contradicting,
    disagreement,
    fit_steps,
    given_heading,
    latest_velocity,
)
from trajpred.data.resample import states_at, whole_steps
from trajpred.data.time import SAME_TIME, SHORTEST_STEP_S, regular_step_s
from trajpred.data.tracks import OBJECT_TYPES, TrackCategory, Tracks, usual_types
from trajpred.errors import require

#: Fraction bits of the types that may be too coarse for times.
_DIGITS = {"float32": 23, "float16": 10, "bfloat16": 7}
#: Share of a step that a time must resolve: a coarser time makes velocities jitter.
_RESOLVED = 0.1


def seconds_of(timestamp: Any, step_s: float) -> float:
    """Return a time in seconds, from a Python, NumPy or torch number.

    Args:
        step_s: seconds between the model's steps.

    Raises: DataError if it is not a finite number, or its type cannot resolve steps: Unix time as float32
        changes only every 128 s.
    """
    field = "timestamp_s"
    seconds = as_number(timestamp, field)
    require(math.isfinite(seconds), field, f"is not finite, is {seconds}")
    kind = str(getattr(timestamp, "dtype", "")).removeprefix("torch.")
    if kind in _DIGITS and seconds != 0:
        _, exponent = math.frexp(seconds)
        resolution = 2.0 ** (exponent - 1 - _DIGITS[kind])
        advice = f"{seconds:.0f} as {kind} resolves only {resolution:g} s, give float64"
        require(resolution <= _RESOLVED * step_s, field, advice)
    return seconds


#: Updates less than this many seconds apart count as one.
SAME_UPDATE_S = (1 - SAME_TIME) * SHORTEST_STEP_S
#: Least seconds kept, so that even for the shortest history, states once a second are interpolated.
SHORTEST_MEMORY_S = 2.0
#: Moving states whose given velocities are compared with the positions together.
COMPARED = 500
#: The arrays of :class:`HistoryTable` with a row per track; in ``_states`` it is the second axis.
_COLUMNS = ("track_id", "_object_type", "_first_position", "_has_travelled", "_valid")

_NOBODY = Tracks(
    track_id=np.zeros(0, np.str_),
    object_type=np.zeros(0, np.int8),
    category=np.zeros(0, np.int8),
    valid=np.zeros((0, 1), np.bool_),
    position=np.zeros((0, 1, 2)),
    heading=np.zeros((0, 1)),
    velocity=np.zeros((0, 1, 2)),
)


class States(NamedTuple):
    """Validated detections of ``N`` tracks at one time, ids unique.

    Attributes:
        track_id: ``[N]``.
        position: ``[N, 2]`` metres.
        heading: ``[N]`` radians, NaN where unknown.
        velocity: ``[N, 2]`` m/s, NaN where unknown.
        object_type: ``[N]`` int8.
    """

    track_id: NDArray[np.str_]
    position: NDArray[np.float64]
    heading: NDArray[np.float64]
    velocity: NDArray[np.float64]
    object_type: NDArray[np.int8]


class HistoryTable:
    """The states of the tracks detected within a model's history.

    A missing velocity or heading is derived from the states so far when its state is added, as in
    :func:`~trajpred.data.motion.causal_velocity` and :func:`~trajpred.data.motion.causal_heading`.

    Args:
        length: number of steps of the model's history.
        step_s: seconds between these steps.
        max_tracks: maximum number of tracks; those not seen for longest are removed first.

    Attributes:
        track_id: ``[A]`` strings, oldest track first.
        memory_s: seconds after its last detection at which a track is removed.
        velocity_problem: how given velocities contradict the positions, "" as long as they do not.
    """

    def __init__(self, length: int, step_s: float, max_tracks: int) -> None:
        self.length = length
        self.step_s = step_s
        self.max_tracks = max_tracks
        self.memory_s = max(length * step_s, SHORTEST_MEMORY_S)
        self.velocity_problem = ""
        #: Given and estimated velocities of moving states ``[2, N, 2]``, to be compared.
        self._compared = np.zeros((2, 0, 2))
        self.clear()

    def __len__(self) -> int:
        return len(self.track_id)

    def clear(self) -> None:
        """Remove all tracks."""
        #: ``[T]`` seconds of the updates.
        self._time_s = np.zeros(0)
        self.track_id = np.zeros(0, np.str_)
        #: ``[A, T]`` as detected.
        self._object_type = np.zeros((0, 0), np.int8)
        #: ``[A, 2]`` where each track was first seen.
        self._first_position = np.zeros((0, 2))
        #: ``[A]`` whether each track has travelled since.
        self._has_travelled = np.zeros(0, np.bool_)
        self._valid = np.zeros((0, 0), np.bool_)
        #: ``[5, A, T]`` position, velocity and heading, NaN where the heading is unknown.
        self._states = np.zeros((5, 0, 0))

    def advance(self, now_s: float) -> None:
        """Remove tracks last seen :attr:`memory_s` or more before ``now_s``, and updates no longer needed."""
        oldest_s = now_s - self.memory_s
        self._keep(np.flatnonzero(self.last_seen_s() > oldest_s))
        # Keep the last update up to oldest_s: states are interpolated between it and the next.
        first = int(np.searchsorted(self._time_s, oldest_s, side="right")) - 1
        if first > 0:
            self._time_s = self._time_s[first:]
            self._valid = self._valid[:, first:]
            self._object_type = self._object_type[:, first:]
            self._states = self._states[..., first:]

    def _keep(self, rows: NDArray[np.int64]) -> None:
        if len(rows) < len(self):
            for name in _COLUMNS:
                setattr(self, name, getattr(self, name)[rows])
            self._states = self._states[:, rows]

    def last_seen_s(self) -> NDArray[np.float64]:
        """Return ``[A]`` the time of the latest detection of each track."""
        return self._time_s[_latest(self._valid)] if len(self) else np.zeros(0)

    def add(self, time_s: float, states: States, *, max_speed: float, max_jump_m: float) -> list[str]:
        """Add up to ``max_tracks`` detections at ``time_s``, which must not be before earlier ones.

        Updates within :data:`SAME_UPDATE_S` of each other count as one, at the time of the first; detections
        replace earlier ones of the same track and update. A track that moved by more than ``max_jump_m`` plus
        the distance at ``max_speed`` (m/s) is another object with a reused id: its history is dropped, and
        its id returned.
        """
        if not len(states.track_id):
            return []
        if not len(self._time_s) or time_s - self._time_s[-1] >= SAME_UPDATE_S:
            self._append_column(time_s)
        rows = self._rows(states.track_id)
        self._valid[rows, -1] = False
        valid = self._valid[rows]
        seen_before = valid.any(axis=1)
        before = _latest(valid)
        x, y, _, _, last_heading = self._states[:, rows, before]

        distance = norm(states.position - np.stack((x, y), -1))
        allowed = max_jump_m + max_speed * (self._time_s[-1] - self._time_s[before])
        jumped = seen_before & (distance > allowed)
        self._valid[rows[jumped]] = False
        is_new = ~seen_before | jumped
        self._first_position[rows[is_new]] = states.position[is_new]
        self._has_travelled[rows[is_new]] = False

        held = np.where(self._has_travelled[rows], last_heading, np.nan)
        self._valid[rows, -1] = True
        self._object_type[rows, -1] = states.object_type
        self._states[:2, rows, -1] = states.position.T
        velocity = self._velocities(rows, states.velocity, max_speed)
        self._states[2:4, rows, -1] = velocity.T
        self._states[4, rows, -1] = self._headings(rows, states.heading, velocity, held)
        if len(self) > self.max_tracks:
            latest_first = np.argsort(-_latest(self._valid), kind="stable")
            self._keep(np.sort(latest_first[: self.max_tracks]))
        return states.track_id[jumped].tolist()

    def _velocities(
        self, rows: NDArray[np.int64], given: NDArray[np.float64], max_speed: float
    ) -> NDArray[np.float64]:
        """Return the velocities ``[N, 2]`` of the latest states of ``rows``; missing ones are derived.

        Derived velocities above ``max_speed`` (m/s) come from noise and become zero.
        """
        step_s = self._update_step_s()
        valid = self._valid[rows]
        position = np.moveaxis(self._states[:2, rows], 0, -1)
        fitted = latest_velocity(position, valid, self._time_s, step_s)
        is_fitted = valid.sum(axis=1) >= fit_steps(step_s)
        self._compare(given[is_fitted], fitted[is_fitted])
        derived = np.where(norm(fitted)[:, None] <= max_speed, fitted, 0.0)
        return np.where(np.isnan(given[:, :1]), derived, given)

    def _compare(self, given: NDArray[np.float64], fitted: NDArray[np.float64]) -> None:
        """Compare given velocities ``[N, 2]``, NaN where there are none, with the fitted ones."""
        _, is_moving = contradicting(given, fitted)
        pairs = np.stack((given, fitted))[:, is_moving]
        self._compared = np.concatenate((self._compared, pairs), axis=1)
        if self._compared.shape[1] >= COMPARED:
            self.velocity_problem = self.velocity_problem or disagreement(*self._compared)
            self._compared = self._compared[:, :0]

    def _headings(
        self,
        rows: NDArray[np.int64],
        given: NDArray[np.float64],
        velocity: NDArray[np.float64],
        held: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the headings ``[N]`` of the latest states of ``rows``; missing ones are derived.

        Args:
            rows: ``[N]`` tracks.
            given: ``[N]``, NaN where missing.
            velocity: ``[N, 2]``.
            held: ``[N]`` the previous state's heading, NaN unless the track has travelled by then.
        """
        away = self._states[:2, rows, -1].T - self._first_position[rows]
        moved = norm(away) > MOVED_M
        travels = moved & (norm(velocity) > STANDING_SPEED)
        self._has_travelled[rows[travels]] = True
        creeps = moved & ~self._has_travelled[rows]
        # Along the velocity while a track travels, away from the first position until then, otherwise as
        # before.
        derived = np.where(travels, direction(velocity), held)
        derived = np.where(creeps, direction(away), derived)
        return np.where(np.isnan(given), given_heading(derived), given)

    def _stamps_ns(self, now_s: float) -> NDArray[np.int64]:
        """Return ``[T]`` the times of the updates, in nanoseconds since ``now_s``."""
        return np.round((self._time_s - now_s) * 1e9).astype(np.int64)

    def _update_step_s(self) -> float:
        """Return the usual seconds between updates."""
        return regular_step_s(self._stamps_ns(self._time_s[-1]))

    def resampled(self, now_s: float, within_s: float) -> Tracks:
        """Return the tracks seen in the last ``within_s`` seconds, at the steps of the model until ``now_s``.

        They are resampled as in :func:`~trajpred.data.resample.resample`, to at most ``length`` steps and at
        least one. A track may have no valid step. Its type is the most frequent known one of its states.
        """
        rows = np.flatnonzero(self.last_seen_s() >= now_s - within_s)
        if not len(rows):
            return _NOBODY
        time: NDArray[np.float64] = self._stamps_ns(now_s) / 1e9
        before = min(whole_steps(-time[0], self.step_s), self.length - 1)
        columns = states_at(
            self._states.take(rows, axis=1),
            self._valid[rows],
            time,
            np.arange(-before, 1) * np.float64(self.step_s),
            recorded_s=self._update_step_s(),
            step_s=self.step_s,
        )
        return Tracks(
            track_id=self.track_id[rows],
            object_type=self._usual_types(rows),
            category=np.full(len(rows), TrackCategory.UNSCORED, np.int8),
            **columns,
        )

    def _usual_types(self, rows: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return the types of the tracks in ``rows``."""
        track, update = np.nonzero(self._valid[rows])
        detected = self._object_type[rows][track, update]
        kinds = len(OBJECT_TYPES)
        count = np.bincount(track * kinds + detected, minlength=len(rows) * kinds)
        return usual_types(count.reshape(len(rows), kinds))

    def _append_column(self, time_s: float) -> None:
        """Append a column without detections."""
        A = len(self)
        self._time_s = np.append(self._time_s, time_s)
        self._valid = np.concatenate((self._valid, np.zeros((A, 1), np.bool_)), axis=1)
        self._object_type = np.concatenate((self._object_type, np.zeros((A, 1), np.int8)), axis=1)
        self._states = np.concatenate((self._states, np.zeros((5, A, 1))), axis=2)

    def _rows(self, track_id: NDArray[np.str_]) -> NDArray[np.int64]:
        """Return the row of each track, after appending rows for new ones."""
        names = track_id.tolist()
        row = row_of(self.track_id.tolist())
        new: list[str] = []
        for name in names:
            if name not in row:
                row[name] = len(self) + len(new)
                new.append(name)
        if new:
            self._append(np.array(new))
        return np.array([row[name] for name in names], np.int64)

    def _append(self, track_id: NDArray[np.str_]) -> None:
        """Append a row without detections for each track."""
        count = len(track_id)
        for name in _COLUMNS:
            values = getattr(self, name)
            rows = np.zeros((count, *values.shape[1:]), values.dtype)
            setattr(self, name, np.concatenate((values, track_id if name == "track_id" else rows)))
        self._states = np.concatenate((self._states, np.zeros((5, count, len(self._time_s)))), axis=1)


def _latest(valid: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the last valid column ``[N]`` of ``[N, T]``; the last column where there is none."""
    return valid.shape[1] - 1 - valid[:, ::-1].argmax(axis=1)
