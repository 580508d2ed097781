"""Means of displacement metrics over a data set, for training.

A module of its own, since torchmetrics takes more than a second to import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from trajpred.data.splits import GROUPS
from trajpred.metrics.registry import agent_metrics, columns_of


class ForecastMetrics(Metric):
    """Means over groups of agents of the headline metrics, for all their K.

    Every agent counts once, however batched. Agents without a valid future step are omitted. A forecast with
    a non-finite value or probability makes its group's mean NaN.

    Args:
        groups: names of the groups of agents to average over.

    Example:
        >>> metrics = ForecastMetrics(groups=("all",))
        >>> ahead = torch.tensor([[[[1.0, 0.0], [2.0, 0.0]]]])
        >>> metrics.update(ahead, torch.ones(1, 1), torch.zeros(1, 2, 2), torch.ones(1, 2, dtype=torch.bool))
        >>> metrics.compute()["all"]["minADE1"]
        1.5
    """

    is_differentiable = False
    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, groups: Sequence[str] = GROUPS) -> None:
        super().__init__()
        self.groups = tuple(groups)
        self.columns = [column for column in columns_of("displacement") if column.metric.headline]
        self.names = [column.title for column in self.columns]
        total = torch.zeros(len(self.groups), len(self.names), dtype=torch.float64)
        count = torch.zeros(len(self.groups), dtype=torch.int64)
        self.add_state("total", total, dist_reduce_fx="sum")
        self.add_state("count", count, dist_reduce_fx="sum")

    def update(
        self,
        trajectory: Tensor,
        probability: Tensor,
        target: Tensor,
        valid: Tensor,
        group: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Add the agents of one batch; see :func:`agent_metrics`.

        Args:
            group: for each group its agents ``[A]`` bool; an agent may be in several. ``"all"``, every agent,
                need not be given.

        Raises: ValueError if ``group`` does not contain exactly the groups of this metric.
        """
        has_truth = valid.any(dim=1)
        members: dict[str, Tensor] = {}
        if "all" in self.groups:
            members["all"] = torch.ones_like(has_truth)
        members.update(group or {})
        if set(members) != set(self.groups):
            raise ValueError(f"groups given: {sorted(members)}; expected: {sorted(self.groups)}")
        counted = torch.stack([members[name] for name in self.groups]) & has_truth
        metrics = agent_metrics(trajectory, probability, target, valid, columns=self.columns)
        values = torch.stack(list(metrics.values()), dim=1).to(self.total.dtype)
        # Not a matrix product: 0 * NaN would add the values of omitted agents to the sums.
        self.total += torch.where(counted[..., None], values, 0.0).sum(dim=1)
        self.count += counted.sum(dim=1)

    def compute(self) -> dict[str, dict[str, float]]:
        """Return each group's means by name (``minADE6`` …) and ``count``, the number of agents.

        A group without agents has ``count`` 0 and no means.
        """
        means = (self.total / self.count[:, None]).tolist()
        results: dict[str, dict[str, float]] = {}
        for row, (group, count) in enumerate(zip(self.groups, self.count.tolist(), strict=True)):
            results[group] = {"count": count}
            if count:
                results[group].update(zip(self.names, means[row], strict=True))
        return results
