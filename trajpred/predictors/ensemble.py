"""Ensembles: the modes of several forecasts, merged by weighted clustering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.geometry import direction
from trajpred.modes import cluster
from trajpred.predictors.predictor import Predictor
from trajpred.scenario import Scenario


class EnsemblePredictor(Predictor):
    """One predictor, or several of equal weight, whose modes are merged to ``modes``.

    One mode is the mean future, weighted by probability: a better single answer than the most probable mode.

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
        # A model and its mirrored forecasts are one training, used in another way.
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

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        by_predictor = [predictor(scenarios) for predictor in self.predictors]
        return [merge(forecasts, self.modes) for forecasts in zip(*by_predictor, strict=True)]


def merge(forecasts: Sequence[Forecast], modes: int = 6) -> Forecast:
    """Merge forecasts of one scenario, each with equal weight, by clustering all their modes.

    Tracks missing from any forecast are omitted. A merged mode is the mean of its members weighted by
    probability; so are speeds, headings (as directions) and, if all forecasts have them, scales.

    Raises: DataError if scenario or horizon differ.
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
        parts: list[NDArray[np.float64]] = []
        for forecast, row in zip(forecasts, rows, strict=True):
            values = getattr(forecast, name)
            parts.append(values[row])
        return np.concatenate(parts, axis=1)

    probability = joined("probability") / len(forecasts)
    count = min(modes, probability.shape[1])
    share, weight = cluster(joined("trajectory"), probability, count)

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = values.reshape(*values.shape[:2], int(np.prod(values.shape[2:])))
        return (share @ flat).reshape(*share.shape[:2], *values.shape[2:])

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
