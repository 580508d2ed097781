"""What a batch of judged agents scores, as columns: one value for each agent, or for each scene."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.evaluation.judged import Columns, Judged
from trajpred.forecast import SAME_PROBABILITY
from trajpred.metrics import agent_metrics, horizon_metrics, names_in, world_metrics


def displacement(some: Judged, ks: Sequence[int]) -> Columns:
    """Errors of place and heading, ``[A]`` float32 by name."""
    path, p, target, valid, heading, target_heading = _tensors(some, "heading", "target_heading")
    found = agent_metrics(path, p, target, valid, ks, heading=heading, target_heading=target_heading)
    return {name: x.float().numpy() for name, x in found.items()}


def horizons(some: Judged) -> dict[str, Columns]:
    """For ``"1 s"``, ``"2 s"`` … the groups and the breakdown metrics of the agents that are there then."""
    path, p, target, valid = _tensors(some)
    ends = whole_seconds(some.valid.shape[1], some.step_s)
    values = horizon_metrics(path, p, target, valid, [*ends.values()], names_in("breakdown"))
    found = {}
    for second, step in ends.items():
        there = some.valid[:, step - 1]
        member = some.member | {name: x.float().numpy() for name, x in values[step].items()}
        found[f"{second:g} s"] = {name: x[there] for name, x in member.items()}
    return found


def in_worlds(some: Judged) -> NDArray[np.bool_]:
    """``[A]``: scored agents of scenes in which all of these were forecast, with the same probabilities.

    Mode k of all of them is then one possible world; marginal forecasts of several agents are none.
    """
    rows = np.flatnonzero(some.member["scored"] & some.complete[some.scene])
    scene, probability = some.scene[rows], some.probability[rows]
    first = np.searchsorted(scene, scene)  # of each one's scene
    differ = np.abs(probability - probability[first]).max(axis=1, initial=0.0) > SAME_PROBABILITY
    chosen = np.zeros(len(some), bool)
    chosen[rows[~np.isin(scene, scene[differ])]] = True
    return chosen


def worlds(some: Judged, chosen: NDArray[np.bool_]) -> tuple[Columns, NDArray[np.int64]]:
    """World metrics ``[S]`` of the scenes of the ``chosen`` agents ``[A]``, and how many agents each has."""
    if not chosen.any():
        return {}, np.zeros(0, np.int64)
    known, index = np.unique(some.scene[chosen], return_inverse=True)
    start = np.searchsorted(index, np.arange(len(known)))
    path, p, target, valid = (x[chosen] for x in (some.trajectory, some.probability, some.target, some.valid))
    found = world_metrics(*map(torch.from_numpy, (path, p[start], target, valid, index)))
    return {name: x.numpy() for name, x in found.items()}, np.bincount(index)


def whole_seconds(steps: int, step_s: float) -> dict[int, int]:
    """Whole seconds within ``steps`` -> their number of steps; those that fall between steps are left out."""
    count = {s: round(s / step_s) for s in range(1, int(1.01 * steps * step_s) + 1)}
    return {s: n for s, n in count.items() if n <= steps and abs(n * step_s - s) < 0.01 * s}


def _tensors(some: Judged, *more: str) -> list[torch.Tensor]:
    names = ("trajectory", "probability", "target", "valid", *more)
    return [torch.from_numpy(getattr(some, name)) for name in names]
