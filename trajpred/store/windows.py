"""The windows of a split: how many steps its scenarios have, and how long these are.

Train and evaluate need windows of one kind. Where frames were lost, a source that counts frames makes longer
windows than elsewhere: those are cut to the others when they are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.data.resample import recut
from trajpred.data.scenario import Scenario
from trajpred.data.time import SAME_STEP

#: What to do about windows of several kinds.
ADVICE = (
    "train and evaluate need one kind: prepare the recordings of each kind from a raw folder of their own "
    "into a store of their own"
)


class Window(NamedTuple):
    """Numbers of observed steps, and of all steps."""

    observed: int
    steps: int

    @property
    def future(self) -> int:
        """Number of future steps."""
        return self.steps - self.observed

    def __str__(self) -> str:
        return f"{self.observed} + {self.future}"


def recorded_frames(scenario: Scenario) -> Window:
    """Return the window without the steps between others at which no track is valid.

    It is the whole window if the focal track would have no observed state in the last steps of that number.
    """
    valid = scenario.tracks.valid
    seen = np.flatnonzero(valid.any(axis=0))
    inside = np.arange(seen[0], seen[-1] + 1)
    lost = np.setdiff1d(inside, seen)
    observed = scenario.num_observed - int((lost < scenario.num_observed).sum())
    recent = valid[scenario.focal, scenario.num_observed - observed : scenario.num_observed]
    if not recent.any():
        return Window(scenario.num_observed, scenario.num_steps)
    return Window(observed, scenario.num_steps - len(lost))


def common_windows(whole: Collection[Window], lost: Collection[tuple[Window, Window]]) -> set[Window]:
    """Return the windows of a split: those without lost frames, and those that cannot be cut to one of them.

    Args:
        whole: windows without lost frames.
        lost: the others, and what is left of each without the lost frames.
    """
    kinds = set(whole)
    for longer, frames in sorted(lost):
        if not any(_can_be_cut(longer, frames, kind) for kind in kinds):
            kinds.add(longer)
    return kinds


def _can_be_cut(longer: Window, frames: Window, kind: Window) -> bool:
    """Whether ``kind`` has no more steps than the window and no fewer than the frames in it."""
    in_past = frames.observed <= kind.observed <= longer.observed
    in_future = frames.future <= kind.future <= longer.future
    return in_past and in_future


def cut(scenario: Scenario, window: Window) -> Scenario:
    """Return the last observed and the first future steps of a scenario, and the tracks seen at these."""
    if window == (scenario.num_observed, scenario.num_steps):
        return scenario
    shorter = recut(scenario, window.observed, window.future)
    rows = np.flatnonzero(shorter.tracks.valid.any(axis=1))
    return replace(shorter, tracks=shorter.tracks.take(rows))


def describe_mixture(windows: Collection[Window], step_s: NDArray[np.float64]) -> str:
    """Describe windows ``[N]`` with steps of ``step_s`` ``[N]`` seconds; empty if they are of one kind."""
    distinct: dict[float, float] = {}  # each length, and the shortest one that counts as the same
    shortest = 0.0
    for step in np.unique(step_s).tolist():
        if step > (1 + SAME_STEP) * shortest:
            shortest = step
        distinct[step] = shortest
    kinds = Counter((window, distinct[step]) for window, step in zip(windows, step_s.tolist(), strict=True))
    if len(kinds) < 2:
        return ""
    parts = [f"{count:,} of {window} steps of {step:.3g} s" for (window, step), count in kinds.most_common()]
    return f"mixes scenarios: {', '.join(parts)}; {ADVICE}"
