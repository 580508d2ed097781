"""Several scenarios concatenated, so that one NumPy call processes all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        focal: ``[S]`` int64, row of each scenario's focal track in ``tracks``.
        tracks: tracks of all scenarios.
        track_scene: ``[A]`` int64, index of each track's scenario, ascending.
        map: lanes and crossings of all scenarios.
        lane_scene, crossing_scene: ``[L]`` and ``[C]`` int64, index of their scenarios, ascending.
    """

    scenario_id: NDArray[np.str_]
    step_s: NDArray[np.float64]
    num_observed: int
    focal: NDArray[np.int64]
    tracks: Tracks
    track_scene: NDArray[np.int64]
    map: LaneMap
    lane_scene: NDArray[np.int64]
    crossing_scene: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scenario_id)

    def __repr__(self) -> str:
        size = f"{len(self.tracks)} tracks, {len(self.map)} lane segments"
        return f"ScenarioBatch({len(self)} scenarios: {size})"

    @classmethod
    def of(cls, scenarios: Sequence[Scenario]) -> ScenarioBatch:
        """Concatenate scenarios. Raises: DataError if there are none or their window lengths differ."""
        require(len(scenarios) > 0, "scenarios", "must not be empty")
        windows = {(s.num_observed, s.num_steps) for s in scenarios}
        require(len(windows) == 1, "num_observed", f"window lengths differ: {sorted(windows)}")
        tracks, lane_maps = [s.tracks for s in scenarios], [s.map for s in scenarios]
        scene, counts = np.arange(len(scenarios)), np.array([len(t) for t in tracks])
        return cls(
            scenario_id=np.array([s.scenario_id for s in scenarios]),
            step_s=np.array([s.step_s for s in scenarios]),
            num_observed=scenarios[0].num_observed,
            focal=np.cumsum(counts) - counts + [s.focal for s in scenarios],
            tracks=_concatenate(tracks),
            track_scene=np.repeat(scene, counts),
            map=_concatenate(lane_maps),
            lane_scene=np.repeat(scene, [len(m) for m in lane_maps]),
            crossing_scene=np.repeat(scene, [len(m.crossing_id) for m in lane_maps]),
        )


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
