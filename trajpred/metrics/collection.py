"""Metrics over a data set: running sums of the per-agent values, correct across batches and processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from trajpred.metrics.agents import agent_metrics

#: Reported for every K, with K appended: ``minADE1``, ``brier-minFDE6`` …
NAMES = ("minADE", "minFDE", "MR", "brier-minFDE")


class ForecastMetrics(Metric):
    """Means over groups of agents of minADE, minFDE, miss rate and brier-minFDE.

    Every agent counts once, however it was batched. Agents without a valid future step are left out. A
    forecast that is not finite is not: it makes the group's mean NaN, so that it cannot go unnoticed.

    Args:
        ks: for each k, judge the k most probable modes.
        groups: names of the groups of agents to average over.
        sync_on_compute: whether processes share their sums; False where one process scores alone.

    Example:
        >>> metrics = ForecastMetrics(ks=(1,), groups=("all",))
        >>> ahead = torch.tensor([[[[1.0, 0.0], [2.0, 0.0]]]])
        >>> metrics.update(ahead, torch.ones(1, 1), torch.zeros(1, 2, 2), torch.ones(1, 2, dtype=torch.bool))
        >>> metrics.compute()["all"]["minADE1"]
        1.5
    """

    is_differentiable = False
    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(
        self,
        ks: Sequence[int] = (1, 6),
        groups: Sequence[str] = ("focal", "scored", "all"),
        sync_on_compute: bool = True,
    ) -> None:
        super().__init__(sync_on_compute=sync_on_compute)
        self.ks, self.groups = tuple(ks), tuple(groups)
        self.names = [f"{name}{k}" for k in self.ks for name in NAMES]
        zeros = torch.zeros(len(self.groups), len(self.names), dtype=torch.float64)
        self.add_state("total", zeros, dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(len(self.groups), dtype=torch.int64), dist_reduce_fx="sum")

    def update(
        self,
        trajectory: Tensor,
        probability: Tensor,
        target: Tensor,
        valid: Tensor,
        group: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Add the agents of one batch.

        Args:
            trajectory: ``[A, K, F, 2]`` metres.
            probability: ``[A, K]``.
            target: ``[A, F, 2]`` metres, in the frame of ``trajectory``.
            valid: ``[A, F]`` bool.
            group: for each group the agents ``[A]`` bool that belong to it; an agent may be in several.
                ``"all"`` need not be given, it is every agent.

        Raises:
            ValueError: ``group`` has not exactly the groups of this metric.
        """
        judged = valid.any(dim=1)
        member = {"all": torch.ones_like(judged)} if "all" in self.groups else {}
        member |= group or {}
        if set(member) != set(self.groups):
            raise ValueError(f"groups given: {sorted(member)}; expected: {sorted(self.groups)}")
        chosen = torch.stack([member[name] & judged for name in self.groups])
        values = self.values(trajectory, probability, target, valid).to(self.total.dtype)
        # Not a matrix product: 0 * NaN would carry the values of agents left out into the sums.
        self.total += torch.where(chosen[..., None], values, 0.0).sum(dim=1)
        self.count += chosen.sum(dim=1)

    def values(self, trajectory: Tensor, probability: Tensor, target: Tensor, valid: Tensor) -> Tensor:
        """Each agent's own, ``[A, len(names)]`` in the order of ``names``; arguments as in :meth:`update`."""
        found = agent_metrics(trajectory, probability, target, valid, self.ks, NAMES)
        return torch.stack([found[name] for name in self.names], dim=1)

    def compute(self) -> dict[str, dict[str, float]]:
        """For each group its means by name (``minADE6`` …) and ``count``, the number of agents.

        A group without agents has no means: only ``count``, which is 0.
        """
        means = (self.total / self.count[:, None]).tolist()
        results: dict[str, dict[str, float]] = {}
        for name, count, row in zip(self.groups, self.count.tolist(), means, strict=True):
            results[name] = {"count": count} | (dict(zip(self.names, row, strict=True)) if count else {})
        return results
