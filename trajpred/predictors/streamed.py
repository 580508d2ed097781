"""Forecasts of a scenario at several times, each from what was observed until then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.predictors.predictions_file import predictions_files
from trajpred.predictors.predictor import DerivedPredictor, Predictor
from trajpred.scenario import Scenario


@dataclass(frozen=True, repr=False)
class StreamedForecast(Forecast):
    """A forecast with those that were made earlier.

    Attributes:
        earlier: by the number of steps, the forecast made so much earlier; empty where the focal track was
            not yet observed at the earliest update.
    """

    earlier: dict[int, Forecast] = field(default_factory=dict)


class StreamedPredictor(DerivedPredictor):
    """A predictor that also forecasts each scenario as it was seen at earlier updates, independently.

    Args:
        predictor: a model, a baseline or an ensemble.
        every_s: seconds between updates, rounded to whole steps.
        updates: their number; the last is at the last observed step.

    Raises: DataError of predictions files, which contain one update only.

    Example:
        >>> streamed = StreamedPredictor(load_predictor("constant_velocity"), every_s=0.5, updates=3)
        >>> [*streamed([scenario])[0].earlier]
        [10, 5]
    """

    def __init__(self, predictor: Predictor, every_s: float = 0.5, updates: int = 3) -> None:
        fixed = "needs a model or a baseline: a predictions file contains one update only"
        require(not predictions_files(predictor), "streaming", fixed)
        require(updates > 1, "updates", "must be 2 or more")
        require(every_s > 0, "every_s", "must be positive")
        super().__init__(predictor)
        self.every_s, self.updates = every_s, updates

    def __repr__(self) -> str:
        return f"StreamedPredictor({self.name}: {self.updates} updates, every {self.every_s:g} s)"

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        found = [StreamedForecast(one.scenario_id, **one.arrays) for one in self.predictor(scenarios)]
        every = [self._steps(one) for one in scenarios]
        oldest = self.updates - 1
        known = [one.num_observed - step * oldest for one, step in zip(scenarios, every, strict=True)]
        seen = [i for i, one in enumerate(scenarios) if one.tracks.last_seen(known[i])[one.focal] >= 0]
        for update in range(oldest, 0, -1):
            forecasts = self.predictor([scenarios[i].earlier(update * every[i]) for i in seen])
            for i, forecast in zip(seen, forecasts, strict=True):
                found[i].earlier[update * every[i]] = forecast
        return list[Forecast](found)

    def _steps(self, scenario: Scenario) -> int:
        """Return the number of steps between updates."""
        steps, known = round(self.every_s / scenario.step_s), scenario.num_observed
        require(steps > 0, "every_s", f"must be at least a step of {scenario.step_s:g} s")
        require(self.updates <= known, "updates", f"must be at most {known}, the number of observed steps")
        longest = f"{round((known - 1) // (self.updates - 1) * scenario.step_s, 2):g} s"
        problem = f"must be at most {longest} for {self.updates} updates within the {known} observed steps"
        require(steps * (self.updates - 1) < known, "every_s", problem)
        return steps
