"""Displacement metrics of single agents, and their means over a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from trajpred.metrics.displacement import Errors, by_probability, displacement, mode_errors
from trajpred.metrics.registry import METRICS, metrics_of, names_in


def agent_metrics(
    trajectory: Tensor,
    probability: Tensor,
    target: Tensor,
    valid: Tensor,
    ks: Sequence[int] = (1, 6),
    names: Sequence[str] | None = None,
    heading: Tensor | None = None,
    target_heading: Tensor | None = None,
) -> dict[str, Tensor]:
    """Compute displacement metrics of each agent for its K most probable modes: ``[A]`` by name and K.

    Args:
        trajectory: ``[A, K, F, 2]`` metres; probability: ``[A, K]``.
        target: ``[A, F, 2]`` metres, in the frame of ``trajectory``; valid: ``[A, F]`` bool.
        ks: the K; a metric's own ``ks`` take precedence.
        names: the metrics; by default all, heading errors only where headings are given.
        heading: ``[A, K, F]`` radians; target_heading: ``[A, F]``.

    Example:
        >>> ahead = torch.tensor([[[[1.0, 0.0], [2.0, 0.0]]]])
        >>> valid = torch.ones(1, 2, dtype=torch.bool)
        >>> agent_metrics(ahead, torch.ones(1, 1), torch.zeros(1, 2, 2), valid, [1])["minADE1"]
        tensor([1.5000])
    """
    errors = mode_errors(trajectory, probability, target, valid, heading, target_heading)
    chosen = metrics_of("displacement") if names is None else [METRICS[name] for name in names]
    if names is None and heading is None:
        chosen = [one for one in chosen if one.unit != "rad"]
    found: dict[str, Tensor] = {}
    for k in sorted({*ks, *(k for one in chosen for k in one.ks)}):
        top = errors.top(k)
        found |= {f"{one.name}{k}": one.compute(top) for one in chosen if k in (one.ks or ks)}
    return found


def horizon_metrics(
    trajectory: Tensor,
    probability: Tensor,
    target: Tensor,
    valid: Tensor,
    steps: Sequence[int],
    names: Sequence[str],
    k: int = 6,
) -> dict[int, dict[str, Tensor]]:
    """Compute metrics as if the future ended after each number of ``steps``: ``[A]`` by steps, name and K.

    NaN for agents that are not visible at that step. Other arguments as in :func:`agent_metrics`.
    """
    chosen = by_probability(probability)[:, :k]
    error = torch.where(valid[:, None], displacement(trajectory, target), 0.0)
    error, p = error.take_along_dim(chosen[..., None], 1), probability.take_along_dim(chosen, 1)
    average = error.cumsum(2) / valid.cumsum(1)[:, None]
    found = {}
    for step in steps:
        visible = valid[:, step - 1, None]
        ade, fde = (torch.where(visible, x[..., step - 1], torch.nan) for x in (average, error))
        found[step] = {f"{name}{k}": METRICS[name].compute(Errors(ade, fde, p)) for name in names}
    return found


class ForecastMetrics(Metric):
    """Means over groups of agents of the registry's ``training`` metrics.

    Every agent counts once, in whatever batches. Agents without a valid future step are omitted. A non-finite
    forecast is not: it makes its group's mean NaN.

    Args:
        ks: for each k, evaluate the k most probable modes.
        groups: names of the groups of agents to average over.
        sync_on_compute: add up the sums of all processes; False where one process evaluates alone.

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
        self.ks, self.groups, self.metrics = tuple(ks), tuple(groups), names_in("training")
        self.names = [f"{name}{k}" for k in self.ks for name in self.metrics]
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
