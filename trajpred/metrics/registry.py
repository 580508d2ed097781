"""The registry of metrics: each one's function, label, unit, and the tables it appears in.

A metric is one entry of :data:`METRICS`. Evaluation, JSON, tables, training curves, captions and the web page
read the registry. docs/concepts/metrics.md defines the metrics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trajpred.errors import require
from trajpred.metrics.consistency import Matched
from trajpred.metrics.displacement import missed, of_best, with_brier
from trajpred.metrics.plausibility import FuturesUntil, collision_share

Kind = Literal["displacement", "plausibility", "world", "streaming"]
Table = Literal["training", "progress", "results", "interval", "breakdown", "side by side", "seconds ahead"]


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
            ``plausibility`` (from :class:`~trajpred.metrics.plausibility.FuturesUntil`, with ``--beyond``
            only),
            ``world`` (from :class:`~trajpred.metrics.compute.Worlds`), or ``streaming`` (from
            :class:`~trajpred.metrics.consistency.Matched`, with ``--streaming`` only).
        tables: the tables in which the metric appears, and for which K there: ``training`` (validation
            curves), ``progress`` (the progress bar), ``results`` (comparisons of predictors), ``interval``
            (comparisons with intervals, values per scenario), ``breakdown`` (horizons, breakdowns, the page),
            ``side by side`` (breakdowns of several groups) and ``seconds ahead`` (horizons, with ``--beyond``
            only). Every metric appears in the main table of an evaluation. Those in ``breakdown`` have K = 6
            there and cannot use headings; ``seconds ahead`` has K = 6, too.
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


#: All metrics by name, in the order of the tables.
METRICS: dict[str, Metric] = {}


def register(metric: Metric) -> None:
    """Add a metric to :data:`METRICS`, or replace the one of the same name. Raises: DataError."""
    ends = f"must not end in a digit, which would be read as K: {metric.name!r}"
    require(not metric.name[-1:].isdigit(), "name", ends)
    for table in ("breakdown", "seconds ahead"):
        other = metric.tables.get(table, (6,)) != (6,)
        require(not other, "tables", f"must have K = 6 in {table}")
    evaluated = {k for ks in metric.tables.values() for k in ks} <= {*metric.ks} or not metric.ks
    require(evaluated, "tables", f"have other K than ks: {metric.ks}")
    METRICS[metric.name] = metric


def metrics_of(kind: Kind) -> list[Metric]:
    """List the metrics of a kind."""
    return [one for one in METRICS.values() if one.kind == kind]


def columns(table: Table) -> tuple[str, ...]:
    """List the columns of a table, such as ``minADE6``, by K; metrics that have no K last."""
    errors = metrics_of("displacement")
    ks = sorted({k for metric in errors for k in metric.tables.get(table, ())})
    names: list[str] = []
    for k in ks:
        names += [f"{metric.name}{k}" for metric in errors if k in metric.tables.get(table, ())]
    for kind in ("plausibility", "world", "streaming"):
        names += names_in(table, kind)
    return tuple(names)


def paired_columns() -> tuple[str, ...]:
    """List the columns that models are compared by, scenario by scenario."""
    return tuple(dict.fromkeys((*columns("interval"), *columns("breakdown"))))


def names_in(table: Table, kind: Kind = "displacement") -> tuple[str, ...]:
    """List the names, without K, of the metrics of a kind in a table."""
    return tuple(metric.name for metric in metrics_of(kind) if table in metric.tables)


def metric_of(column: str) -> Metric:
    """Return the metric of a column, such as ``minADE`` for ``minADE6``. Raises: KeyError."""
    return METRICS[column] if column in METRICS else METRICS[re.sub(r"\d+$", "", column)]


#: Tables of the four main metrics.
_MAIN: dict[Table, tuple[int, ...]] = {"training": (1, 6), "results": (1, 6), "breakdown": (6,)}
_ERRORS: dict[Table, tuple[int, ...]] = {**_MAIN, "progress": (6,), "interval": (6,)}
_AHEAD: dict[Table, tuple[int, ...]] = {"seconds ahead": (6,)}
_FINAL: dict[Table, tuple[int, ...]] = {**_ERRORS, **_AHEAD, "interval": (1, 6), "side by side": (6,)}
_MISSED: dict[Table, tuple[int, ...]] = {**_MAIN, "interval": (6,), "side by side": (6,)}
_BRIER: dict[Table, tuple[int, ...]] = {**_MAIN, "results": (6,), "interval": (6,)}
_BEST = "of the mode with the best endpoint"


def _probability(rule: str) -> Callable[[FuturesUntil], Any]:
    """Return the metric of the probability of breaking a rule."""
    return lambda until: until.probability_of(rule)


def _share(rule: str) -> Callable[[FuturesUntil], Any]:
    """Return the metric of the share of the futures that break a rule."""
    return lambda until: until.share_of_modes(rule)


for _metric in (
    Metric("minADE", lambda e: e.average.amin(1), "Average error", tables=_ERRORS),
    Metric("minFDE", lambda e: e.final.amin(1), "Final error", tables=_FINAL),
    Metric("MR", lambda e: missed(e.final.amin(1)), "Share missed by more than 2 m", "", tables=_MISSED),
    Metric(
        "brier-minFDE",
        lambda e: with_brier(e.final, e.probability),
        "Final error with Brier score",
        tables=_BRIER,
    ),
    Metric("brier-minADE", lambda e: with_brier(e.average, e.probability), "Average error with Brier score"),
    Metric("ADE-of-best-FDE", lambda e: of_best(e.final, e.average), f"Average error {_BEST}"),
    Metric(
        "average heading error",
        lambda e: of_best(e.final, e.average_heading),
        f"Average heading error {_BEST}",
        "rad",
        ks=(6,),
    ),
    Metric(
        "final heading error",
        lambda e: of_best(e.final, e.final_heading),
        f"Final heading error {_BEST}",
        "rad",
        ks=(6,),
        tables=_AHEAD,
    ),
    Metric("off-road", _probability("off-road"), "Probability of leaving the road", "", "plausibility"),
    Metric(
        "wrong-way",
        _probability("wrong-way"),
        "Probability of driving against the traffic",
        "",
        "plausibility",
    ),
    Metric("infeasible", _probability("infeasible"), "Probability of infeasible motion", "", "plausibility"),
    Metric(
        "collision",
        lambda until: collision_share(until.futures),
        "Probability of a collision",
        "",
        "plausibility",
    ),
    Metric(
        "off-road futures",
        _share("off-road"),
        "Share of the futures that leave the road",
        "",
        "plausibility",
        tables=_AHEAD,
    ),
    Metric(
        "wrong-way futures",
        _share("wrong-way"),
        "Share of the futures that drive against the traffic",
        "",
        "plausibility",
        tables=_AHEAD,
    ),
    Metric(
        "infeasible futures",
        _share("infeasible"),
        "Share of the futures with infeasible motion",
        "",
        "plausibility",
        tables=_AHEAD,
    ),
    Metric(
        "standing drift",
        FuturesUntil.standing_drift,
        "Mean distance of the futures of standing agents from where they stand",
        kind="plausibility",
        tables=_AHEAD,
    ),
    Metric("avgMinADE", lambda w: w.average.amin(1), "Average error", kind="world"),
    Metric("avgMinFDE", lambda w: w.final.amin(1), "Final error", kind="world"),
    Metric(
        "avgBrierMinFDE",
        lambda w: with_brier(w.final, w.probability),
        "Final error with Brier score",
        kind="world",
    ),
    Metric("actorMR", lambda w: w.missed, "Share of missed actors", "", "world", per_actor=True),
    Metric("actorCR", lambda w: w.collided, "Share of colliding actors", "", "world", per_actor=True),
    Metric("mode displacement", Matched.displacement, "Displacement of the modes", kind="streaming"),
    Metric(
        "weighted displacement",
        Matched.weighted_displacement,
        "Displacement of the modes, by probability",
        kind="streaming",
    ),
    Metric("switches", Matched.switched, "Switches of the most probable mode", "", "streaming"),
    Metric("probability change", Matched.probability_change, "Change of the probabilities", "", "streaming"),
):
    register(_metric)
