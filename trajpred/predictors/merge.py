"""Many futures of an agent -> K: weighted clustering of where they end. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.geometry import direction

Array = NDArray[np.float64]
#: A mode without any probability still counts this much for where its cluster lies.
_LEAST = 1e-9


def merge(forecasts: Sequence[Forecast], modes: int = 6) -> Forecast:
    """Several forecasts of one scenario as one: the modes of all, each forecast counting the same, merged.

    Tracks that not all of them know are left out. A merged mode is the mean of its members by probability;
    so are its speeds, headings (as directions) and scales, the latter only if all forecasts have them.

    Raises: DataError if they are not of the same scenario and horizon.
    """
    first = forecasts[0]
    for other in forecasts[1:]:
        same = other.scenario_id == first.scenario_id
        require(same, "scenario_id", f"forecasts of {first.scenario_id} and {other.scenario_id} do not merge")
        steps = [one.trajectory.shape[2] for one in (first, other)]
        require(
            steps[0] == steps[1], "trajectory", f"forecasts of {steps[0]} and {steps[1]} steps do not merge"
        )
    rows = np.stack([one.rows(first.track_id) for one in forecasts])
    rows = rows[:, (rows >= 0).all(axis=0)]

    def joined(name: str) -> Array:
        return np.concatenate([getattr(one, name)[row] for one, row in zip(forecasts, rows, strict=True)], 1)

    probability = joined("probability") / len(forecasts)
    share, weight = cluster(joined("trajectory")[:, :, -1], probability, min(modes, probability.shape[1]))

    def mean(values: Array) -> Array:
        flat = values.reshape(*values.shape[:2], int(np.prod(values.shape[2:])))
        return (share @ flat).reshape(*share.shape[:2], *values.shape[2:])

    angle = joined("heading")
    pointing = mean(np.stack((np.cos(angle), np.sin(angle)), -1))
    scaled = all(one.scale is not None for one in forecasts)
    return replace(
        first,
        track_id=first.track_id[rows[0]],
        trajectory=mean(joined("trajectory")),
        probability=weight,
        heading=direction(pointing),
        speed=mean(joined("speed")),
        scale=mean(joined("scale")) if scaled else None,
    ).validate()


def cluster(end: Array, probability: Array, modes: int = 6, rounds: int = 10) -> tuple[Array, Array]:
    """Weighted k-means (Lloyd 1982) on the end points of each agent's modes.

    The most probable mode is the first centre; the next ones are where probability times the squared
    distance to the centres so far is largest.

    Args:
        end: ``[A, M, 2]`` metres, M ≥ ``modes``; probability: ``[A, M]``.
        modes: K.
        rounds: of assignment at most.

    Returns:
        ``[A, K, M]``: how much of each cluster each mode is, rows sum to 1 (a cluster that lost its members
        is the mode nearest to where it was, with probability 0); and the clusters' probabilities ``[A, K]``.
    """
    A, M = probability.shape
    require(modes <= M, "modes", f"{M} futures cannot be merged to {modes}")
    centre = _spread(end, probability, modes)
    owner = np.full((A, M), -1)
    share = np.zeros((A, modes, M))
    for _ in range(rounds):
        before, owner = owner, _distance(end, centre).argmin(2)
        if np.array_equal(before, owner):
            break
        member = np.swapaxes(np.eye(modes)[owner], 1, 2) * np.maximum(probability, _LEAST)[:, None]
        share = member / np.maximum(member.sum(2, keepdims=True), _LEAST)
        centre = np.where(share.any(2, keepdims=True), share @ end, centre)
    nearest = np.eye(M)[_distance(centre, end).argmin(2)]
    weight = (np.eye(modes)[owner] * probability[..., None]).sum(1)
    return np.where(share.any(2, keepdims=True), share, nearest), weight


def _spread(end: Array, probability: Array, modes: int) -> Array:
    """First centres ``[A, K, 2]``, far apart and probable."""
    chosen = [probability.argmax(1)]
    distance = np.full(probability.shape, np.inf)
    for _ in range(modes - 1):
        latest = np.take_along_axis(end, chosen[-1][:, None, None], axis=1)
        distance = np.minimum(distance, np.square(end - latest).sum(-1))
        chosen.append((probability * distance).argmax(1))
    return np.take_along_axis(end, np.stack(chosen, 1)[..., None], axis=1)


def _distance(a: Array, b: Array) -> Array:
    """``[A, M, 2]``, ``[A, K, 2]`` -> squared metres ``[A, M, K]``."""
    return np.square(a[:, :, None] - b[:, None]).sum(-1)
