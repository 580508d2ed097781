"""Means over a whole split from counts and sums: nothing of a single agent or scene is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trajpred.evaluation.judged import GROUPS, Columns
from trajpred.metrics import METRICS

Means = dict[str, dict[str, float]]


class AgentTally:
    """Means of metrics over the agents of each group.

    Args:
        names: of the metrics.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.count = dict.fromkeys(GROUPS, 0)
        # Of every group: how many agents have a value, and the sum of these.
        self._known = {group: np.zeros(len(self.names)) for group in GROUPS}
        self._sum = {group: np.zeros(len(self.names)) for group in GROUPS}

    def add(self, columns: Columns, keep: NDArray[np.bool_] | None = None) -> None:
        """Count agents in.

        Args:
            columns: groups and metrics ``[A]``.
            keep: ``[A]``, which of them; all of them by default.
        """
        values = np.stack([columns[name].astype(np.float64) for name in self.names], axis=1)
        for group in GROUPS:
            rows = columns[group] if keep is None else columns[group] & keep
            self.count[group] += int(rows.sum())
            self._known[group] += (~np.isnan(values[rows])).sum(axis=0)
            self._sum[group] += np.nansum(values[rows], axis=0)

    def means(self, names: Sequence[str] | None = None) -> Means:
        """For each group ``count`` and the means of ``names``, by default of all.

        Agents for which a metric is not defined (NaN) count in none of its means; an infinite error shows.
        """
        rows = [self.names.index(name) for name in names or self.names]
        found: Means = {}
        for group, count in self.count.items():
            known, total = self._known[group], self._sum[group]
            means = {self.names[i]: float(total[i] / known[i]) for i in rows if known[i]}
            found[group] = {"count": count, **means}
        return found


class WorldTally:
    """Means of the world metrics over scenes. Of actors they are shares of all actors, as av2's leaderboard
    counted them."""

    def __init__(self) -> None:
        self.count = self.actors = self.incomplete = 0
        self._sum: dict[str, float] = defaultdict(float)

    def add(self, columns: Columns, agents: NDArray[np.int64]) -> None:
        """Count scenes in: their metrics, and how many agents each has, ``[S]`` all of them."""
        self.count, self.actors = self.count + len(agents), self.actors + int(agents.sum())
        for name, values in columns.items():
            self._sum[name] += float((values * agents).sum() if _of_actors(name) else values.sum())

    def means(self) -> dict[str, float]:
        """Means by name, ``count`` of scenes and ``actors``, and how many scenes are ``incomplete``: not all
        of their scored tracks were forecast. No means where no scene has worlds."""
        if not self.count:
            return {"count": 0, "incomplete": self.incomplete}
        found = {n: x / (self.actors if _of_actors(n) else self.count) for n, x in self._sum.items()}
        return {"count": self.count, "incomplete": self.incomplete, "actors": self.actors, **found}


def _of_actors(name: str) -> bool:
    return METRICS[name].per_actor
