"""Real scenes, and such as real data lack."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.scenes import straight
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario


@pytest.fixture(scope="session", params=[0, 11], ids=["pittsburgh", "austin"])
def scenario(sample_scenarios: list[Scenario], request: pytest.FixtureRequest) -> Scenario:
    """A crowded and a sparse real scene, without tracks that move backwards: features turn these round."""
    ordered = sorted(sample_scenarios, key=lambda s: (s.city != "pittsburgh", -len(s.tracks)))
    chosen = ordered[request.param]
    tracks = chosen.tracks
    facing = np.stack((np.cos(tracks.heading), np.sin(tracks.heading)), -1)
    forwards = np.where(tracks.valid, (facing * tracks.velocity).sum(-1), 0.0)
    return replace(chosen, tracks=tracks.take(np.flatnonzero(forwards.min(1) > -1)))


@pytest.fixture(scope="session")
def scenes(sample_scenarios: list[Scenario]) -> list[Scenario]:
    """Return real scenes, one without a map, two with the same lane ids."""
    crowded = sample_scenarios[0]
    sparse = sample_scenarios[-1]
    return [crowded, replace(sparse, map=LaneMap()), sparse, straight(3), crowded, sample_scenarios[5]]
