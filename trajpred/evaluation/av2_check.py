"""Metrics computed by av2's own functions, one forecast after another, as a check of ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.environment import require_av2
from trajpred.evaluation.agents import ScoredAgents
from trajpred.evaluation.results import Evaluation
from trajpred.metrics import agent_metrics, world_metrics

#: The largest difference from av2 that rounding explains.
TOLERANCE = 1e-6
#: The metrics of :func:`_by_av2` of single agents, for each K, and of worlds.
AGENT = ("minADE", "minFDE", "brier-minFDE", "MR")
WORLD = ("avgMinADE", "avgMinFDE", "avgBrierMinFDE", "actorMR", "actorCR")


class Av2Check:
    """Compare metrics with av2's functions, agent by agent and scene by scene, over all batches.

    Invalid future steps, which av2's functions do not know, are cut out before they are called. Worlds are
    compared in scenes whose agents have all future steps.

    Args:
        ks: as in :class:`~trajpred.evaluation.scores.Scores`.

    Raises: DataError if av2 is not installed.
    """

    def __init__(self, ks: Sequence[int]) -> None:
        require_av2()
        self.ks = ks
        #: By metric and batch, ours and av2's ``[2, N]``.
        self._values: dict[str, list[NDArray[np.float64]]] = defaultdict(list)

    def add(self, agents: ScoredAgents) -> None:
        """Compare the agents of a batch."""
        arrays = agents.trajectory, agents.probability, agents.target, agents.valid
        path, p, target, valid = map(torch.from_numpy, arrays)
        ours = agent_metrics(path, p, target, valid, self.ks, AGENT)
        for k in self.ks:
            self._compare(
                [f"{name}{k}" for name in AGENT], ours, [_agent(agents, i, k) for i in range(len(p))]
            )
        partial = agents.scene[agents.in_world & ~agents.valid.all(1)]
        rows = np.flatnonzero(agents.in_world & ~np.isin(agents.scene, partial))
        _, first, scene = np.unique(agents.scene[rows], return_index=True, return_inverse=True)
        if len(rows):
            given = path[rows], p[rows][first], target[rows], valid[rows], torch.from_numpy(scene)
            theirs = [_world(agents, rows[scene == i]) for i in range(len(first))]
            self._compare(WORLD, world_metrics(*given), theirs)

    def _compare(
        self, names: Sequence[str], ours: Mapping[str, torch.Tensor], theirs: Sequence[Sequence[float]]
    ) -> None:
        for name, values in zip(names, zip(*theirs, strict=True), strict=False):  # of agents, no collisions
            self._values[name].append(np.stack((ours[name].double().numpy(), values)))

    def summary(self) -> dict[str, dict[str, float]]:
        """Return for each metric the ``count`` of comparisons, both means, and the largest difference."""
        found: dict[str, dict[str, float]] = {}
        for name, batches in self._values.items():
            ours, theirs = np.concatenate(batches, axis=1)
            means = {"trajpred": float(ours.mean()), "av2": float(theirs.mean())}
            found[name] = {"count": len(ours), **means, "difference": float(np.abs(ours - theirs).max())}
        return found


def _agent(agents: ScoredAgents, i: int, k: int) -> list[float]:
    """Return the metrics of the k most probable modes of an agent, which is a world of its own."""
    order = np.argsort(-agents.probability[i, : agents.modes[i]], kind="stable")[:k]
    steps = agents.valid[i]
    path, target = agents.trajectory[i, order][:, steps], agents.target[i, steps]
    return _by_av2(path[None], agents.probability[i, order], target[None])


def _world(agents: ScoredAgents, rows: NDArray[np.int64]) -> list[float]:
    """Return the metrics of the agents ``rows`` of one scene."""
    modes = slice(int(agents.modes[rows[0]]))
    return _by_av2(agents.trajectory[rows, modes], agents.probability[rows[0], modes], agents.target[rows])


def _by_av2(path: NDArray[Any], p: NDArray[Any], target: NDArray[Any]) -> list[float]:
    """Return the metrics :data:`WORLD` of paths ``[N, K, F, 2]``, by av2."""
    from av2.datasets.motion_forecasting.eval import metrics as av2

    fde = av2.compute_world_fde(path, target)
    brier = np.where(fde == fde.min(), av2.compute_world_brier_fde(path, target, p), np.inf)
    best = int(brier.argmin())  # of equally good worlds the most probable one
    shares = av2.compute_world_misses(path, target), av2.compute_world_collisions(path)
    errors = av2.compute_world_ade(path, target).min(), fde.min(), brier[best]
    return [float(x) for x in (*errors, *(share[:, best].mean() for share in shares))]


def agrees_with_av2(result: Evaluation) -> bool:
    """Return whether no metric of an evaluation differs from av2's by more than rounding."""
    return all(one["difference"] <= TOLERANCE for one in result.av2.values())
