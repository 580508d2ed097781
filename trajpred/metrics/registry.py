"""The registry of metrics: the function, label and unit of each.

A metric is one entry of :data:`METRICS`. Evaluation, JSON, tables, training curves, captions and the web page
read the registry. ``standard.py`` contains the metrics that ship with trajpred, and ``layout.py`` the columns
of the tables. docs/concepts/metrics.md defines the metrics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trajpred.data.registry import REGISTRIES, Registry, package_of
from trajpred.errors import DataError, quoted, require

Kind = Literal["displacement", "plausibility", "world", "streaming"]
Table = Literal["training", "progress", "results", "interval", "breakdown", "side by side", "seconds ahead"]

#: The tables that have columns of K = 6 only.
TABLES_OF_SIX: tuple[Table, ...] = ("breakdown", "seconds ahead")


@dataclass(frozen=True)
class Metric:
    """A metric, of which lower values are better.

    Attributes:
        name: the name, not ending in a digit; displacement metrics are evaluated for several K, which is
            appended: ``minADE6``.
        compute: returns one value per agent ``[A]``, or per scene ``[S]``. Its argument depends on ``kind``.
        label: what is measured, for titles.
        unit: ``m``, ``rad``, or empty for shares.
        kind: ``displacement`` (computed from :class:`~trajpred.metrics.displacement.Errors`),
            ``plausibility`` (from :class:`~trajpred.metrics.plausibility.FuturesUntil`, only with
            ``--plausibility``), ``world`` (from :class:`~trajpred.metrics.compute.Worlds`), or ``streaming``
            (from :class:`~trajpred.metrics.consistency.Matched`, only with ``--streaming``).
        tables: the tables in which the metric appears, and for which K there: ``training`` (validation
            curves), ``progress`` (the progress bar), ``results`` (comparisons of predictors), ``interval``
            (comparisons with intervals, values per scenario), ``breakdown`` (horizons, breakdowns, the page),
            ``side by side`` (breakdowns of several groups) and ``seconds ahead`` (horizons, only with
            ``--plausibility``). Every metric appears in the main table of an evaluation. Those in
            ``breakdown`` have K = 6 there and cannot use headings; ``seconds ahead`` has K = 6, too.
        ks: evaluate a displacement metric for these K only, whatever is asked for.
        per_actor: a world metric that is averaged over actors, not over scenes, as av2's leaderboard did.

    Example:
        >>> register(Metric("maxFDE", lambda errors: errors.final.amax(1), "Worst endpoint"))
    """

    name: str
    compute: Callable[[Any], Any]
    label: str
    unit: str = "m"
    kind: Kind = "displacement"
    tables: Mapping[Table, tuple[int, ...]] = field(default_factory=dict)
    ks: tuple[int, ...] = ()
    per_actor: bool = False

    @property
    def code(self) -> object:
        """What tells the package of the metric."""
        return self.compute

    def values(self, scored: Any, count: int) -> Any:
        """Compute the values ``[count]``. Raises: DataError if the metric returns anything else."""
        values = self.compute(scored)
        shape = getattr(values, "shape", None)
        if shape != (count,):
            returned = quoted(values) if shape is None else f"shape {[*shape]}"
            metric = f"metric {self.name!r} of {package_of(self.compute)}"
            raise DataError(f"{metric} must return one value per agent or scene, {count}, not {returned}")
        return values


#: Names of the numbers beside the metrics.
NUMBERS = ("count", "actors", "incomplete")
#: All metrics by name, in the order of the tables.
METRICS: Registry[Metric] = REGISTRIES["metric"]
METRICS.taken = lambda: NUMBERS


def register(metric: Metric) -> None:
    """Add a metric to :data:`METRICS`.

    Raises:
        DataError: the name ends in a digit or is taken, or a table has a K that it cannot show.
    """
    ends = f"must not end in a digit, which would be read as K: {metric.name!r}"
    require(not metric.name[-1:].isdigit(), "name", ends)
    for table in TABLES_OF_SIX:
        ks = metric.tables.get(table, (6,))
        require(ks == (6,), "tables", f"must have K = 6 in {table}")
    if metric.ks:
        for ks in metric.tables.values():
            evaluated = set(ks) <= set(metric.ks)
            require(evaluated, "tables", f"have other K than ks: {metric.ks}")
    METRICS[metric.name] = metric


def metrics_of(kind: Kind) -> list[Metric]:
    """List the metrics of a kind."""
    return [metric for metric in METRICS.values() if metric.kind == kind]


def metric_names(kind: Kind) -> tuple[str, ...]:
    """List the names, without K, of the metrics of a kind."""
    return tuple(metric.name for metric in metrics_of(kind))


def metric_of(column: str) -> Metric:
    """Return the metric of a column, such as ``minADE`` for ``minADE6``.

    Raises:
        KeyError: there is no such metric.
    """
    if column in METRICS:
        return METRICS[column]
    name = re.sub(r"\d+$", "", column)
    return METRICS[name]


#: For each table of a metric the K of its columns; metrics without K have none.
Layout = dict[Table, tuple[int, ...]]

AVERAGE_ERROR: Layout = {
    "training": (1, 6),
    "progress": (6,),
    "results": (1, 6),
    "interval": (6,),
    "breakdown": (6,),
}
FINAL_ERROR: Layout = {
    "training": (1, 6),
    "progress": (6,),
    "results": (1, 6),
    "interval": (1, 6),
    "breakdown": (6,),
    "side by side": (6,),
    "seconds ahead": (6,),
}
MISS_RATE: Layout = {
    "training": (1, 6),
    "results": (1, 6),
    "interval": (6,),
    "breakdown": (6,),
    "side by side": (6,),
}
BRIER: Layout = {
    "training": (1, 6),
    "results": (6,),
    "interval": (6,),
    "breakdown": (6,),
}
#: Metrics of headings and plausibility that are reported by seconds ahead.
AHEAD: Layout = {"seconds ahead": (6,)}
#: The central interval of the predicted Laplace distributions whose coverage is reported beside them.
INTERVAL = 0.8
#: The column of that coverage, which is no metric: neither lower nor higher values are better.
HELD = f"held by {INTERVAL:.0%} interval"


def columns(table: Table) -> tuple[str, ...]:
    """List the columns of a table, such as ``minADE6``, by K; metrics that have no K last."""
    errors = metrics_of("displacement")
    names: list[str] = []
    for k in _ks(errors, table):
        names += [f"{metric.name}{k}" for metric in errors if k in metric.tables.get(table, ())]
    names += names_in(table, "plausibility")
    names += names_in(table, "world")
    names += names_in(table, "streaming")
    return tuple(names)


def _ks(metrics: list[Metric], table: Table) -> list[int]:
    """List the K that any of the metrics has in a table, in ascending order."""
    ks: set[int] = set()
    for metric in metrics:
        ks.update(metric.tables.get(table, ()))
    return sorted(ks)


def paired_columns() -> tuple[str, ...]:
    """List the columns that models are compared by, scenario by scenario."""
    names = columns("interval") + columns("breakdown")
    return tuple(dict.fromkeys(names))


def names_in(table: Table, kind: Kind = "displacement") -> tuple[str, ...]:
    """List the names, without K, of the metrics of a kind in a table."""
    return tuple(metric.name for metric in metrics_of(kind) if table in metric.tables)
