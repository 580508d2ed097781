"""Real scenes."""

from __future__ import annotations

import pytest

from trajpred.scenario import Scenario


@pytest.fixture(scope="session", params=[0, 11], ids=["pittsburgh", "austin"])
def scenario(sample_scenarios: list[Scenario], request: pytest.FixtureRequest) -> Scenario:
    """A crowded and a sparse real scene."""
    return sorted(sample_scenarios, key=lambda s: (s.city != "pittsburgh", -len(s.tracks)))[request.param]
