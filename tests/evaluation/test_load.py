"""An evaluation of a whole validation split in bounded memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.predictors import Scattered
from tests.footprint import highest
from tests.graph.scenes import straight
from trajpred.benchmark.timing import own_process
from trajpred.evaluation import evaluate
from trajpred.forecast import Forecast
from trajpred.scenario import Scenario

#: Of few scenarios already the intervals take as much as ever: their resamples come in portions.
FEW, SCENARIOS, AGENTS = 5_000, 25_000, 8


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
        self.forecast = Scattered().one(straight(AGENTS))
        self.forecast.probability[:] = self.forecast.probability[0]

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return [replace(self.forecast, scenario_id=one.scenario_id) for one in scenarios]


def work(store: str, count: str) -> list[float]:
    """In a process of its own: the most memory in MB for so many scenarios, and the mean error of worlds."""
    with highest() as most:
        found = evaluate(Worlds(), Many(Path(store), int(count)), progress=False)  # type: ignore[arg-type]
    assert found.worlds["count"] == int(count) and found.metrics["all"]["count"] == AGENTS * int(count)
    return [*most, found.worlds["avgMinFDE"]]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
def test_memory_is_that_of_few_scenarios_and_of_focal_agents(store_path: Path) -> None:
    script = f"import sys; from {__name__} import work; print(work(*sys.argv[1:]))"
    (few, error), (many, same) = (own_process(script, store_path, count) for count in (FEW, SCENARIOS))
    print(f"{few:.0f} MB for {FEW} scenarios, {many:.0f} for {SCENARIOS}")
    assert many - few < 1e-3 * (SCENARIOS - FEW), f"{few:.0f} MB, then {many:.0f}"
    assert error == pytest.approx(same) and error > 0
