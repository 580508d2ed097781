"""Several scenarios laid end to end, so that one NumPy call serves all of them."""

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
    """``S`` scenarios of one window length: all their tracks as one table, all their lanes as another.

    City frames throughout, as in :class:`~trajpred.scenario.Scenario`. Track and lane ids are unique within
    a scenario only.

    Attributes:
        scenario_id: ``[S]`` strings.
        step_s: ``[S]`` seconds between steps.
        num_observed: the first steps, which are input.
        focal: ``[S]`` int64, row in ``tracks`` of each scenario's focal track.
        tracks: of all scenarios; track_scene: ``[A]`` int64, which scenario a track belongs to, ascending.
        map: of all scenarios; lane_scene: ``[L]``, crossing_scene: ``[C]`` likewise.
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

    @classmethod
    def of(cls, scenarios: Sequence[Scenario]) -> ScenarioBatch:
        """Raises: DataError if there is none, or if window lengths differ."""
        require(len(scenarios) > 0, "scenarios", "must be one at least")
        windows = {(s.num_observed, s.num_steps) for s in scenarios}
        require(len(windows) == 1, "num_observed", f"window lengths differ: {sorted(windows)}")
        tracks, lane_maps = [s.tracks for s in scenarios], [s.map for s in scenarios]
        counts = np.array([len(t) for t in tracks])
        return cls(
            scenario_id=np.array([s.scenario_id for s in scenarios]),
            step_s=np.array([s.step_s for s in scenarios]),
            num_observed=scenarios[0].num_observed,
            focal=np.cumsum(counts) - counts + [s.focal for s in scenarios],
            tracks=_joined(tracks),
            track_scene=_scene(counts),
            map=_joined(lane_maps),
            lane_scene=_scene([len(m) for m in lane_maps]),
            crossing_scene=_scene([len(m.crossing_id) for m in lane_maps]),
        )


def _scene(counts: Any) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(counts)), counts)


def _joined(parts: Sequence[Any]) -> Any:
    """Arrays, raggeds, or dataclasses of them, one behind another."""
    first = parts[0]
    if isinstance(first, Ragged):
        width = min(part.values.shape[1:] for part in parts)  # heights only where all have them
        values = [part.values[:, : width[0]] if width else part.values for part in parts]
        return Ragged.from_lengths(np.concatenate(values), np.concatenate([part.lengths for part in parts]))
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    return type(first)(**{f.name: _joined([getattr(part, f.name) for part in parts]) for f in fields(first)})
