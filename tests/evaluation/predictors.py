"""Predictors of random futures around the truth, and stores of changed scenarios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.predictors import Predictor
from trajpred.store import ScenarioStore


class Scattered(Predictor):
    """Random futures around the truth of each track, by default six, except for the ``omitted`` ones."""

    name = "scattered"
    training = {"seed": 3}  # noqa: RUF012

    def __init__(self, omitted: frozenset[str] = frozenset(), modes: int = 6) -> None:
        self.omitted = omitted
        self.modes = modes

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return [self.one(scenario) for scenario in scenarios]

    def one(self, scenario: Scenario) -> Forecast:
        tracks, now = scenario.tracks, scenario.num_observed
        rows = np.array([i for i, name in enumerate(tracks.track_id.tolist()) if name not in self.omitted])
        random = np.random.default_rng(len(tracks))
        path = tracks.position[rows, None, now:] + random.normal(0, 2, (len(rows), self.modes, 1, 2))
        return Forecast.from_trajectories(
            scenario.scenario_id,
            tracks.track_id[rows],
            path,
            random.dirichlet(np.ones(self.modes), len(rows)),
            origin=path[:, 0, 0],
            origin_heading=np.zeros(len(rows)),
            step_s=scenario.step_s,
        )


class ScatteredJoint(Scattered):
    """The same futures, mode k of all tracks being one joint mode with a common probability."""

    joint = True

    def one(self, scenario: Scenario) -> Forecast:
        forecast = super().one(scenario)
        return replace(forecast, probability=np.repeat(forecast.probability[:1], len(forecast.track_id), 0))


class ChangedStore(ScenarioStore):
    """A split whose scenarios are changed when they are read."""

    def __init__(self, store: ScenarioStore, change: Callable[[Scenario], Scenario]) -> None:
        self.__dict__.update(store.__dict__)
        self.change = change

    def __getitem__(self, index: int) -> Scenario:
        return self.change(super().__getitem__(index))
