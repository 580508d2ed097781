"""Predictors based on others: with less input, update by update, or several merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.forecast import Forecast, cluster_modes
from trajpred.data.geometry import direction
from trajpred.data.scenario import Scenario
from trajpred.errors import require
from trajpred.predictors.baselines import constant_velocity
from trajpred.predictors.perturbations import ALL, perturbation, short_history
from trajpred.predictors.predictions_file import predictions_files
from trajpred.predictors.predictor import Predictor, future_steps


class DerivedPredictor(Predictor):
    """A predictor that wraps another one and takes its description."""

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

    def steps(self, scenario: Scenario) -> int:
        return self.predictor.steps(scenario)


class ShortenedPredictor(DerivedPredictor):
    """A predictor whose forecasts end where any of ``others`` ends."""

    def __init__(self, predictor: Predictor, others: Sequence[Predictor]) -> None:
        super().__init__(predictor)
        self.others = tuple(others)

    def steps(self, scenario: Scenario) -> int:
        return min(predictor.steps(scenario) for predictor in (self.predictor, *self.others))

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        forecasts = self.predictor(scenarios)
        pairs = zip(forecasts, scenarios, strict=True)
        return [forecast.first(self.steps(scenario)) for forecast, scenario in pairs]


def of_same_seconds(predictors: Sequence[Predictor]) -> list[Predictor]:
    """Return predictors whose forecasts end where the shortest one ends, for comparison."""
    return [ShortenedPredictor(predictor, predictors) for predictor in predictors]


def completed(forecast: Forecast, scenario: Scenario) -> Forecast:
    """Add the tracks that ``forecast`` lacks, at constant velocity, with probability 1 for the first mode.

    Raises: DataError if it has fewer steps than ``scenario`` has to predict.
    """
    steady = constant_velocity(scenario, future_steps(scenario))
    missing = ~np.isin(steady.track_id, forecast.track_id)
    if not len(forecast.track_id):
        return steady
    steps = steady.trajectory.shape[2]
    problem = f"must be {steps} of scenario {forecast.scenario_id}, are {forecast.trajectory.shape[2]}"
    require(forecast.trajectory.shape[2] >= steps, "steps", problem)
    forecast = forecast.first(steps)
    modes = forecast.probability.shape[1]
    arrays: dict[str, Any] = {}
    for name in ("trajectory", "heading", "speed"):
        added = np.repeat(getattr(steady, name)[missing], modes, axis=1)
        arrays[name] = np.concatenate((getattr(forecast, name), added))
    certain = np.tile(np.eye(1, modes), (missing.sum(), 1))
    arrays["probability"] = np.concatenate((forecast.probability, certain))
    arrays["track_id"] = np.concatenate((forecast.track_id, steady.track_id[missing]))
    return replace(forecast, **arrays, scale=None)


class PerturbedPredictor(DerivedPredictor):
    """A predictor applied to perturbed scenarios; the perturbation of a scenario is always the same.

    Args:
        name: name of a perturbation (:data:`~trajpred.predictors.perturbations.PERTURBATIONS`), or of
            ``perturb``.
        perturb: any function of a scenario.

    Raises: DataError if ``perturb`` is missing and no perturbation has this name.

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
        chosen += ALL if name == "all" else [name]
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
    """A forecast with the earlier ones.

    Attributes:
        earlier: forecasts by how many steps earlier they were made; empty if the focal track was not yet
            observed at the earliest update.
    """

    earlier: dict[int, Forecast] = field(default_factory=dict)


class StreamedPredictor(DerivedPredictor):
    """A predictor that also forecasts each scenario as seen at earlier updates, independently.

    Args:
        predictor: a model, a baseline or an ensemble.
        every_s: seconds between updates, rounded to whole steps.
        updates: number of updates; the last is at the last observed step.

    Raises: DataError for predictions files, which contain only one update.

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
        """Forecast at every update; earlier ones only if the focal track was observed at the oldest."""
        latest = self.predictor(scenarios)
        streamed = [StreamedForecast(forecast.scenario_id, **forecast.arrays) for forecast in latest]
        stride = [self._steps(scenario) for scenario in scenarios]
        oldest = self.updates - 1
        rows: list[int] = []  # scenarios whose focal track was already observed at the oldest update
        for row, scenario in enumerate(scenarios):
            observed = scenario.num_observed - oldest * stride[row]
            last_seen = scenario.tracks.last_seen(observed)
            if last_seen[scenario.focal] >= 0:
                rows.append(row)
        for update in range(oldest, 0, -1):
            earlier = [scenarios[row].window(later=-update * stride[row]) for row in rows]
            forecasts = self.predictor(earlier)
            for row, forecast in zip(rows, forecasts, strict=True):
                streamed[row].earlier[update * stride[row]] = forecast
        return list[Forecast](streamed)

    def _steps(self, scenario: Scenario) -> int:
        """Return the number of steps between updates. Raises: DataError if they exceed the history."""
        stride = round(self.every_s / scenario.step_s)
        require(stride > 0, "every_s", f"must be at least a step of {scenario.step_s:g} s")
        observed = scenario.num_observed
        too_many = f"must be at most {observed}, the number of observed steps"
        require(self.updates <= observed, "updates", too_many)
        intervals = self.updates - 1
        longest_s = round((observed - 1) // intervals * scenario.step_s, 2)
        updates = f"{self.updates} updates within the {observed} observed steps"
        require(stride * intervals < observed, "every_s", f"must be at most {longest_s:g} s for {updates}")
        return stride


class EnsemblePredictor(Predictor):
    """One predictor, or several of equal weight, whose modes are merged into ``modes`` modes.

    A single mode is the probability-weighted mean future, a better single forecast than the most probable
    mode.

    Example:
        >>> ensemble = EnsemblePredictor([load_predictor("a.ckpt"), load_predictor("b.ckpt")])

    Raises: DataError if ``modes`` is not positive.
    """

    def __init__(self, predictors: Sequence[Predictor], modes: int = 6) -> None:
        require(modes > 0, "modes", f"must be positive, is {modes}")
        self.predictors = tuple(predictors)
        self.modes = modes
        self.name = " + ".join(predictor.name for predictor in predictors)
        self.fork_safe = all(predictor.fork_safe for predictor in predictors)
        ways: list[str] = []
        # A model with its mirrored forecasts is one training used in another way.
        training = predictors[0].training
        if all(predictor.training == training for predictor in predictors):
            self.training = training
            ways.append(predictors[-1].how)
        else:
            self.training = {}
        if modes != 6:
            ways.append(f"modes merged to {modes}")
        self.how = ", ".join(filter(None, ways))

    @property
    def members(self) -> tuple[Predictor, ...]:
        return self.predictors

    def __repr__(self) -> str:
        return f"EnsemblePredictor({self.modes} modes of {len(self.predictors)} predictors: {self.name})"

    def steps(self, scenario: Scenario) -> int:
        return self.predictors[0].steps(scenario)

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        by_predictor = [predictor(scenarios) for predictor in self.predictors]
        return [merge(forecasts, self.modes) for forecasts in zip(*by_predictor, strict=True)]


def merge(forecasts: Sequence[Forecast], modes: int = 6) -> Forecast:
    """Merge forecasts of one scenario, each with equal weight, by clustering all their modes.

    Tracks missing from any forecast are omitted. A merged mode is the probability-weighted mean of its
    members; so are speeds, headings (as directions) and, if all forecasts have them, scales.

    Raises: DataError if scenarios or horizons differ.
    """
    first = forecasts[0]
    for other in forecasts[1:]:
        _require_same(first.scenario_id, other.scenario_id, "scenario_id", "forecasts of {} and {}")
        steps = first.trajectory.shape[2]
        _require_same(steps, other.trajectory.shape[2], "trajectory", "forecasts of {} and {} steps")
    rows = np.stack([forecast.rows(first.track_id) for forecast in forecasts])
    rows = rows[:, (rows >= 0).all(axis=0)]

    def joined(name: str) -> NDArray[np.float64]:
        """Return the modes of all forecasts, one after another."""
        parts = [getattr(forecast, name)[row] for forecast, row in zip(forecasts, rows, strict=True)]
        return np.concatenate(parts, axis=1)

    probability = joined("probability") / len(forecasts)
    count = min(modes, probability.shape[1])
    fraction, weight = cluster_modes(joined("trajectory"), probability, count)

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = values.reshape(*values.shape[:2], int(np.prod(values.shape[2:])))
        return (fraction @ flat).reshape(*fraction.shape[:2], *values.shape[2:])

    angle = joined("heading")
    heading = np.stack((np.cos(angle), np.sin(angle)), -1)
    scaled = all(forecast.scale is not None for forecast in forecasts)
    return replace(
        first,
        track_id=first.track_id[rows[0]],
        trajectory=mean(joined("trajectory")),
        probability=weight,
        heading=direction(mean(heading)),
        speed=mean(joined("speed")),
        scale=mean(joined("scale")) if scaled else None,
    ).validate()


def _require_same(first: object, second: object, field: str, what: str) -> None:
    require(first == second, field, f"{what.format(first, second)} cannot be merged")
