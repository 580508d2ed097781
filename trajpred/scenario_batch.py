"""Several scenarios concatenated, so that one NumPy call processes all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.errors import require
from trajpred.lane_map import LaneMap, Ragged
from trajpred.scenario import Scenario, Tracks


@dataclass(frozen=True)
class ScenarioBatch:
    """Tracks and lanes of ``S`` scenarios of equal window length, each in its own city frame.

    Track and lane ids are unique within a scenario only.

    Attributes:
        scenario_id: ``[S]`` strings.
        step_s: ``[S]`` seconds between steps.
        num_observed: number of steps that are input.
        recorded: ``[S]`` int64, the first step whose states a model continued (``Scenario.continued``); the
            number of all steps or more if there is none.
        focal: ``[S]`` int64, row of each scenario's focal track in ``tracks``.
        tracks: tracks of all scenarios.
        track_scene: ``[A]`` int64, index of each track's scenario, ascending.
        map: lanes and crossings of all scenarios.
        lane_scene, crossing_scene: ``[L]`` and ``[C]`` int64, index of their scenarios, ascending.
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

    def window(self, observed: int, future: int, later: ArrayLike = 0) -> ScenarioBatch:
        """Return so many observed and future steps; those that were never recorded are unknown.

        Args:
            later: steps, one number or ``[S]``, by which the last observed step moves.
        """
        first = np.broadcast_to(self.num_observed - observed + np.asarray(later), len(self))
        if not first.any() and observed + future == self.tracks.valid.shape[1]:
            return self
        tracks = self.tracks.window(first[self.track_scene], observed + future)
        return replace(self, num_observed=observed, recorded=self.recorded - first, tracks=tracks)

    def without_map(self, scenes: NDArray[np.bool_]) -> ScenarioBatch:
        """Remove the lanes and crossings of the chosen scenes ``[S]``."""
        lanes, crossings = (np.flatnonzero(~scenes[x]) for x in (self.lane_scene, self.crossing_scene))
        return replace(
            self,
            map=self.map.take(lanes, crossings),
            lane_scene=self.lane_scene[lanes],
            crossing_scene=self.crossing_scene[crossings],
        )

    @classmethod
    def joined(cls, parts: Sequence[ScenarioBatch]) -> ScenarioBatch:
        """Concatenate batches; the window holds all observed and all future steps of each."""
        if len(parts) == 1:
            return parts[0]
        observed = max(part.num_observed for part in parts)
        future = max(part.num_future for part in parts)
        parts = [part.window(observed, future) for part in parts]
        scenes, tracks = (_starts(map(len, x)) for x in (parts, [part.tracks for part in parts]))

        def rows(name: str, starts: Sequence[int]) -> NDArray[np.int64]:
            return np.concatenate([getattr(part, name) + i for part, i in zip(parts, starts, strict=True)])

        return cls(
            scenario_id=np.concatenate([part.scenario_id for part in parts]),
            step_s=np.concatenate([part.step_s for part in parts]),
            num_observed=observed,
            recorded=np.concatenate([part.recorded for part in parts]),
            focal=rows("focal", tracks),
            tracks=_concatenate([part.tracks for part in parts]),
            track_scene=rows("track_scene", scenes),
            map=_concatenate([part.map for part in parts]),
            lane_scene=rows("lane_scene", scenes),
            crossing_scene=rows("crossing_scene", scenes),
        )

    @classmethod
    def of(cls, scenarios: Sequence[Scenario]) -> ScenarioBatch:
        """Concatenate scenarios; the window holds all steps of each. Raises: DataError if there are none."""
        require(len(scenarios) > 0, "scenarios", "must not be empty")
        if len({(s.num_observed, s.num_steps) for s in scenarios}) > 1:
            return cls.joined([cls.of([scenario]) for scenario in scenarios])
        tracks, lane_maps = [s.tracks for s in scenarios], [s.map for s in scenarios]
        scene, counts = np.arange(len(scenarios)), np.array([len(t) for t in tracks])
        return cls(
            scenario_id=np.array([s.scenario_id for s in scenarios]),
            step_s=np.array([s.step_s for s in scenarios]),
            num_observed=scenarios[0].num_observed,
            recorded=np.array([s.num_steps - s.continued for s in scenarios]),
            focal=np.cumsum(counts) - counts + [s.focal for s in scenarios],
            tracks=_concatenate(tracks),
            track_scene=np.repeat(scene, counts),
            map=_concatenate(lane_maps),
            lane_scene=np.repeat(scene, [len(m) for m in lane_maps]),
            crossing_scene=np.repeat(scene, [len(m.crossing_id) for m in lane_maps]),
        )


def _starts(counts: Iterable[int]) -> list[int]:
    return [0, *accumulate(counts)][:-1]


def _concatenate(parts: Sequence[Any]) -> Any:
    """Concatenate arrays, ragged arrays, or dataclasses of them along their first axis."""
    first = parts[0]
    if isinstance(first, Ragged):
        width = min(part.values.shape[1:] for part in parts)  # heights are kept if all have them
        values = [part.values[:, : width[0]] if width else part.values for part in parts]
        return Ragged.from_lengths(np.concatenate(values), np.concatenate([part.lengths for part in parts]))
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    joined = {f.name: _concatenate([getattr(part, f.name) for part in parts]) for f in fields(first)}
    return type(first)(**joined)
