"""Real scenes, and such as real data lack."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.features.scenes import straight
from trajpred.lane_map import LaneMap
from trajpred.scenario import Scenario


@pytest.fixture(scope="session", params=[0, 11], ids=["pittsburgh", "austin"])
def scenario(sample_scenarios: list[Scenario], request: pytest.FixtureRequest) -> Scenario:
    """A crowded and a sparse real scene."""
    return sorted(sample_scenarios, key=lambda s: (s.city != "pittsburgh", -len(s.tracks)))[request.param]


@pytest.fixture(scope="session")
def scenes(sample_scenarios: list[Scenario]) -> list[Scenario]:
    """Return real scenes, one without a map, two with the same lane ids."""
    crowded, sparse = sample_scenarios[0], sample_scenarios[-1]
    return [crowded, replace(sparse, map=LaneMap()), sparse, straight(3), crowded, sample_scenarios[5]]
