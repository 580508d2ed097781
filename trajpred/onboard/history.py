"""What the tracker has seen of every road user lately: a row for each, a column for each step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import causal_heading, causal_velocity, norm
from trajpred.scenario import TrackCategory, Tracks


class HistoryTable:
    """The last ``length`` steps of all tracks seen in them; the last column is now.

    Args:
        length: steps kept; step_s: seconds between them.

    Attributes:
        track_id: ``[A]`` strings, in the order in which they came.
    """

    def __init__(self, length: int, step_s: float) -> None:
        self.length, self.step_s = length, step_s
        self.clear()

    def __len__(self) -> int:
        return len(self.track_id)

    def clear(self) -> None:
        """Forget everything."""
        T = self.length
        self.track_id = np.zeros(0, np.str_)
        self._kind = np.zeros(0, np.int8)
        self._valid = np.zeros((0, T), np.bool_)
        self._position = np.zeros((0, T, 2))
        self._state = np.zeros((0, T, 3))  # heading, velocity; NaN where the tracker gave none

    def advance(self, steps: int) -> None:
        """Let ``steps`` pass; tracks that nobody has seen in the whole table are forgotten."""
        if not steps:
            return
        for values in (self._valid, self._position, self._state):
            values[:, :-steps] = values[:, steps:].copy()
            values[:, -steps:] = 0
        seen = self._valid.any(axis=1)
        if not seen.all():
            self._keep(np.flatnonzero(seen))

    def add(
        self,
        track_id: NDArray[np.str_],
        position: NDArray[np.float64],
        state: NDArray[np.float64],
        kind: NDArray[np.int8],
        *,
        fastest: float,
        jump_m: float,
    ) -> list[str]:
        """Put detections into the last column; a track detected there before is overwritten.

        Args:
            track_id: ``[N]``, none twice; position: ``[N, 2]``; state: ``[N, 3]``; kind: ``[N]``.
            fastest, jump_m: m/s and metres; who moved farther than both allow is a new track.

        Returns:
            Ids of those whose history was dropped for that.
        """
        rows = self._rows(track_id)
        before, ago = self._last(rows)
        far = norm(position - before) > jump_m + fastest * self.step_s * np.maximum(ago, 1)
        jumped = far & (ago >= 0)
        self._valid[rows[jumped]] = False
        self._valid[rows, -1], self._position[rows, -1], self._state[rows, -1] = True, position, state
        self._kind[rows] = kind
        return track_id[jumped].tolist()

    def steps_ago(self) -> NDArray[np.int64]:
        """``[A]``: steps since each track was last seen."""
        return self._valid[:, ::-1].argmax(axis=1)

    def tracks(self) -> Tracks:
        """All of them, over ``length`` steps; what the tracker did not give follows from the positions."""
        valid, state = self._valid, self._state
        given = np.isfinite(state) | ~valid[..., None]
        heading, velocity = state[..., 0], state[..., 1:]
        if not given.all():
            motion = causal_velocity(self._position, valid, self.step_s)
            velocity = np.where(np.isfinite(velocity), velocity, motion)
            heading = np.where(np.isfinite(heading), heading, causal_heading(velocity, valid))
        shown = valid[..., None]
        return Tracks(
            track_id=self.track_id,
            object_type=self._kind,
            category=np.full(len(self), TrackCategory.UNSCORED, np.int8),
            valid=valid,
            position=np.where(shown, self._position, 0.0),
            heading=np.where(valid, heading, 0.0),
            velocity=np.where(shown, velocity, 0.0),
        )

    def _rows(self, track_id: NDArray[np.str_]) -> NDArray[np.int64]:
        """The row of each track; new ones get one."""
        row = {name: i for i, name in enumerate(self.track_id.tolist())}
        new = [name for name in track_id.tolist() if name not in row]
        row |= {name: len(self) + i for i, name in enumerate(new)}
        if new:
            more = len(new)
            self.track_id = np.concatenate((self.track_id, np.array(new, np.str_)))
            for name in ("_kind", "_valid", "_position", "_state"):
                values = getattr(self, name)
                room = np.zeros((more, *values.shape[1:]), values.dtype)
                setattr(self, name, np.concatenate((values, room)))
        return np.array([row[name] for name in track_id.tolist()], np.int64)

    def _last(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Where each row was last seen ``[N, 2]``, and how many steps ago; -1 for never."""
        seen = self._valid[rows]
        ago = np.where(seen.any(axis=1), seen[:, ::-1].argmax(axis=1), -1)
        return self._position[rows, self.length - 1 - np.maximum(ago, 0)], ago

    def _keep(self, rows: NDArray[np.int64]) -> None:
        for name in ("track_id", "_kind", "_valid", "_position", "_state"):
            setattr(self, name, getattr(self, name)[rows])


#: The share of its distance to an update by which the grid moves towards it.
FOLLOW = 0.1


class TimeGrid:
    """Counts the steps that pass from update to update.

    The grid slowly follows the updates. Were it to stay where the first one put it, a tracker whose first
    update was half a step off would for ever be rounded up or down by chance: two updates in one step, none
    in the next. Steady updates end up in the middle of their steps, and those on the grid leave it as it is.

    Args:
        step_s: seconds.
    """

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.start(float("nan"))

    def start(self, time_s: float) -> None:
        """Begin anew, with a step in whose middle ``time_s`` lies."""
        self._start_s, self._step = time_s, 0

    def advance(self, time_s: float) -> int:
        """Steps from the update before to this one, which is not earlier."""
        exact = (time_s - self._start_s) / self.step_s
        before, self._step = self._step, round(exact)
        self._start_s += FOLLOW * (exact - self._step) * self.step_s
        return self._step - before
