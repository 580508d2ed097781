"""The recent past of every track, and the clock of its updates. NumPy only."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.data.checks import as_number, row_of
from trajpred.data.geometry import norm
from trajpred.data.motion import causal_heading, causal_velocity
from trajpred.data.tracks import TrackCategory, Tracks
from trajpred.errors import require

#: Binary digits of the fraction of the types that may be too coarse for times.
_DIGITS = {"float32": 23, "float16": 10, "bfloat16": 7}
#: Share of a step that a time must resolve: more would be jitter of the velocities.
_RESOLVED = 0.1


def seconds_of(timestamp: Any, step_s: float) -> float:
    """Return a time in seconds, from a number of Python, NumPy or torch.

    Args:
        step_s: seconds between the steps of the model.

    Raises: DataError if it is no finite number, or of a type that cannot resolve steps at this size: Unix
        time as float32 changes only every 128 s.
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


#: Share of its offset from an update by which the time grid moves towards that update.
FOLLOW = 0.1
#: Largest difference of an interval between updates from whole steps (as a share of them) that is a clock's
#: rate and not jitter.
REGULAR = 1e-4
#: The columns of :class:`HistoryTable`.
_COLUMNS = ("track_id", "_object_type", "_valid", "_position", "_motion")


class States(NamedTuple):
    """Validated detections of ``N`` tracks at one time, ids unique.

    Attributes:
        track_id: ``[N]``.
        position: ``[N, 2]`` metres.
        motion: ``[N, 3]`` heading and velocity, NaN where unknown.
        object_type: ``[N]`` int8.
    """

    track_id: NDArray[np.str_]
    position: NDArray[np.float64]
    motion: NDArray[np.float64]
    object_type: NDArray[np.int8]


class HistoryTable:
    """The last ``length`` steps of the tracks detected in them; the last column is the current step.

    Args:
        length: number of steps.
        step_s: seconds between steps.
        max_tracks: number of tracks kept; of more, those not seen for longest are removed.

    Attributes:
        track_id: ``[A]`` strings, oldest track first.
    """

    def __init__(self, length: int, step_s: float, max_tracks: int) -> None:
        self.length = length
        self.step_s = step_s
        self.max_tracks = max_tracks
        self.clear()

    def __len__(self) -> int:
        return len(self.track_id)

    def clear(self) -> None:
        """Remove all tracks."""
        T = self.length
        self.track_id = np.zeros(0, np.str_)
        self._object_type = np.zeros(0, np.int8)
        self._valid = np.zeros((0, T), np.bool_)
        self._position = np.zeros((0, T, 2))
        self._motion = np.zeros((0, T, 3))

    def advance(self, steps: int) -> None:
        """Shift the table by ``steps``; tracks without a detection left are removed."""
        if not steps:
            return
        for values in (self._valid, self._position, self._motion):
            values[:, :-steps] = values[:, steps:].copy()
            values[:, -steps:] = 0
        self._keep(np.flatnonzero(self._valid.any(axis=1)))

    def _keep(self, rows: NDArray[np.int64]) -> None:
        if len(rows) < len(self):
            for name in _COLUMNS:
                setattr(self, name, getattr(self, name)[rows])

    def add(self, states: States, *, max_speed: float, max_jump_m: float) -> list[str]:
        """Write up to ``max_tracks`` detections into the current step, over earlier ones of the same track.

        A track that moved by more than ``max_jump_m`` plus the distance at ``max_speed`` (m/s) is another
        object under the same id: its history is dropped, and its id returned.
        """
        rows = self._rows(states.track_id)
        detected = self._valid[rows]
        is_tracked = detected.any(axis=1)
        steps = detected[:, ::-1].argmax(axis=1)
        previous = self._position[rows, self.length - 1 - steps]
        allowed = max_jump_m + max_speed * self.step_s * np.maximum(steps, 1)
        jumped = is_tracked & (norm(states.position - previous) > allowed)
        self._valid[rows[jumped]] = False
        self._valid[rows, -1] = True
        self._position[rows, -1] = states.position
        self._motion[rows, -1] = states.motion
        self._object_type[rows] = states.object_type
        latest_first = np.argsort(self.steps_since_seen(), kind="stable")
        self._keep(np.sort(latest_first[: self.max_tracks]))
        return states.track_id[jumped].tolist()

    def steps_since_seen(self) -> NDArray[np.int64]:
        """Return ``[A]`` steps since the latest detection of each track."""
        return self._valid[:, ::-1].argmax(axis=1)

    def tracks(self) -> Tracks:
        """Return all tracks over ``length`` steps; missing headings and velocities follow from positions."""
        valid = self._valid
        heading = self._motion[..., 0]
        velocity = self._motion[..., 1:]
        if not (np.isfinite(self._motion) | ~valid[..., None]).all():
            derived = causal_velocity(self._position, valid, self.step_s)
            velocity = np.where(np.isfinite(velocity), velocity, derived)
            derived_heading = causal_heading(velocity, self._position, valid)
            heading = np.where(np.isfinite(heading), heading, derived_heading)
        return Tracks(
            track_id=self.track_id,
            object_type=self._object_type,
            category=np.full(len(self), TrackCategory.UNSCORED, np.int8),
            valid=valid,
            position=np.where(valid[..., None], self._position, 0.0),
            heading=np.where(valid, heading, 0.0),
            velocity=np.where(valid[..., None], velocity, 0.0),
        )

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
        """Append a row without detections for each of the tracks."""
        for name in _COLUMNS:
            values = getattr(self, name)
            if name == "track_id":
                rows = track_id
            else:
                rows = np.zeros((len(track_id), *values.shape[1:]), values.dtype)
            setattr(self, name, np.concatenate((values, rows)))


class TimeGrid:
    """Count the model's time steps between updates of a tracker whose clock jitters and starts anywhere.

    The grid slowly follows the updates, so that steady updates end up in the middle of their steps. On a
    fixed grid a tracker whose first update came half a step late would be rounded up or down by chance ever
    after: two updates in one step, none in the next.

    Args:
        step_s: seconds.
    """

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.start(float("nan"))

    def start(self, time_s: float) -> None:
        """Restart with ``time_s`` in the middle of a step."""
        self._start_s = time_s
        self._step = 0
        self._latest_s = time_s
        #: Time (s) and step since which the updates have been regular.
        self._regular = (time_s, 0)

    def advance(self, time_s: float) -> int:
        """Return the number of steps from the previous update to this one, which must not be earlier."""
        exact = (time_s - self._start_s) / self.step_s
        previous = self._step
        self._step = round(exact)
        self._start_s += FOLLOW * (exact - self._step) * self.step_s
        steps = self._step - previous
        passed_s = time_s - self._latest_s
        if abs(passed_s - steps * self.step_s) > REGULAR * steps * self.step_s:
            self._regular = (time_s, self._step)
        self._latest_s = time_s
        return steps

    @property
    def measured_step_s(self) -> float:
        """The mean seconds between steps since the updates have been regular, as recordings measure it.

        A step of 0.1000019 s instead of 0.1 s moves a forecast by 0.1 mm, which may change what is within the
        radius of its end point. Jitter would move it by more than it corrects: with it, ``step_s``.
        """
        since_s, since = self._regular
        steps = self._step - since
        return (self._latest_s - since_s) / steps if steps else self.step_s
