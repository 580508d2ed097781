"""Several processes forecast what one does, stop with it, and report the loss of one; lengths must fit."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import rejects
from tests.scenes import assert_same_forecasts
from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.predictors import Predictor, load_predictor
from trajpred.predictors.predictor import forecast_store
from trajpred.store import ScenarioStore

pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="one process where processes cannot fork"
)


@pytest.fixture
def store(store_path: Path) -> Iterator[ScenarioStore]:
    """The training scenes; no process is left after the test."""
    before = set(multiprocessing.active_children())
    yield ScenarioStore(store_path, "train")
    assert set(multiprocessing.active_children()) <= before


class Marked(Predictor):
    """A predictor of no tracks, which does something to some scenario first."""

    name, fork_safe = "marked", True

    def __init__(self, scenario_id: str, action: Any) -> None:
        self.scenario_id, self.action, self.parent = scenario_id, action, os.getpid()

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        assert os.getpid() != self.parent, "runs in another process"
        if self.scenario_id in (one.scenario_id for one in scenarios):
            self.action()
        return [load_predictor("constant_velocity")([one])[0] for one in scenarios]


@pytest.mark.parametrize("name", ["argoverse-nano", "lane_following"])
def test_processes_forecast_what_one_process_does_in_order(name: str, store: ScenarioStore) -> None:
    predictor = load_predictor(name)
    one = list(forecast_store(predictor, store, batch_size=3, workers=1))
    two = list(forecast_store(predictor, store, batch_size=3, workers=2))
    ids = [scenario.scenario_id for scenarios, _ in two for scenario in scenarios]
    assert ids == list(store.scenario_ids)
    assert len(two) == 4
    for (_, alone), (_, together) in zip(one, two, strict=True):
        assert_same_forecasts(alone, together)


def fail() -> None:
    raise DataError("is too long", field="history")


def test_an_error_of_a_process_is_the_callers(store: ScenarioStore) -> None:
    found = forecast_store(Marked(store.scenario_ids[4], fail), store, batch_size=2, workers=2)
    assert len([next(found), next(found)]) == 2
    rejects("is too long", next, found)


def test_a_lost_process_is_reported(store: ScenarioStore) -> None:
    predictor = Marked(store.scenario_ids[3], lambda: os.kill(os.getpid(), signal.SIGKILL))
    rejects("a process died", lambda: list(forecast_store(predictor, store, batch_size=2, workers=2)))


def test_abandoned_forecasts_leave_no_process(store: ScenarioStore) -> None:
    found = forecast_store(load_predictor("constant_velocity"), store, batch_size=3, workers=2)
    next(found)
    found.close()  # type: ignore[attr-defined]


def test_a_stop_does_not_wait_for_a_process_that_hangs(store: ScenarioStore) -> None:
    predictor = Marked(store.scenario_ids[3], lambda: os.kill(os.getpid(), signal.SIGSTOP))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, stop)
    signal.alarm(3)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(forecast_store(predictor, store, batch_size=2, workers=2))
    finally:
        signal.signal(signal.SIGALRM, handler)
