"""The official metrics on synthetic forecasts, beside av2's functions called one forecast after the other."""

from __future__ import annotations

import numpy as np
import torch
from av2.datasets.motion_forecasting.eval import metrics as av2
from numpy.typing import NDArray

from trajpred.benchmark.timing import median_ms, use_threads
from trajpred.metrics import agent_metrics, world_metrics

#: Agents at once, as many as 16 scenarios of Argoverse 2 have.
CHUNK = 500
NAMES = ("minADE", "minFDE", "MR", "brier-minFDE", "brier-minADE")


@use_threads()
def metrics_figures(forecasts: int = 10_000, repeats: int = 3, agents: int = 10) -> dict[str, float]:
    """CPU ms of all metrics at K = 6 for single agents and for worlds of ``agents`` each; ratios to av2's."""
    random = np.random.default_rng(0)
    target = random.normal(0, 30, (forecasts, 60, 2))
    trajectory = target[:, None] + random.normal(0, 2, (forecasts, 6, 60, 2))
    probability = random.dirichlet(np.ones(6), forecasts)
    scenes = forecasts // agents
    single = median_ms(lambda: _single(trajectory, probability, target), repeats)[0]
    worlds = median_ms(lambda: _worlds(trajectory, probability[:scenes], target, agents), repeats)[0]
    theirs = median_ms(lambda: _single_av2(trajectory, probability, target), 1)[0]
    their_worlds = median_ms(lambda: _worlds_av2(trajectory, probability[:scenes], target, agents), 1)[0]
    return {
        f"{forecasts} forecasts, ours, CPU ms": single,
        f"{forecasts} forecasts, av2 one by one, CPU ms": theirs,
        "av2 / ours": theirs / single,
        f"{scenes} worlds of {agents} agents, ours, CPU ms": worlds,
        f"{scenes} worlds of {agents} agents, av2 one by one, CPU ms": their_worlds,
        "worlds, av2 / ours": their_worlds / worlds,
    }


def _single(
    trajectory: NDArray[np.float64], probability: NDArray[np.float64], target: NDArray[np.float64]
) -> None:
    valid = torch.ones(CHUNK, 60, dtype=torch.bool)
    for start in range(0, len(target), CHUNK):
        path, p, truth = (
            torch.from_numpy(x[start : start + CHUNK]) for x in (trajectory, probability, target)
        )
        agent_metrics(path, p, truth, valid[: len(path)], ks=(6,), names=NAMES)


def _single_av2(
    trajectory: NDArray[np.float64], probability: NDArray[np.float64], target: NDArray[np.float64]
) -> None:
    for modes, p, truth in zip(trajectory, probability, target, strict=True):
        ade, fde = av2.compute_ade(modes, truth), av2.compute_fde(modes, truth)
        ade.min(), fde.min(), av2.compute_is_missed_prediction(modes, truth).all()
        av2.compute_brier_fde(modes, truth, p)[fde.argmin()]
        av2.compute_brier_ade(modes, truth, p)[ade.argmin()]


def _worlds(
    trajectory: NDArray[np.float64],
    probability: NDArray[np.float64],
    target: NDArray[np.float64],
    agents: int,
) -> None:
    scene = torch.arange(CHUNK // agents).repeat_interleave(agents)
    for first in range(0, len(probability), CHUNK // agents):
        rows = slice(first * agents, first * agents + len(scene))
        p = torch.from_numpy(probability[first : first + CHUNK // agents])
        path, truth = (torch.from_numpy(x[rows]) for x in (trajectory, target))
        valid = torch.ones(len(path), 60, dtype=torch.bool)
        world_metrics(path, p, truth, valid, scene[: len(path)])


def _worlds_av2(
    trajectory: NDArray[np.float64],
    probability: NDArray[np.float64],
    target: NDArray[np.float64],
    agents: int,
) -> None:
    for i, p in enumerate(probability):
        rows = slice(i * agents, (i + 1) * agents)
        paths, truth = trajectory[rows], target[rows]
        fde = av2.compute_world_fde(paths, truth)
        best = fde.argmin()
        av2.compute_world_ade(paths, truth).min()
        av2.compute_world_brier_fde(paths, truth, p)[best]
        av2.compute_world_misses(paths, truth)[:, best].mean()
        av2.compute_world_collisions(paths)[:, best].mean()
