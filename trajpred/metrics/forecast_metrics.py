"""Means of displacement metrics over a data set, for training.

Apart from what computes the metrics of single agents: torchmetrics takes more than a second to import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from trajpred.metrics.compute import agent_metrics
from trajpred.metrics.layout import columns
from trajpred.metrics.registry import metric_of
from trajpred.splits import GROUPS


class ForecastMetrics(Metric):
    """Means over groups of agents of the registry's ``training`` metrics.

    Every agent counts once, in whatever batches. Agents without a valid future step are omitted. A non-finite
    forecast, or one with a non-finite probability, is not: it makes its group's mean NaN.

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
        self.groups, self.names = tuple(groups), columns("training")
        metric = {name: metric_of(name).name for name in self.names}
        self.metrics = sorted({*metric.values()})
        self.ks = sorted({int(name.removeprefix(one)) for name, one in metric.items()})
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
        """Add the agents of one batch; see :func:`agent_metrics`.

        Args:
            group: for each group its agents ``[A]`` bool; an agent may be in several. ``"all"``, every agent,
                need not be given.

        Raises: ValueError if ``group`` does not contain exactly the groups of this metric.
        """
        known = valid.any(dim=1)
        member = {"all": torch.ones_like(known)} if "all" in self.groups else {}
        member |= group or {}
        if set(member) != set(self.groups):
            raise ValueError(f"groups given: {sorted(member)}; expected: {sorted(self.groups)}")
        chosen = torch.stack([member[name] & known for name in self.groups])
        found = agent_metrics(trajectory, probability, target, valid, self.ks, self.metrics)
        values = torch.stack([found[name] for name in self.names], dim=1).to(self.total.dtype)
        # Not a matrix product: 0 * NaN would add the values of omitted agents to the sums.
        self.total += torch.where(chosen[..., None], values, 0.0).sum(dim=1)
        self.count += chosen.sum(dim=1)

    def compute(self) -> dict[str, dict[str, float]]:
        """Return for each group its means by name (``minADE6`` …) and ``count``, the number of agents.

        A group without agents has ``count`` 0 and no means.
        """
        means = (self.total / self.count[:, None]).tolist()
        return {
            group: {"count": count} | (dict(zip(self.names, row, strict=True)) if count else {})
            for group, count, row in zip(self.groups, self.count.tolist(), means, strict=True)
        }
