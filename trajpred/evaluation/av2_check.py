"""Metrics computed by av2's own functions, one forecast after another, as a check of ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.environment import require_av2
from trajpred.errors import DataError
from trajpred.evaluation.agents import ScoredAgents
from trajpred.evaluation.results import Evaluation
from trajpred.forecast import Forecast
from trajpred.metrics import agent_metrics, world_metrics

#: The largest difference from av2 that rounding explains.
TOLERANCE = 1e-6
#: The row that compares a predictions file as av2 and as trajpred read it.
READ = "as read from the file"


class Av2Check:
    """Compare metrics with av2's functions, agent by agent and scene by scene, over all batches.

    Invalid future steps, which av2's functions do not know, are cut out before they are called. Worlds are
    compared in scenes whose agents have all future steps.

    Args:
        ks: as in :class:`~trajpred.evaluation.scores.Scores`.
        file: a predictions file that av2's ``ChallengeSubmission`` reads as well; its modes are compared.

    Raises: DataError if av2 is not installed or rejects the file.
    """

    def __init__(self, ks: Sequence[int], file: Path | None = None) -> None:
        require_av2()
        self.ks = ks
        self._submission = None if file is None else _read(file)
        self._sums: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(3))
        self._largest: dict[str, float] = defaultdict(float)

    def add(self, agents: ScoredAgents, forecasts: Sequence[Forecast]) -> None:
        """Compare the agents of a batch, with the forecasts that they come from."""
        path, p, target, valid = (
            torch.from_numpy(getattr(agents, name))
            for name in ("trajectory", "probability", "target", "valid")
        )
        ours = agent_metrics(path, p, target, valid, self.ks)
        self._compare(ours, [self._agent(agents, i) for i in range(len(agents))])
        partial = agents.scene[agents.in_world & ~agents.valid.all(1)]
        rows = agents.in_world & ~np.isin(agents.scene, partial)
        if rows.any():
            _, scene = np.unique(agents.scene[rows], return_inverse=True)
            first = np.searchsorted(scene, np.arange(scene.max() + 1))
            worlds = world_metrics(
                path[rows], p[rows][first], target[rows], valid[rows], torch.from_numpy(scene)
            )
            parts = (np.flatnonzero(rows)[scene == i] for i in range(len(first)))
            self._compare(worlds, [_world(agents, part) for part in parts])
        if self._submission is not None:
            found = [_difference(one, self._submission) for one in forecasts if len(one.track_id)]
            self._note(READ, np.zeros(len(found)), np.array(found))

    def _compare(self, ours: Mapping[str, torch.Tensor], theirs: Sequence[Mapping[str, float]]) -> None:
        for name in theirs[0] if theirs else ():
            self._note(name, ours[name].double().numpy(), np.array([float(one[name]) for one in theirs]))

    def _note(self, name: str, ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> None:
        self._sums[name] += (len(ours), ours.sum(), theirs.sum())
        self._largest[name] = max(self._largest[name], float(np.abs(ours - theirs).max(initial=0.0)))

    def _agent(self, agents: ScoredAgents, i: int) -> dict[str, float]:
        """Return the metrics of one agent, by av2."""
        from av2.datasets.motion_forecasting.eval import metrics as av2

        found: dict[str, float] = {}
        steps, order = agents.valid[i], np.argsort(-agents.probability[i, : agents.modes[i]], kind="stable")
        target = agents.target[i, steps]
        for k in self.ks:
            path, p = agents.trajectory[i, order[:k]][:, steps], agents.probability[i, order[:k]]
            ade, fde = av2.compute_ade(path, target), av2.compute_fde(path, target)
            best = int(fde.argmin())
            # Among equally good modes the most probable one counts.
            brier = av2.compute_brier_fde(path, target, p)[fde == fde[best]].min()
            brier_ade = av2.compute_brier_ade(path, target, p)[ade == ade.min()].min()
            missed = av2.compute_is_missed_prediction(path, target)[best]
            values = (ade.min(), fde[best], missed, brier, brier_ade)
            names = ("minADE", "minFDE", "MR", "brier-minFDE", "brier-minADE")
            found |= {f"{name}{k}": value for name, value in zip(names, values, strict=True)}
        return found

    def summary(self) -> dict[str, dict[str, float]]:
        """Return for each metric the ``count`` of comparisons, both means, and the largest difference."""
        found = {}
        for name, sums in self._sums.items():
            count, ours, theirs = sums.tolist()
            means = {"trajpred": ours / count, "av2": theirs / count} if count and name != READ else {}
            found[name] = {"count": int(count), **means, "difference": self._largest[name]}
        return found


def _world(agents: ScoredAgents, rows: NDArray[np.int64]) -> dict[str, float]:
    """Return the metrics of one scene's worlds, by av2."""
    from av2.datasets.motion_forecasting.eval import metrics as av2

    modes = int(agents.modes[rows[0]])
    path, p = agents.trajectory[rows, :modes], agents.probability[rows[0], :modes]
    target = agents.target[rows]
    fde = av2.compute_world_fde(path, target)
    brier = np.where(fde == fde.min(), av2.compute_world_brier_fde(path, target, p), np.inf)
    best = int(brier.argmin())  # of equally good worlds the most probable one
    return {
        "avgMinADE": av2.compute_world_ade(path, target).min(),
        "avgMinFDE": fde.min(),
        "avgBrierMinFDE": brier[best],
        "actorMR": av2.compute_world_misses(path, target)[:, best].mean(),
        "actorCR": av2.compute_world_collisions(path)[:, best].mean(),
    }


def _read(file: Path) -> dict[str, Any]:
    """Read the predictions of a file with av2. Raises: DataError with av2's reason."""
    from av2.datasets.motion_forecasting.eval.submission import ChallengeSubmission

    try:
        predictions: dict[str, Any] = ChallengeSubmission.from_parquet(file).predictions
        return predictions
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise DataError(f"is rejected by av2's ChallengeSubmission ({error})", file=file) from None


def _difference(forecast: Forecast, submission: Mapping[str, Any]) -> float:
    """Return the largest difference between a forecast's modes and those that av2 read, in any order."""
    p, paths = submission[forecast.scenario_id]

    def ordered(p: NDArray[np.float64], path: NDArray[np.float64]) -> NDArray[np.float64]:
        modes = np.concatenate((p[:, None], path.reshape(len(path), -1)), axis=1)
        return modes[np.lexsort(modes.T[::-1])]

    rows = zip(forecast.track_id.tolist(), forecast.probability, forecast.trajectory, strict=True)
    return max(float(np.abs(ordered(own, path) - ordered(p, paths[name])).max()) for name, own, path in rows)


def agrees_with_av2(result: Evaluation) -> bool:
    """Return whether no metric of an evaluation differs from av2's by more than rounding."""
    return all(one["difference"] <= TOLERANCE for one in result.av2.values())
