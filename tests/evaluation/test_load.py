"""An evaluation of a whole validation split in bounded memory."""

from __future__ import annotations

import gc
import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evaluation.test_evaluate import Scattered
from tests.graph.conftest import store_path  # noqa: F401
from tests.graph.scenes import straight
from trajpred.evaluation import evaluate
from trajpred.forecast import Forecast
from trajpred.scenario import Scenario

SCENARIOS, AGENTS = 25_000, 8


class Many:
    """A split of so many scenarios that exist only while they are looked at."""

    split = "val"

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count, self.one = path, count, straight(AGENTS)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> Scenario:
        return replace(self.one, scenario_id=f"{row:032d}")


class Worlds:
    """The same six worlds for everyone, made once."""

    name, joint = "worlds", True
    training: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.said = Scattered().one(straight(AGENTS))
        self.said.probability[:] = self.said.probability[0]

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return [replace(self.said, scenario_id=one.scenario_id) for one in scenarios]


@pytest.mark.slow
def test_memory_grows_by_less_than_a_kilobyte_an_agent(store_path: Path) -> None:  # noqa: F811
    evaluate(Worlds(), Many(store_path, 1000), progress=False)  # type: ignore[arg-type]
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = evaluate(Worlds(), Many(store_path, SCENARIOS), progress=False)  # type: ignore[arg-type]
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert found.worlds["count"] == SCENARIOS and found.metrics["all"]["count"] == AGENTS * SCENARIOS
    # Measured: 0.8 kB an agent, most of it while the columns are joined.
    assert grown_kb / SCENARIOS < 1.0 * AGENTS, f"{grown_kb / 1e3:.0f} MB"
    assert np.isfinite(found.worlds["avgMinFDE"])
