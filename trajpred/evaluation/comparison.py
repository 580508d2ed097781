"""Compare results scene by scene, with intervals by bootstrap over scenes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.splits import PAIRED_GROUPS
from trajpred.errors import DataError, require
from trajpred.evaluation.results import Evaluation
from trajpred.metrics import metric_names, paired_columns

RESAMPLES = 10_000


class Interval(NamedTuple):
    """A mean over scenarios, with the bounds of 95 % of its bootstrap resamples."""

    mean: float
    low: float
    high: float


def bootstrap(values: ArrayLike, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Compute the mean of ``values`` ``[N]`` with its interval. Raises: DataError if there are none."""
    sample = np.asarray(values, np.float64)
    require(sample.ndim == 1 and len(sample) > 0, "values", f"must be [N], is {list(sample.shape)}")
    return bootstrap_columns({"": sample}, None, resamples, seed)[""]


def bootstrap_columns(
    columns: Mapping[str, NDArray[np.floating]],
    count: NDArray[Any] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Interval]:
    """Compute the means of ``columns`` ``[N]`` with their percentile intervals, from the same resamples.

    With the number of agents ``count`` ``[N]`` of each scenario, the columns are sums over them and the means
    are over agents. Whole scenarios are drawn, because the agents of one are not independent.
    """
    values = list(columns.values())
    size = len(values[0])
    weight = np.ones(size) if count is None else count
    sample = np.stack((*values, weight), axis=1, dtype=np.float64)
    random = np.random.default_rng(seed)
    resampled = np.zeros((resamples, len(values)))
    for row in range(resamples):
        drawn = random.integers(size, size=size)
        # Count how often each was drawn: one product serves all columns, instead of a gather for each.
        times = np.bincount(drawn, minlength=size).astype(np.float64)
        total = times @ sample
        resampled[row] = total[:-1] / total[-1]
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0).tolist()
    mean = (sample[:, :-1].sum(axis=0) / sample[:, -1].sum()).tolist()
    intervals: dict[str, Interval] = {}
    for column, name in enumerate(columns):
        intervals[name] = Interval(mean[column], low[column], high[column])
    return intervals


#: Evaluations of one recipe from several seeds.
Seeds = Sequence[Evaluation]


def compare(first: Seeds, second: Seeds, metric: str = "minFDE6", group: str = "focal") -> Interval:
    """Compute ``first`` minus ``second`` in the ``metric`` of a ``group`` of agents, paired by scenario.

    Pairing removes the variance of difficulty between scenarios. Each side is one evaluation, or several of
    different seeds, averaged in every scenario; the interval covers scenarios, not the spread over seeds. All
    agents of the group (``focal`` or ``moving``) count the same.

    Raises: DataError if the two sides were not evaluated on the same agents over the same seconds, or one
        predicts none.
    """
    differences = _differences(first, second, metric, group)
    return _over_agents(differences, first[0], group)


def mean_of(seeds: Seeds, metric: str, group: str = "focal") -> Interval:
    """Compute the mean of a metric over the agents of ``group``, averaged over seeds, with its interval.

    Raises: DataError as :func:`compare`.
    """
    return _over_agents(_per_scenario(seeds, metric, group), seeds[0], group)


def most_changed(
    first: Seeds, second: Seeds, count: int
) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """List the ``count`` scenarios in which ``first`` improves most over ``second``, and degrades most.

    Each with minFDE6 of ``first`` minus that of ``second``, the largest change first. Raises: DataError as
    :func:`compare`.
    """
    differences = _differences(first, second, "minFDE6")
    ascending = sorted(differences.items(), key=lambda pair: pair[1])
    improved = [pair for pair in ascending[:count] if pair[1] < 0]
    descending = ascending[::-1]
    degraded = [pair for pair in descending[:count] if pair[1] > 0]
    return improved, degraded


def in_common(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Reduce all to the scenarios, and in these to the focal and moving agents, that all of them predict.

    A predictions file may lack some of either. Where no scenario or focal agent is left they are returned as
    they are, and :func:`compare` reports the cause.
    """
    reduced = list(evaluations)
    for group in PAIRED_GROUPS:
        reduced = _of_shared_agents(reduced, group)
    ids = [set(result.per_scenario.get("scenario_id", ())) for result in reduced]
    shared = set.intersection(*ids) if ids else set()
    if not shared:
        return reduced
    return [_of_scenarios(result, shared) for result in reduced]


class _Agents(NamedTuple):
    """The ``A`` agents of a group in one evaluation.

    Attributes:
        scene: ``[A]``, the row of ``per_scenario`` of each.
        name: ``[A]``, the ids of scenario and track.
        metrics: ``[A]`` by name.
    """

    scene: NDArray[np.int64]
    name: list[tuple[str, str]]
    metrics: dict[str, NDArray[np.float64]]


def _agents(result: Evaluation, group: str) -> _Agents:
    """Return the agents of a group that an evaluation has scored."""
    table = result.per_scenario
    count = np.array(table[f"{group}/count"], np.int64)
    scene = np.repeat(np.arange(len(count)), count)
    metrics: dict[str, NDArray[np.float64]] = {}
    if group == "focal":  # at most one in a scenario, whose values are the scenario's
        track_ids = [group] * len(scene)
        for column, values in table.items():
            if column.startswith("focal/") and column != "focal/count":
                metrics[column.removeprefix("focal/")] = np.array(values, np.float64)[scene]
    else:
        track_ids = result.per_agent["track_id"].to_pylist()
        for metric in result.per_agent.drop_columns("track_id").column_names:
            metrics[metric] = np.array(result.per_agent[metric].to_pylist(), np.float64)
    scenario_ids = [table["scenario_id"][row] for row in scene.tolist()]
    return _Agents(scene, list(zip(scenario_ids, track_ids, strict=True)), metrics)


def _of_shared_agents(evaluations: list[Evaluation], group: str) -> list[Evaluation]:
    """Reduce the counts and means by scenario to the agents of a group that all evaluations predict."""
    if not all(_names_agents(result, group) for result in evaluations):
        return evaluations
    agents = [_agents(result, group) for result in evaluations]
    names = [set(rows.name) for rows in agents]
    shared = set.intersection(*names) if names else set()
    if group == "focal" and not shared:
        return evaluations
    reduced: list[Evaluation] = []
    for result, rows in zip(evaluations, agents, strict=True):
        kept = np.array([name in shared for name in rows.name], bool)
        scene = rows.scene[kept]
        size = len(result.per_scenario["scenario_id"])
        count = np.bincount(scene, minlength=size)
        per_scenario = result.per_scenario | {f"{group}/count": count.tolist()}
        for metric, values in rows.metrics.items():
            total = np.bincount(scene, values[kept], minlength=size)
            mean = np.divide(total, count, out=np.full(size, np.nan), where=count > 0)
            per_scenario[f"{group}/{metric}"] = mean.tolist()
        reduced.append(replace(result, per_scenario=per_scenario))
    return reduced


def _names_agents(result: Evaluation, group: str) -> bool:
    """Return whether a result says which agents of a group it has scored."""
    return f"{group}/count" in result.per_scenario and (group == "focal" or len(result.per_agent) > 0)


def _of_scenarios(result: Evaluation, scenarios: set[str]) -> Evaluation:
    """Return the result with the values of some scenarios only, without those of agents."""
    keep = [name in scenarios for name in result.per_scenario["scenario_id"]]
    per_scenario: dict[str, list[Any]] = {}
    for name, values in result.per_scenario.items():
        per_scenario[name] = [value for value, kept in zip(values, keep, strict=True) if kept]
    return replace(result, per_scenario=per_scenario, per_agent=result.per_agent.slice(0, 0))


def shared_columns(evaluations: Sequence[Evaluation], group: str = "focal") -> tuple[str, ...]:
    """List the columns that all evaluations have of each scenario, changes between updates included.

    None of a group of which they predict different agents; of the focal agent, :func:`compare` reports it.
    """
    counts = [result.by_scenario("count", group) for result in evaluations]
    if group != "focal" and any(count != counts[0] for count in counts):
        return ()
    names = [*paired_columns(), *metric_names("streaming")]
    shared = set(names)
    for result in evaluations:
        shared &= _recorded(result, names, group)
    return tuple(name for name in names if name in shared)


def _recorded(result: Evaluation, names: Sequence[str], group: str) -> set[str]:
    """Return those of the columns of which any scenario has a value."""
    recorded = set()
    for name in names:
        values = result.per_scenario.get(f"{group}/{name}", ())
        if any(value is not None and not math.isnan(value) for value in values):
            recorded.add(name)
    return recorded


def _over_agents(values: Mapping[str, float], result: Evaluation, group: str) -> Interval:
    """Compute the mean over the agents of ``group`` of means by scenario, with its interval."""
    counts = result.by_scenario("count", group)
    count = np.array([counts[scenario] for scenario in values])
    total = np.array(list(values.values())) * count
    return bootstrap_columns({"": total}, count)[""]


def _differences(first: Seeds, second: Seeds, metric: str, group: str = "focal") -> dict[str, float]:
    """Return by scenario the metric of ``first`` minus that of ``second``."""
    minuend = _per_scenario(first, metric, group)
    subtrahend = _per_scenario(second, metric, group)
    _require_same_agents(minuend, subtrahend, first[0], second[0], group)
    return {scenario: value - subtrahend[scenario] for scenario, value in minuend.items()}


def _per_scenario(seeds: Seeds, metric: str, group: str) -> dict[str, float]:
    """Return the mean of ``metric`` over a group's agents by scenario, averaged over ``seeds``."""
    by_seed = [result.by_scenario(metric, group) for result in seeds]
    for result, values in zip(seeds[1:], by_seed[1:], strict=True):
        _require_same_agents(by_seed[0], values, seeds[0], result, group)
    means: dict[str, float] = {}
    for scenario in by_seed[0]:
        mean = float(np.mean([values[scenario] for values in by_seed]))
        if not math.isnan(mean):
            means[scenario] = mean
    if not means:
        raise DataError(f"{seeds[0].predictor} predicts no {group} agent to compare by")
    return means


def _require_same_agents(
    values: dict[str, float], others: dict[str, float], first: Evaluation, second: Evaluation, group: str
) -> None:
    """Raise :class:`DataError` unless both contain the same scenarios, in any order, with as many agents.

    Both must have been scored over the same seconds.
    """
    names = f"{first.predictor} and {second.predictor}"
    known = bool(first.seconds and second.seconds)
    if known and first.seconds[0] != second.seconds[0]:
        scored = f"{first.seconds[0]:g} and {second.seconds[0]:g} s"
        raise DataError(f"{names} were scored over {scored}: compare models of one horizon")
    unpaired = values.keys() ^ others.keys()
    if unpaired:
        raise DataError(f"{names} were evaluated on other scenarios: {len(unpaired)} have no pair")
    counts = first.by_scenario("count", group)
    other_counts = second.by_scenario("count", group)
    for scenario in values:
        if counts[scenario] != other_counts[scenario]:
            raise DataError(f"{names} predict other numbers of {group} agents")
