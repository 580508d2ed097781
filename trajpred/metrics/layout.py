"""The columns of the tables of results: which metrics appear where, and for which K."""

from __future__ import annotations

from trajpred.metrics.registry import Kind, Metric, Table, metrics_of

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
