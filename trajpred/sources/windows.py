"""Windows of recordings: their length and spacing, their split, and their focal and scored tracks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.data.geometry import norm
from trajpred.data.splits import SPLITS, draw
from trajpred.data.time import require_step_s
from trajpred.data.tracks import TrackCategory
from trajpred.errors import require
from trajpred.sources.reading import RawScenario

#: Seconds of the shortest recording.
SHORTEST_S = 2.0
#: A road user that moves this far (metres) between the first and the last recorded step is scored.
MOVED_M = 2.0
#: The object types that are predicted and scored.
ROAD_USERS = ("vehicle", "bus", "motorcyclist", "cyclist", "pedestrian")
#: The text to hash for choosing a recording's split.
SPLIT = "split of the recording {}"
#: Fraction of the recordings, or of a single recording, for the split ``val``.
VAL_FRACTION = 0.2


@dataclass(frozen=True)
class Spacing:
    """Options of a source that cuts windows of a fixed length.

    Attributes:
        every_s: Seconds between the starts of windows.
    """

    every_s: float = 1.5

    def __post_init__(self) -> None:
        _require_seconds("every_s", self.every_s)


@dataclass(frozen=True)
class Windows(Spacing):
    """Options of a source that cuts windows out of recordings.

    A shorter recording is also one window: an equal fraction of it is observed, and the steps before and
    after it are unknown.

    Attributes:
        every_s: Seconds between the starts of windows.
        observe_s: Observed seconds of a window.
        predict_s: Future seconds of a window.
        step_s: Seconds between steps; by default the recording's.
    """

    observe_s: float = 5.0
    predict_s: float = 6.0
    step_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_seconds("observe_s", self.observe_s)
        _require_seconds("predict_s", self.predict_s)
        if self.step_s is not None:
            require_step_s(self.step_s)

    def steps(self, step_s: float) -> tuple[int, int]:
        """Return a window's numbers of observed steps and of all steps, at ``step_s`` seconds per step."""
        observed = max(1, round(self.observe_s / step_s))
        return observed, round((self.observe_s + self.predict_s) / step_s)

    def starts(self, recorded: int, step_s: float) -> range:
        """Return the first step of each window in a recording with ``recorded`` steps.

        Raises: DataError if the recording is too short for one window.
        """
        seconds = recorded * step_s
        short = f"the road users are recorded for {seconds:.1f} s, less than {SHORTEST_S:g} s"
        require(seconds >= SHORTEST_S, "time", short)
        _, steps = self.steps(step_s)
        stride = max(1, round(self.every_s / step_s))
        return range(0, max(recorded - steps, 0) + 1, stride)

    def unknown_before(self, recorded: int, step_s: float) -> int:
        """Return how many steps of a window precede a shorter recording."""
        observed, steps = self.steps(step_s)
        return round(max(steps - recorded, 0) * observed / steps)


def _require_seconds(field: str, seconds: float) -> None:
    require(0 < seconds < math.inf, field, f"must be a positive number of seconds, is {seconds}")


def roles(
    position: NDArray[np.float64],
    valid: NDArray[np.bool_],
    object_type: Sequence[str],
    *,
    observed: int,
    step_s: float,
    is_static: NDArray[np.bool_] | None = None,
) -> tuple[int, NDArray[np.int64]]:
    """Choose the focal track of a window, and each track's category ``[A]``.

    The focal track is the road user seen at the most steps of those visible at the last observed step; among
    several, the one that deviates most from the velocity of its last observed second; a static one only if
    there is no other. Road users visible at every recorded step that move at least :data:`MOVED_M` are
    scored.

    Args:
        position: ``[A, T, 2]`` metres.
        valid: ``[A, T]``. Steps without a valid track were not recorded.
        object_type: names of A types.
        observed: number of observed steps.
        step_s: seconds between steps.
        is_static: ``[A]`` tracks known to be static.

    Raises: DataError if no road user is seen at the last observed step.
    """
    is_user = np.isin(object_type, ROAD_USERS)
    candidate = is_user & valid[:, observed - 1]
    require(bool(candidate.any()), "obstacle", "no road user is seen at the last observed step")
    if is_static is not None and (candidate & ~is_static).any():
        candidate &= ~is_static
    focal = _focal(position, valid, candidate, observed, round(1 / step_s))
    recorded = np.flatnonzero(valid.any(axis=0))
    whole = valid[:, recorded].all(axis=1)
    moved = norm(position[:, recorded[-1]] - position[:, recorded[0]]) >= MOVED_M
    category = np.where(is_user & whole & moved, TrackCategory.SCORED, TrackCategory.UNSCORED)
    category[focal] = TrackCategory.FOCAL
    return focal, category


def _focal(
    position: NDArray[np.float64],
    valid: NDArray[np.bool_],
    candidate: NDArray[np.bool_],
    observed: int,
    second: int,
) -> int:
    """Choose one of the candidate tracks; ``second`` is the number of steps per second."""
    now = observed - 1
    back = max(now - second, 0)
    velocity = (position[:, now] - position[:, back]) / max(now - back, 1)  # metres per step
    ahead = np.arange(1, position.shape[1] - now)[:, None]
    steady = position[:, now, None] + velocity[:, None] * ahead
    is_scored = valid[:, observed:] & (valid[:, now] & valid[:, back])[:, None]
    error = np.where(is_scored, norm(steady - position[:, observed:]), 0.0).max(axis=1, initial=0.0)
    seen = np.where(candidate, valid.sum(axis=1), -1)
    return int(np.lexsort((error, seen))[-1])


# ----------------------------------------------------------------------------------------------- splits


class Found(NamedTuple):
    """The windows of a recording.

    Attributes:
        name: its name.
        windows: windows by time; their parts have ``now``, the time of the last state in their observed
            seconds.
        duration_s: its length in seconds.
        gap_s: longest time (s) between states across which they are interpolated.
        block: returns the windows of a block between two times, as if it were a separate recording.
    """

    name: str
    windows: list[RawScenario]
    duration_s: float
    gap_s: float
    block: Callable[[float, float], list[RawScenario]] | None = None


#: Finds the recordings of a folder, and collects sentences about what looks wrong, by kind.
Finder = Callable[[Path, dict[str, list[str]]], list[Found]]


def split_recordings(raw: Path, find: Finder, options: Windows) -> dict[str, list[RawScenario]]:
    """Return the windows of all recordings; ``raw/{train,val,test}/`` state their splits.

    Without these folders, a fifth of the recordings, chosen by name, becomes ``val``. One or two recordings
    are each divided in time: the last fifth, at least one window, becomes ``val``, and windows that overlap
    both parts are left out. If one of two recordings is too short for that, it becomes ``train``; if both are
    too short, one becomes ``val``. A single short recording is cut into two halves.

    Warns about what looks wrong, once per kind.
    """
    problems: dict[str, list[str]] = {}
    splits: dict[str, list[RawScenario]] = {}
    for split in SPLITS:
        if (raw / split).is_dir():
            splits[split] = _all_windows(find(raw / split, problems))
    if not any(splits.values()):
        recordings = find(raw, problems)
        splits = _divided_in_time(recordings, options) or _divided(recordings)
    for sentences in problems.values():
        more = f" ({len(sentences) - 1} more like it)" if len(sentences) > 1 else ""
        warnings.warn(sentences[0] + more, stacklevel=3)
    return splits


def _divided(recordings: list[Found]) -> dict[str, list[RawScenario]]:
    """Divide recordings into train and val by a hash of their names; neither is empty."""
    order = sorted(recordings, key=lambda recording: draw(recording.name, SPLIT))
    chosen = sum(draw(recording.name, SPLIT) < VAL_FRACTION for recording in order)
    num_val = min(max(chosen, 1), len(order) - 1)
    splits: dict[str, list[RawScenario]] = {}
    for split, part in (("train", order[num_val:]), ("val", order[:num_val])):
        splits[split] = sorted(_all_windows(part), key=lambda window: window.name)
    return splits


def _all_windows(recordings: list[Found]) -> list[RawScenario]:
    return list(chain.from_iterable(recording.windows for recording in recordings))


def _divided_in_time(recordings: list[Found], options: Windows) -> dict[str, list[RawScenario]]:
    """Divide one or two recordings in time; {} if there are more, or both are too short.

    No state of a validation window is in a training window.
    """
    if len(recordings) > 2:
        return {}
    splits: dict[str, list[RawScenario]] = {"train": [], "val": []}
    for recording in recordings:
        train, val = _parts_in_time(recording, options)
        if not (train and val):
            train, val = recording.windows, []
        splits["train"] += train
        splits["val"] += val
    if splits["val"]:
        return splits
    return _halves(recordings[0], options) if len(recordings) == 1 else {}


def _parts_in_time(recording: Found, options: Windows) -> tuple[list[RawScenario], list[RawScenario]]:
    """Return the windows of the first four fifths of a recording, and those of the last fifth."""
    last = recording.windows[-1].part.now or 0.0
    # Not the recording's first second: one state may be an hour before the others.
    begin = max(0.0, (recording.windows[0].part.now or 0.0) - options.observe_s)
    fifth = VAL_FRACTION * (recording.duration_s - begin)
    border = min(recording.duration_s - fifth, last - options.observe_s)
    train: list[RawScenario] = []
    val: list[RawScenario] = []
    for window in recording.windows:
        now = window.part.now or 0.0
        if now + options.predict_s + recording.gap_s <= border:
            train.append(window)
        elif now - options.observe_s >= border:
            val.append(window)
    return train, val


def _halves(recording: Found, options: Windows) -> dict[str, list[RawScenario]]:
    """Return the windows of each half, with some steps unknown; all are ``val`` if it is too short."""
    if recording.block is not None:
        middle = recording.duration_s / 2
        train = recording.block(0.0, middle)
        # States count up to a step after their time.
        val = recording.block(middle + max(options.step_s or 0.0, recording.gap_s), math.inf)
        if train and val:
            return {"train": train, "val": val}
    return {"val": recording.windows}
