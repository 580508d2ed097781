"""The time grid of the model under the clock of a tracker, which jitters and starts anywhere."""

from __future__ import annotations

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
