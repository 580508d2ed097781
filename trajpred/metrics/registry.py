"""The metrics: functions, labels, units, and their columns in tables.

A metric is one row of :data:`METRICS`, which evaluation, tables, training curves, captions and the web page
read. docs/concepts/metrics.md defines the metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from trajpred.data.registry import REGISTRIES, Registry, package_of
from trajpred.data.splits import GROUPS
from trajpred.errors import DataError, quoted, require
from trajpred.metrics.calibration import fraction_within
from trajpred.metrics.displacement import Matched, joint_modes, missed, mode_errors, of_best, with_brier
from trajpred.metrics.plausibility import FuturesUntil, collision_probability

if TYPE_CHECKING:  # tables of results need no torch
    from torch import Tensor

Kind = Literal["displacement", "plausibility", "calibration", "joint", "streaming"]
#: Number of modes in breakdowns, in metrics by seconds ahead, and on the page.
MODES = 6


@dataclass(frozen=True)
class Metric:
    """A metric; lower values are better, except for calibration.

    Attributes:
        name: displacement metrics have K appended: ``minADE6``.
        compute: returns one value per agent ``[A]``, or per scene ``[S]``. Its argument depends on ``kind``.
        label: what is measured, for titles of curves.
        unit: ``m``, ``rad``, or empty for fractions.
        kind: what it is computed from: ``displacement`` from :class:`~trajpred.metrics.displacement.Errors`,
            ``joint`` from :class:`~trajpred.metrics.displacement.JointModes`; ``streaming`` (only with
            ``stress --updates``) from :class:`~trajpred.metrics.displacement.Matched`; and only with
            ``--plausibility``: ``plausibility`` from :class:`~trajpred.metrics.plausibility.FuturesUntil`,
            ``calibration`` from levels (:func:`~trajpred.metrics.calibration.laplace_levels`).
        ks: the K of a displacement metric in an evaluation.
        headline: the K of its columns in comparisons. A metric with any is in training curves; with K = 6
            also in breakdowns, by seconds ahead, and on the page.
        ahead: with ``--plausibility``, also evaluate it by seconds ahead.
        weight: the column that weights means, if any.

    Example:
        >>> register(Metric("maxFDE", lambda errors: errors.final.amax(1), "Worst endpoint"))
    """

    name: str
    compute: Callable[[Any], Any]
    label: str = ""
    unit: str = "m"
    kind: Kind = "displacement"
    ks: tuple[int, ...] = (1, MODES)
    headline: tuple[int, ...] = ()
    ahead: bool = False
    weight: str = ""

    @property
    def code(self) -> object:
        """The function whose package is the metric's."""
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


class Column(NamedTuple):
    """A metric in a table.

    Attributes:
        k: the number of most probable modes that count; None for metrics without K.
        ahead: seconds after which the future is taken to end; None for the whole future.
        after: seconds of history of an earlier update; None for the forecast itself.
    """

    metric: Metric
    k: int | None = None
    ahead: int | None = None
    after: float | None = None

    @property
    def title(self) -> str:
        """Metric and K, such as ``minFDE6``."""
        return self.metric.name if self.k is None else f"{self.metric.name}{self.k}"

    @property
    def name(self) -> str:
        """Name in a table of agents: ``minFDE6``, ``minFDE6_3s``, ``minFDE6_after_1.5s``."""
        parts = [self.title]
        if self.ahead is not None:
            parts.append(f"{self.ahead}s")
        if self.after is not None:
            parts.append(f"after_{self.after:g}s")
        return "_".join(parts)


_heading = partial(Metric, unit="rad", ks=(MODES,))
_plausibility = partial(Metric, kind="plausibility", unit="")
_calibration = partial(Metric, kind="calibration", unit="", weight="coordinates")
_joint = partial(Metric, kind="joint")
_actors = partial(Metric, kind="joint", unit="", weight="actors")
_streaming = partial(Metric, kind="streaming")
_BOTH = (1, MODES)
_MISSED = "Fraction missed by more than 2 m"
_STANDARD = (
    Metric("minADE", lambda errors: errors.average.amin(1), "Average error", headline=_BOTH),
    Metric("minFDE", lambda errors: errors.final.amin(1), "Final error", headline=_BOTH, ahead=True),
    Metric("MR", lambda errors: missed(errors.final.amin(1)), _MISSED, unit="", headline=_BOTH),
    Metric("brier-minFDE", lambda errors: with_brier(errors.final, errors.probability), headline=(MODES,)),
    Metric("brier-minADE", lambda errors: with_brier(errors.average, errors.probability)),
    Metric("ADE-of-best-FDE", lambda errors: of_best(errors.final, errors.average)),
    _heading("average heading error", lambda errors: of_best(errors.final, errors.average_heading)),
    _heading("final heading error", lambda errors: of_best(errors.final, errors.final_heading), ahead=True),
    _plausibility("off-road", lambda until: until.probability_of("off-road")),
    _plausibility("wrong-way", lambda until: until.probability_of("wrong-way")),
    _plausibility("infeasible", lambda until: until.probability_of("infeasible")),
    _plausibility("collision", collision_probability),
    _plausibility("off-road futures", lambda until: until.fraction_of_modes("off-road"), ahead=True),
    _plausibility("wrong-way futures", lambda until: until.fraction_of_modes("wrong-way"), ahead=True),
    _plausibility("infeasible futures", lambda until: until.fraction_of_modes("infeasible"), ahead=True),
    _plausibility("standing drift", FuturesUntil.stationary_drift, unit="m", ahead=True),
    _calibration("held by 50% interval", partial(fraction_within, level=0.5)),
    _calibration("held by 80% interval", partial(fraction_within, level=0.8), ahead=True),
    _calibration("held by 90% interval", partial(fraction_within, level=0.9)),
    _calibration("held by 95% interval", partial(fraction_within, level=0.95)),
    _joint("avgMinADE", lambda modes: modes.average.amin(1)),
    _joint("avgMinFDE", lambda modes: modes.final.amin(1)),
    _joint("avgBrierMinFDE", lambda modes: with_brier(modes.final, modes.probability)),
    _actors("actorMR", lambda modes: modes.missed),
    _actors("actorCR", lambda modes: modes.collided),
    _streaming("mode displacement", Matched.displacement),
    _streaming("weighted displacement", Matched.weighted_displacement),
    _streaming("switches", Matched.switched, unit=""),
    _streaming("probability change", Matched.probability_change, unit=""),
)
#: Names of the columns and numbers that are not metrics.
COLUMNS = (
    *("evaluation", "predictor", "scenario_id", "recording", "digest", "track_id", "group", *GROUPS),
    *("class", "city", "manoeuvre", "speed", "neighbours", "error"),
    *("predicted", "probability", "best", "coordinates", "complete", "actors", "count", "incomplete"),
)
#: All metrics by name, in the order of the tables.
METRICS: Registry[Metric] = REGISTRIES["metric"]
METRICS.taken = lambda: COLUMNS
METRICS.update({metric.name: metric for metric in _STANDARD})


def register(metric: Metric) -> None:
    """Add a metric to :data:`METRICS`. Raises: DataError if the name ends in a digit or is taken."""
    ends = f"must not end in a digit, to which K would be appended: {metric.name!r}"
    require(not metric.name[-1:].isdigit(), "name", ends)
    METRICS[metric.name] = metric


def metrics_of(kind: Kind) -> list[Metric]:
    """List the metrics of a kind."""
    return [metric for metric in METRICS.values() if metric.kind == kind]


def columns_of(kind: Kind) -> list[Column]:
    """List the columns of a kind over the whole future, by K."""
    if kind != "displacement":
        return [Column(metric) for metric in metrics_of(kind)]
    columns: list[Column] = []
    for metric in metrics_of(kind):
        columns += [Column(metric, k) for k in {*metric.ks, *metric.headline}]
    return sorted(columns, key=lambda column: column.k or 0)


def headline(k: int | None = None) -> list[Column]:
    """List the columns of comparisons by K, or only those of one ``k``."""
    columns = columns_of("displacement")
    return [column for column in columns if column.k in column.metric.headline and k in (None, column.k)]


def agent_metrics(
    trajectory: Tensor,
    probability: Tensor,
    target: Tensor,
    valid: Tensor,
    heading: Tensor | None = None,
    target_heading: Tensor | None = None,
    *,
    columns: Iterable[Column] | None = None,
) -> dict[str, Tensor]:
    """Compute metrics of each agent's K most probable modes: ``[A]`` by name, such as ``minFDE6``.

    NaN for agents with a probability that is not finite.

    Args:
        trajectory: ``[A, K, F, 2]`` metres; probability: ``[A, K]``.
        target: ``[A, F, 2]`` metres, in the frame of ``trajectory``; valid: ``[A, F]`` bool.
        heading: ``[A, K, F]`` radians; target_heading: ``[A, F]``, NaN at steps where it is unknown.
        columns: metrics and their K; by default all, heading metrics only if headings are given.

    Example:
        >>> import torch
        >>> ahead = torch.tensor([[[[1.0, 0.0], [2.0, 0.0]]]])
        >>> valid = torch.ones(1, 2, dtype=torch.bool)
        >>> agent_metrics(ahead, torch.ones(1, 1), torch.zeros(1, 2, 2), valid)["minADE1"]
        tensor([1.5000])
    """
    import torch

    if columns is None:
        columns = columns_of("displacement")
        if heading is None or target_heading is None:
            columns = [column for column in columns if column.metric.unit != "rad"]
    errors = mode_errors(trajectory, probability, target, valid, heading, target_heading)
    metrics: dict[str, Tensor] = {}
    for column in columns:
        values = column.metric.values(errors.top(column.k), len(trajectory))
        metrics[column.title] = torch.as_tensor(values)  # metrics of other packages may return arrays
    return metrics


def joint_metrics(
    trajectory: Tensor, probability: Tensor, target: Tensor, valid: Tensor, scene: Tensor
) -> dict[str, Tensor]:
    """Compute the joint metrics ``[S]`` of each scene by name.

    NaN for scenes whose probabilities are not finite. Arguments are those of
    :func:`~trajpred.metrics.displacement.joint_modes`.
    """
    import torch

    modes = joint_modes(trajectory, probability, target, valid, scene)
    metrics: dict[str, Tensor] = {}
    for metric in metrics_of("joint"):
        metrics[metric.name] = torch.as_tensor(metric.values(modes, len(probability)))
    return metrics
