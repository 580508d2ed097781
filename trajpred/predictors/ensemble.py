"""Ensembles: the modes of several forecasts, merged by weighted clustering of their endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.geometry import direction
from trajpred.predictors.predictor import Predictor
from trajpred.scenario import Scenario

#: Least weight of a mode in the mean of a cluster; probabilities may be 0.
_MIN_WEIGHT = 1e-9
#: Maximum number of assignments to clusters.
_ROUNDS = 10


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
    share, weight = cluster(joined("trajectory")[:, :, -1], probability, min(modes, probability.shape[1]))

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


def cluster(
    end: NDArray[np.float64], probability: NDArray[np.float64], modes: int = 6
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cluster the endpoints of each agent's modes by weighted k-means (Lloyd 1982).

    The first centre is the most probable mode; each further one is the mode with the largest product of
    probability and squared distance to the centres so far.

    Args:
        end: ``[A, M, 2]`` metres; probability: ``[A, M]``.
        modes: the number of clusters K, at most M.

    Returns:
        ``[A, K, M]`` the share of each mode in each cluster, rows sum to 1 (a cluster left without members is
        the mode nearest to its centre, with probability 0); ``[A, K]`` the clusters' probabilities.
    """
    A, M = probability.shape
    require(modes <= M, "modes", f"{M} futures cannot be merged to {modes}")
    centre = _first_centres(end, probability, modes)
    owner = np.full((A, M), -1)
    share = np.zeros((A, modes, M))
    for _ in range(_ROUNDS):
        before, owner = owner, _squared_distance(end, centre).argmin(2)
        if np.array_equal(before, owner):
            break
        member = np.swapaxes(np.eye(modes)[owner], 1, 2) * np.maximum(probability, _MIN_WEIGHT)[:, None]
        share = member / np.maximum(member.sum(2, keepdims=True), _MIN_WEIGHT)
        centre = np.where(share.any(2, keepdims=True), share @ end, centre)
    nearest = np.eye(M)[_squared_distance(centre, end).argmin(2)]
    weight = (np.eye(modes)[owner] * probability[..., None]).sum(1)
    return np.where(share.any(2, keepdims=True), share, nearest), weight


def _first_centres(
    end: NDArray[np.float64], probability: NDArray[np.float64], modes: int
) -> NDArray[np.float64]:
    """Choose ``[A, K, 2]`` initial centres that are probable and far apart."""
    chosen = [probability.argmax(1)]
    distance = np.full(probability.shape, np.inf)
    for _ in range(modes - 1):
        latest = np.take_along_axis(end, chosen[-1][:, None, None], axis=1)
        distance = np.minimum(distance, np.square(end - latest).sum(-1))
        chosen.append((probability * distance).argmax(1))
    return np.take_along_axis(end, np.stack(chosen, 1)[..., None], axis=1)


def _squared_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[A, M, 2]``, ``[A, K, 2]`` -> ``[A, M, K]`` square metres."""
    return np.square(a[:, :, None] - b[:, None]).sum(-1)
