"""Metrics computed by av2's own functions, one forecast after another, as a check of ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.data.environment import require_av2
from trajpred.evaluation.agent_scores import score_worlds
from trajpred.evaluation.agents import ScoredAgents
from trajpred.evaluation.results import Evaluation
from trajpred.metrics import agent_metrics
from trajpred.metrics.compute import NUM_WORLDS

#: The largest difference from av2 that rounding explains.
TOLERANCE = 1e-6
#: The metrics of :func:`_by_av2` of single agents, for each K.
AGENT = ("minADE", "minFDE", "brier-minFDE", "MR")
#: The metrics of :func:`_by_av2` of worlds.
WORLD = ("avgMinADE", "avgMinFDE", "avgBrierMinFDE", "actorMR", "actorCR")


class Av2Check:
    """Compare metrics with av2's functions, agent by agent and scene by scene, over all batches.

    Invalid future steps, which av2's functions do not know, are cut out before they are called. Worlds are
    compared in scenes whose agents have all future steps.

    Args:
        ks: as in :class:`~trajpred.evaluation.scores.Scores`.

    Raises:
        DataError: av2 is not installed.
    """

    def __init__(self, ks: Sequence[int]) -> None:
        require_av2()
        self.ks = ks
        #: By metric and batch, ours and av2's ``[2, N]``.
        self._values: dict[str, list[NDArray[np.float64]]] = defaultdict(list)

    def add(self, agents: ScoredAgents) -> None:
        """Compare the agents of a batch."""
        ours = agent_metrics(
            torch.from_numpy(agents.trajectory),
            torch.from_numpy(agents.probability),
            torch.from_numpy(agents.target),
            torch.from_numpy(agents.valid),
            self.ks,
            AGENT,
        )
        for k in self.ks:
            names = [f"{name}{k}" for name in AGENT]
            theirs = [_agent(agents, row, k) for row in range(len(agents))]
            self._compare(names, ours, theirs)
        self._add_worlds(agents)

    def _add_worlds(self, agents: ScoredAgents) -> None:
        """Compare the worlds of scenes whose agents have all future steps."""
        partial = agents.scene[agents.in_world & ~agents.valid.all(1)]
        rows = np.flatnonzero(agents.in_world & ~np.isin(agents.scene, partial))
        if len(rows) == 0:
            return
        ours, scene = score_worlds(agents, rows)
        theirs = [_world(agents, rows[scene == index]) for index in range(scene.max() + 1)]
        self._compare(WORLD, ours, theirs)

    def _compare(
        self, names: Sequence[str], ours: Mapping[str, torch.Tensor], theirs: Sequence[Sequence[float]]
    ) -> None:
        """Keep the values of both; ``theirs`` are rows in the order of ``names``, and may have more."""
        if len(theirs) == 0:
            return
        table = np.array(theirs)
        for column, name in enumerate(names):
            values = ours[name].double().numpy()
            self._values[name].append(np.stack((values, table[:, column])))

    def summary(self) -> dict[str, dict[str, float]]:
        """Return for each metric the ``count`` of comparisons, both means, and the largest difference."""
        summary: dict[str, dict[str, float]] = {}
        for name, batches in self._values.items():
            ours, theirs = np.concatenate(batches, axis=1)
            summary[name] = {
                "count": len(ours),
                "trajpred": float(ours.mean()),
                "av2": float(theirs.mean()),
                "difference": float(np.abs(ours - theirs).max()),
            }
        return summary


def _agent(agents: ScoredAgents, row: int, k: int) -> list[float]:
    """Return the metrics of the k most probable modes of an agent, which is a world of its own."""
    modes = _most_probable(agents, row, k)
    steps = agents.valid[row]
    path = agents.trajectory[row, modes][:, steps]
    target = agents.target[row, steps]
    return _by_av2(path[None], agents.probability[row, modes], target[None])


def _world(agents: ScoredAgents, rows: NDArray[np.int64]) -> list[float]:
    """Return the metrics of the most probable worlds of the agents ``rows`` of one scene."""
    modes = _most_probable(agents, rows[0], NUM_WORLDS)
    path = agents.trajectory[rows][:, modes]
    return _by_av2(path, agents.probability[rows[0], modes], agents.target[rows])


def _most_probable(agents: ScoredAgents, row: int, k: int) -> NDArray[np.int64]:
    """Return the k most probable modes of an agent."""
    probability = agents.probability[row, : agents.modes[row]]
    return np.argsort(-probability, kind="stable")[:k]


def _by_av2(path: NDArray[Any], p: NDArray[Any], target: NDArray[Any]) -> list[float]:
    """Return the metrics :data:`WORLD` of paths ``[N, K, F, 2]``, by av2."""
    from av2.datasets.motion_forecasting.eval import metrics as av2

    ade = av2.compute_world_ade(path, target)
    fde = av2.compute_world_fde(path, target)
    brier = av2.compute_world_brier_fde(path, target, p)
    missed = av2.compute_world_misses(path, target)
    collides = av2.compute_world_collisions(path)
    # Of equally good worlds the most probable one counts.
    best = int(np.where(fde == fde.min(), brier, np.inf).argmin())
    metrics = (ade.min(), fde.min(), brier[best], missed[:, best].mean(), collides[:, best].mean())
    return [float(value) for value in metrics]


def agrees_with_av2(result: Evaluation) -> bool:
    """Return whether no metric of an evaluation differs from av2's by more than rounding."""
    return all(values["difference"] <= TOLERANCE for values in result.av2.values())
