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
        self.predictors, self.modes = tuple(predictors), modes
        self.name = " + ".join(one.name for one in predictors)
        same = all(one.training == predictors[0].training for one in predictors)
        # A model and its mirrored forecasts are one training, used in another way.
        self.training = predictors[0].training if same else {}
        reduced = f"modes merged to {modes}" if modes != 6 else ""
        self.how = ", ".join(filter(None, (predictors[-1].how if same else "", reduced)))
        self.forks = all(one.forks for one in predictors)

    @property
    def members(self) -> tuple[Predictor, ...]:
        return self.predictors

    def __repr__(self) -> str:
        return f"EnsemblePredictor({self.modes} modes of {len(self.predictors)} predictors: {self.name})"

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        each = [predictor(scenarios) for predictor in self.predictors]
        return [merge(forecasts, self.modes) for forecasts in zip(*each, strict=True)]


def merge(forecasts: Sequence[Forecast], modes: int = 6) -> Forecast:
    """Merge forecasts of one scenario, each with equal weight, by clustering all their modes.

    Tracks missing from any forecast are omitted. A merged mode is the mean of its members weighted by
    probability; so are speeds, headings (as directions) and, if all forecasts have them, scales.

    Raises: DataError if scenario or horizon differ.
    """
    first = forecasts[0]
    for other in forecasts[1:]:
        a, b = first.scenario_id, other.scenario_id
        require(a == b, "scenario_id", f"forecasts of {a} and {b} cannot be merged")
        F, G = first.trajectory.shape[2], other.trajectory.shape[2]
        require(F == G, "trajectory", f"forecasts of {F} and {G} steps cannot be merged")
    rows = np.stack([one.rows(first.track_id) for one in forecasts])
    rows = rows[:, (rows >= 0).all(axis=0)]

    def joined(name: str) -> NDArray[np.float64]:
        return np.concatenate([getattr(one, name)[row] for one, row in zip(forecasts, rows, strict=True)], 1)

    probability = joined("probability") / len(forecasts)
    share, weight = cluster(joined("trajectory"), probability, min(modes, probability.shape[1]))

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = values.reshape(*values.shape[:2], int(np.prod(values.shape[2:])))
        return (share @ flat).reshape(*share.shape[:2], *values.shape[2:])

    angle = joined("heading")
    scaled = all(one.scale is not None for one in forecasts)
    return replace(
        first,
        track_id=first.track_id[rows[0]],
        trajectory=mean(joined("trajectory")),
        probability=weight,
        heading=direction(mean(np.stack((np.cos(angle), np.sin(angle)), -1))),
        speed=mean(joined("speed")),
        scale=mean(joined("scale")) if scaled else None,
    ).validate()
