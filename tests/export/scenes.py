"""Scenes derived from a scenario: one moment of it, one agent alone, the whole scene elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trajpred.scenario import EGO_ID, Scenario, TrackCategory, Tracks


def moment(scenario: Scenario, step: int, focal_id: str = EGO_ID) -> Scenario:
    """Make a scenario whose last observed step is ``step``; steps before the first are invalid."""
    now, tracks = scenario.num_observed, scenario.tracks
    seen = tracks.valid[:, max(0, step + 1 - now) : step + 1].any(axis=1)

    def cut(values: np.ndarray) -> np.ndarray:
        out = np.zeros((int(seen.sum()), *values.shape[1:]), values.dtype)
        past = values[seen, max(0, step + 1 - now) : step + 1]
        out[:, now - past.shape[1] : now] = past
        return out

    by_step = {name: cut(getattr(tracks, name)) for name in ("valid", "position", "heading", "velocity")}
    category = np.full(int(seen.sum()), TrackCategory.UNSCORED, np.int8)
    own = {"track_id": tracks.track_id[seen], "object_type": tracks.object_type[seen], "category": category}
    return replace(scenario, tracks=Tracks(**own, **by_step), focal_id=focal_id)


def alone(scenario: Scenario) -> Scenario:
    """Keep the focal agent only."""
    row = slice(scenario.focal, scenario.focal + 1)
    return replace(scenario, tracks=Tracks(**{k: v[row] for k, v in vars(scenario.tracks).items()}))


def moved(scenario: Scenario, by: np.ndarray) -> Scenario:
    """Move a scene ``by`` ``[2]`` metres."""
    lane_map, tracks = scenario.map, scenario.tracks
    lines = ("centerline", "left_boundary", "right_boundary", "crossing_edge1", "crossing_edge2")
    shifted = {}
    for name in (*lines, "drivable_area"):
        line = getattr(lane_map, name)
        shifted[name] = replace(line, values=line.values + np.pad(by, (0, line.values.shape[1] - 2)))
    position = np.where(tracks.valid[..., None], tracks.position + by, 0.0)
    return replace(scenario, tracks=replace(tracks, position=position), map=replace(lane_map, **shifted))
