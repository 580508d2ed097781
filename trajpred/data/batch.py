"""Several scenarios concatenated, so that one NumPy call processes all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import Tracks
from trajpred.errors import require


@dataclass(frozen=True)
class ScenarioBatch:
    """Tracks and lanes of ``S`` scenarios of equal window length, each in its own city frame.

    Track and lane ids are unique within a scenario only.

    Attributes:
        scenario_id: ``[S]`` strings.
        step_s: ``[S]`` seconds between steps.
        num_observed: number of steps that are input.
        recorded: ``[S]`` int64, the first step that a model continued (``Scenario.continued``); the number of
            steps or more if there is none.
        focal: ``[S]`` int64, row of each scenario's focal track in ``tracks``.
        tracks: tracks of all scenarios.
        track_scene: ``[A]`` int64, index of each track's scenario, ascending.
        map: lanes and crossings of all scenarios.
        lane_scene: ``[L]`` int64, index of each lane's scenario, ascending.
        crossing_scene: ``[C]`` int64, index of each crossing's scenario, ascending.
    """

    scenario_id: NDArray[np.str_]
    step_s: NDArray[np.float64]
    num_observed: int
    recorded: NDArray[np.int64]
    focal: NDArray[np.int64]
    tracks: Tracks
    track_scene: NDArray[np.int64]
    map: LaneMap
    lane_scene: NDArray[np.int64]
    crossing_scene: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scenario_id)

    @property
    def num_future(self) -> int:
        """Number of steps after the observed ones."""
        return self.tracks.valid.shape[1] - self.num_observed

    def __repr__(self) -> str:
        size = f"{len(self.tracks)} tracks, {len(self.map)} lane segments"
        return f"ScenarioBatch({len(self)} scenarios: {size})"

    def window(
        self, observed: int | None = None, future: int | None = None, later: ArrayLike = 0
    ) -> ScenarioBatch:
        """Return the :meth:`Scenario.window` of each scenario; ``later`` is one number or ``[S]``."""
        if observed is None:
            observed = self.num_observed
        if future is None:
            future = self.num_future
        first = np.broadcast_to(self.num_observed - observed + np.asarray(later), len(self))
        if not first.any() and (observed, future) == (self.num_observed, self.num_future):
            return self
        tracks = self.tracks.window(first[self.track_scene], observed + future)
        return replace(self, num_observed=observed, recorded=self.recorded - first, tracks=tracks)

    def without_map(self, scenes: NDArray[np.bool_]) -> ScenarioBatch:
        """Remove the lanes and crossings of the chosen scenes ``[S]``."""
        lanes = np.flatnonzero(~scenes[self.lane_scene])
        crossings = np.flatnonzero(~scenes[self.crossing_scene])
        return replace(
            self,
            map=self.map.take(lanes, crossings),
            lane_scene=self.lane_scene[lanes],
            crossing_scene=self.crossing_scene[crossings],
        )

    @classmethod
    def joined(cls, parts: Sequence[ScenarioBatch]) -> ScenarioBatch:
        """Concatenate batches; the window covers the observed and future steps of all."""
        if len(parts) == 1:
            return parts[0]
        observed = max(part.num_observed for part in parts)
        future = max(part.num_future for part in parts)
        renumbered: list[ScenarioBatch] = []
        scenes = 0
        tracks = 0
        for part in parts:
            part = replace(
                part.window(observed, future),
                focal=part.focal + tracks,
                track_scene=part.track_scene + scenes,
                lane_scene=part.lane_scene + scenes,
                crossing_scene=part.crossing_scene + scenes,
            )
            renumbered.append(part)
            scenes += len(part)
            tracks += len(part.tracks)
        return concatenate(renumbered)

    @classmethod
    def of(cls, scenarios: Sequence[Scenario]) -> ScenarioBatch:
        """Concatenate scenarios; the window covers the steps of all.

        Raises:
            DataError: there are no scenarios.
        """
        require(len(scenarios) > 0, "scenarios", "must not be empty")
        parts: list[ScenarioBatch] = []
        for scenario in scenarios:
            part = cls(
                scenario_id=np.array([scenario.scenario_id]),
                step_s=np.array([scenario.step_s]),
                num_observed=scenario.num_observed,
                recorded=np.array([scenario.num_steps - scenario.continued]),
                focal=np.array([scenario.focal]),
                tracks=scenario.tracks,
                track_scene=np.zeros(len(scenario.tracks), np.int64),
                map=scenario.map,
                lane_scene=np.zeros(len(scenario.map), np.int64),
                crossing_scene=np.zeros(len(scenario.map.crossing_id), np.int64),
            )
            parts.append(part)
        return cls.joined(parts)


def concatenate(parts: Sequence[Any]) -> Any:
    """Concatenate arrays, ragged arrays, or dataclasses of them along their first axis.

    An integer, which all parts have in common, stays.
    """
    first = parts[0]
    if isinstance(first, int):
        return first
    if isinstance(first, Ragged):
        return _concatenate_ragged(parts)
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    columns: dict[str, Any] = {}
    for column in fields(first):
        columns[column.name] = concatenate([getattr(part, column.name) for part in parts])
    return type(first)(**columns)


def _concatenate_ragged(parts: Sequence[Ragged]) -> Ragged:
    """Concatenate ragged arrays; the heights of points are kept if all have them."""
    values = [part.values for part in parts]
    if values[0].ndim > 1:
        width = min(points.shape[1] for points in values)
        values = [points[:, :width] for points in values]
    lengths = np.concatenate([part.lengths for part in parts])
    return Ragged.from_lengths(np.concatenate(values), lengths)
