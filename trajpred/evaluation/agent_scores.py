"""Metrics of each scored agent: over the whole future, and as if it ended after every second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trajpred.data.geometry import norm, rotate
from trajpred.evaluation.agents import ScoredAgents, whole_seconds
from trajpred.metrics import (
    Metric,
    agent_metrics,
    columns,
    final_error,
    horizon_metrics,
    metrics_of,
    names_in,
    world_metrics,
)
from trajpred.metrics.calibration import laplace_levels
from trajpred.metrics.registry import HELD, INTERVAL


def agent_scores(
    agents: ScoredAgents, ks: Sequence[int], plausibility: bool = False
) -> dict[str, NDArray[Any]]:
    """Compute all metrics of each agent: ``[A]`` by column.

    Args:
        ks: evaluate the k most probable modes for each k.
        plausibility: also compute plausibility metrics.
    """
    heading, target_heading = tensors(agents, "heading", "target_heading")
    path, p, target, valid = tensors(agents)
    errors = agent_metrics(path, p, target, valid, ks, heading=heading, target_heading=target_heading)
    scores = {name: x.float().numpy() for name, x in errors.items()}
    if plausibility:
        whole = agents.until()
        scores |= {metric.name: metric.values(whole, len(agents)) for metric in metrics_of("plausibility")}
    return scores


class HorizonScores(NamedTuple):
    """Metrics as if the future ended at a horizon.

    Attributes:
        visible: ``[A]`` agents that are visible then.
        values: ``[A, M]``, the columns :func:`horizon_columns`.
    """

    visible: NDArray[np.bool_]
    values: NDArray[np.float32]


def horizon_columns(plausibility: bool = False) -> tuple[str, ...]:
    """List the metrics by seconds ahead, those of ``--plausibility`` included where ``plausibility`` is."""
    names = columns("breakdown")
    if plausibility:
        names += (*columns("seconds ahead"), HELD)
    return tuple(dict.fromkeys(names))


def horizon_scores(agents: ScoredAgents, plausibility: bool = False) -> dict[str, HorizonScores]:
    """Compute the metrics of each agent as if the future ended after ``"1 s"``, ``"2 s"`` …

    Args:
        plausibility: also compute headings and plausibility, see :func:`horizon_columns`.
    """
    names = names_in("breakdown")
    headings: list[torch.Tensor] = []
    more: list[Metric] = []
    if plausibility:
        names = tuple(dict.fromkeys((*names, *names_in("seconds ahead"))))
        headings = tensors(agents, "heading", "target_heading")
        more = [metric for metric in metrics_of("plausibility") if "seconds ahead" in metric.tables]
    ends = whole_seconds(agents.valid.shape[1], agents.step_s)
    path, p, target, valid = tensors(agents)
    errors = horizon_metrics(path, p, target, valid, [*ends.values()], names, *headings)
    scores = {}
    for second, step in ends.items():
        columns_then = {name: x.float().numpy() for name, x in errors[step].items()}
        for metric in more:
            columns_then[metric.name] = metric.values(agents.until(step), len(agents))
        if plausibility:
            columns_then[HELD] = held_by_interval(agents, step)
        values = [columns_then[name] for name in horizon_columns(plausibility)]
        scores[f"{second:g} s"] = HorizonScores(agents.valid[:, step - 1], np.stack(values, axis=1))
    return scores


def held_by_interval(agents: ScoredAgents, step: int) -> NDArray[np.float64]:
    """Compute the share ``[A]`` of the two true coordinates that the intervals of the nearest mode contain.

    Both the mode and its intervals are those of the future step ``step`` (1 is the first). NaN where the
    truth is unknown, or the forecasts have no scales.
    """
    if agents.scale is None:
        return np.full(len(agents), np.nan)
    nearest = norm(agents.target[:, None, step - 1] - agents.trajectory[:, :, step - 1]).argmin(1)
    level = interval_levels(agents, nearest, slice(step - 1, step))[:, 0]
    share = (level <= INTERVAL).mean(-1)
    return np.where(agents.valid[:, step - 1], share, np.nan)


def interval_levels(
    agents: ScoredAgents, mode: NDArray[np.int64], steps: slice = slice(None)
) -> NDArray[np.float64]:
    """Compute the levels ``[A, steps, 2]`` of the intervals of ``mode`` ``[A]`` that just contain the truth.

    The forecasts must have scales. Levels are :func:`~trajpred.metrics.calibration.laplace_levels`, along the
    axes of each agent's own frame.
    """
    assert agents.scale is not None
    rows = np.arange(len(agents))
    error = agents.target[:, steps] - agents.trajectory[rows, mode, steps]
    error = rotate(error, -agents.origin_heading[:, None])
    return laplace_levels(error, agents.scale[rows, mode, steps])


def best_modes(agents: ScoredAgents) -> NDArray[np.int64]:
    """Return the mode ``[A]`` with the least final error; the first one of an agent without a known step."""
    error = final_error(*tensors(agents, "trajectory", "target", "valid")).numpy()
    return np.where(np.isnan(error), np.inf, error).argmin(axis=1)


def score_worlds(
    agents: ScoredAgents, rows: NDArray[np.int64]
) -> tuple[dict[str, Tensor], NDArray[np.int64]]:
    """Compute the world metrics of the scenes of the agents ``rows`` ``[N]``.

    Returns: ``[S]`` by name, and the index ``[N]`` of each agent's scene.
    """
    _, first, scene = np.unique(agents.scene[rows], return_index=True, return_inverse=True)
    metrics = world_metrics(
        torch.from_numpy(agents.trajectory[rows]),
        torch.from_numpy(agents.probability[rows][first]),
        torch.from_numpy(agents.target[rows]),
        torch.from_numpy(agents.valid[rows]),
        torch.from_numpy(scene),
    )
    return metrics, scene


def tensors(agents: ScoredAgents, *names: str) -> list[torch.Tensor]:
    """Return columns of ``agents`` as tensors, by default forecasts and truth."""
    names = names or ("trajectory", "probability", "target", "valid")
    return [torch.from_numpy(getattr(agents, name)) for name in names]
