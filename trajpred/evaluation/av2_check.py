"""Metrics computed by av2's own functions, one forecast after another, as a check of ours."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.environment import require_av2
from trajpred.evaluation.agents import ScoredAgents, score_joint, tensors
from trajpred.metrics import METRICS, Column, agent_metrics
from trajpred.metrics.displacement import JOINT_MODES

if TYPE_CHECKING:
    from trajpred.evaluation.results import Evaluation

#: Largest difference from av2 that rounding can explain.
TOLERANCE = 1e-6
#: Metrics of :func:`_by_av2` for single agents, at K = 1 and 6.
AGENT = ("minADE", "minFDE", "brier-minFDE", "MR")
#: Metrics of :func:`_by_av2` for joint futures.
JOINT = ("avgMinADE", "avgMinFDE", "avgBrierMinFDE", "actorMR", "actorCR")


class Av2Check:
    """Compare metrics with av2's functions, agent by agent and scene by scene, over all batches.

    Invalid future steps, which av2's functions do not support, are cut out before the calls. Joint futures
    are compared in scenes whose agents have all future steps.

    Raises:
        DataError: av2 is not installed.
    """

    def __init__(self) -> None:
        require_av2()
        #: By metric and batch, ours and av2's ``[2, N]``.
        self._values: dict[str, list[NDArray[np.float64]]] = defaultdict(list)

    def add(self, agents: ScoredAgents) -> None:
        """Compare the agents of a batch, and their joint futures."""
        for k in (1, 6):
            columns = [Column(METRICS[name], k) for name in AGENT]
            ours = agent_metrics(*tensors(agents), columns=columns)
            self._compare(ours, [_agent(agents, row, k) for row in range(len(agents))])
        partial = agents.scene[agents.is_joint & ~agents.valid.all(1)]
        rows = np.flatnonzero(agents.is_joint & ~np.isin(agents.scene, partial))
        if len(rows):
            metrics = score_joint(agents, rows)
            scenes = [rows[agents.scene[rows] == scene] for scene in np.unique(agents.scene[rows])]
            ours = {name: metrics[name] for name in JOINT}
            self._compare(ours, [_joint(agents, scene) for scene in scenes])

    def _compare(self, ours: dict[str, Any], theirs: list[list[float]]) -> None:
        """Keep both values; ``theirs`` are rows in the order of ``ours``, possibly followed by more."""
        if len(theirs) == 0:
            return
        table = np.array(theirs)
        for column, (name, values) in enumerate(ours.items()):
            self._values[name].append(np.stack((values.double().numpy(), table[:, column])))

    def summary(self) -> dict[str, dict[str, float]]:
        """Return each metric's ``count`` of comparisons, both means, and the largest difference."""
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
    """Return the metrics of an agent's k most probable modes, as for a joint future of one agent."""
    best = _most_probable(agents, row, k)
    steps = agents.valid[row]
    path = agents.trajectory[row, best][:, steps]
    return _by_av2(path[None], agents.probability[row, best], agents.target[row, steps][None])


def _joint(agents: ScoredAgents, rows: NDArray[np.int64]) -> list[float]:
    """Score the agents ``rows`` of one scene, in their most probable joint modes."""
    best = _most_probable(agents, int(rows[0]), JOINT_MODES)
    return _by_av2(agents.trajectory[rows][:, best], agents.probability[rows[0], best], agents.target[rows])


def _most_probable(agents: ScoredAgents, row: int, k: int) -> NDArray[np.int64]:
    """Return the k most probable modes of an agent, or all if it has fewer."""
    probability = agents.probability[row, : agents.modes[row]]
    return np.argsort(-probability, kind="stable")[:k]


def _by_av2(path: NDArray[Any], p: NDArray[Any], target: NDArray[Any]) -> list[float]:
    """Return the metrics :data:`JOINT` of paths ``[N, K, F, 2]``, by av2."""
    from av2.datasets.motion_forecasting.eval import metrics as av2

    ade = av2.compute_world_ade(path, target)
    fde = av2.compute_world_fde(path, target)
    brier = av2.compute_world_brier_fde(path, target, p)
    missed = av2.compute_world_misses(path, target)
    collides = av2.compute_world_collisions(path)
    # Among equally good joint modes, the most probable counts.
    best = int(np.where(fde == fde.min(), brier, np.inf).argmin())
    metrics = (ade.min(), fde.min(), brier[best], missed[:, best].mean(), collides[:, best].mean())
    return [float(value) for value in metrics]


def agrees_with_av2(result: Evaluation) -> bool:
    """Return whether no metric of an evaluation differs from av2's by more than rounding."""
    return all(values["difference"] <= TOLERANCE for values in result.av2.values())
