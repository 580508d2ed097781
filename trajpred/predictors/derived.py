"""Predictors that apply another one to changed scenarios: perturbed, or as they were seen earlier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.predictors.perturbations import PERTURBATIONS, perturbation, short_history
from trajpred.predictors.predictions_file import predictions_files
from trajpred.predictors.predictor import Predictor
from trajpred.scenario import Scenario
from trajpred.time_grid import earlier


class DerivedPredictor(Predictor):
    """A predictor that uses another one in its own way, and is described as that one."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self.name = predictor.name
        self.training = predictor.training
        self.joint = predictor.joint
        self.how = predictor.how
        self.fork_safe = predictor.fork_safe

    @property
    def members(self) -> tuple[Predictor, ...]:
        return self.predictor.members


class PerturbedPredictor(DerivedPredictor):
    """A predictor applied to perturbed scenarios; a scenario is always perturbed in the same way.

    Args:
        name: of a perturbation (:data:`~trajpred.predictors.perturbations.PERTURBATIONS`), or of ``perturb``.
        perturb: any function of a scenario.

    Raises: DataError if ``perturb`` is not given and no perturbation has the name.

    Example:
        >>> noisy = PerturbedPredictor(load_predictor("argoverse-nano"), "noise")
    """

    def __init__(
        self, predictor: Predictor, name: str, perturb: Callable[[Scenario], Scenario] | None = None
    ) -> None:
        super().__init__(predictor)
        self.perturb = perturb or perturbation(name)
        self.name = f"{predictor.name}, {name}"
        self.how = ", ".join(filter(None, (predictor.how, name)))

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return self.predictor([self.perturb(scenario) for scenario in scenarios])


def perturbed(
    predictor: Predictor, names: Sequence[str] | str | None, history: Sequence[float] | None = None
) -> list[PerturbedPredictor]:
    """Return ``predictor`` under each of the named perturbations, or ``all``, and with less ``history``.

    Raises: DataError if there is no such perturbation, or the predictor is a predictions file.
    """
    if isinstance(names, str):
        names = [names]
    chosen: list[str] = []
    for name in names or []:
        chosen += PERTURBATIONS if name == "all" else [name]
    variants = [PerturbedPredictor(predictor, name) for name in dict.fromkeys(chosen)]
    for seconds in history or []:
        less = partial(short_history, seconds=seconds)
        variants.append(PerturbedPredictor(predictor, f"history of {seconds:g} s", less))
    if variants:
        require_free(predictor, "perturb")
    return variants


def require_free(predictor: Predictor, field: str) -> None:
    """Raise DataError about ``field`` if a predictor contains predictions files, which are fixed."""
    fixed = "scenarios cannot be changed for predictions files, which are fixed"
    require(not predictions_files(predictor), field, fixed)


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
        self.every_s = every_s
        self.updates = updates

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        latest = self.predictor(scenarios)
        streamed = [StreamedForecast(forecast.scenario_id, **forecast.arrays) for forecast in latest]
        every = [self._steps(scenario) for scenario in scenarios]
        oldest = self.updates - 1
        rows: list[int] = []
        for row, scenario in enumerate(scenarios):
            observed = scenario.num_observed - every[row] * oldest
            if scenario.tracks.last_seen(observed)[scenario.focal] >= 0:
                rows.append(row)
        for update in range(oldest, 0, -1):
            forecasts = self.predictor([earlier(scenarios[row], update * every[row]) for row in rows])
            for row, forecast in zip(rows, forecasts, strict=True):
                streamed[row].earlier[update * every[row]] = forecast
        return list[Forecast](streamed)

    def _steps(self, scenario: Scenario) -> int:
        """Return the number of steps between updates."""
        steps = round(self.every_s / scenario.step_s)
        observed = scenario.num_observed
        require(steps > 0, "every_s", f"must be at least a step of {scenario.step_s:g} s")
        most = f"must be at most {observed}, the number of observed steps"
        require(self.updates <= observed, "updates", most)
        longest_s = round((observed - 1) // (self.updates - 1) * scenario.step_s, 2)
        within = f"{self.updates} updates within the {observed} observed steps"
        problem = f"must be at most {longest_s:g} s for {within}"
        require(steps * (self.updates - 1) < observed, "every_s", problem)
        return steps
