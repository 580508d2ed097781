"""Queries on the table of agents: means with bootstrap intervals over recordings, and paired changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from trajpred.data.scenario import of_other_scenes
from trajpred.errors import DataError, require
from trajpred.metrics import METRICS, Column, Metric, columns_of, headline, metrics_of
from trajpred.metrics.calibration import reliability
from trajpred.metrics.registry import MODES

if TYPE_CHECKING:
    from trajpred.evaluation.results import Evaluation

RESAMPLES = 10_000
#: Columns of an agent's scenario besides its id: the unit of intervals
#: (:func:`~trajpred.evaluation.score.units`), and :attr:`~trajpred.data.scenario.Scenario.digest`.
SCENE = ("recording", "digest")
#: The 97.5 % quantile of the normal distribution.
NORMAL = 1.959964
#: Number of resamples drawn at once.
CHUNK = 100
#: Bins of the expected calibration error.
BINS = 10
#: Facts for breakdowns: columns of the table of agents, and their meaning.
FACTS = {
    "class": "class",
    "city": "city",
    "manoeuvre": "manoeuvre",
    "speed": "speed (m/s)",
    "neighbours": "neighbours (within 30 m)",
    "error": "error of constant velocity (m)",
}
#: Upper bounds of the intervals of numeric facts; the last interval is open.
BOUNDS: dict[str, tuple[float, ...]] = {
    "speed": (0.5, 5.0, 10.0, 15.0),
    "neighbours": (1, 5, 10, 20),
    "error": (1.0, 3.0, 6.0, 12.0),
}


class Interval(NamedTuple):
    """A mean over agents, with the bounds of 95 % of its bootstrap resamples of recordings."""

    mean: float
    low: float
    high: float

    def __format__(self, sign: str) -> str:
        """Format ``mean [low, high]``; only the mean for a single scenario."""
        mean = f"{self.mean:{sign}.2f}"
        if math.isnan(self.low):
            return mean
        return f"{mean} [{self.low:{sign}.2f}, {self.high:{sign}.2f}]"


class Cell(NamedTuple):
    """The mean of a metric over some agents.

    Attributes:
        agents: number of agents with a value.
        interval: its bounds; NaN for fewer than two recordings.
    """

    agents: int
    interval: Interval

    def __str__(self) -> str:
        """Format the interval, or a dash without agents."""
        return f"{self.interval}" if self.agents else "-"


#: Means by metric.
Cells: TypeAlias = dict[Column, Cell]
#: Means over all agents (:data:`EVERY`), and by fact and part of the agents.
Summary: TypeAlias = dict[tuple[str, str], Cells]
EVERY = ("", "")


def agent_field(column: Column) -> pa.Field:
    """Return the field of a metric, with its description."""
    metric, k, ahead, after = column
    facts = {"metric": metric.name, "k": k, "ahead": ahead, "after": after}
    metadata = {name: str(value) for name, value in facts.items() if value is not None}
    kind = pa.float64() if metric.weight else pa.float32()  # parts of a count, which products must restore
    return pa.field(column.name, kind, metadata=metadata)


def columns_in(agents: pa.Table) -> list[Column]:
    """List the metrics of a table."""
    columns: list[Column] = []
    for field in agents.schema:
        facts = {name.decode(): text.decode() for name, text in (field.metadata or {}).items()}
        if facts.get("metric") in METRICS:
            k = int(facts["k"]) if "k" in facts else None
            ahead = int(facts["ahead"]) if "ahead" in facts else None
            after = float(facts["after"]) if "after" in facts else None
            columns.append(Column(METRICS[facts["metric"]], k, ahead, after))
    return columns


def whole_columns(agents: pa.Table) -> list[Column]:
    """List the metrics over the whole future."""
    return [column for column in columns_in(agents) if column.ahead is None and column.after is None]


def compared_columns() -> list[Column]:
    """List the columns by which evaluations are compared: headline metrics, and changes between updates."""
    return headline() + columns_of("streaming")


def compared_in(agents: pa.Table) -> list[str]:
    """List the names of the :func:`compared_columns` of a table."""
    return [column.name for column in compared_columns() if column.name in agents.column_names]


def members(agents: pa.Table, group: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Select a group's agents with a forecast, and the given columns, by default all."""
    chosen = pc.and_(agents[group], agents["predicted"])
    return (agents if columns is None else agents.select(columns)).filter(chosen)


def fact_names(by: Sequence[str]) -> list[str]:
    """Return the :data:`FACTS` named in ``by``, or all of them for ``all``. Raises: DataError."""
    for name in by:
        if name not in (*FACTS, "all"):
            raise DataError(f"{name!r} is not one of {', '.join(FACTS)}, all", field="by")
    return list(FACTS) if "all" in by else list(by)


def numbers(table: pa.Table, name: str) -> NDArray[np.float64]:
    """Return a column, NaN where it is null."""
    return table[name].cast(pa.float64(), safe=False).to_numpy()


def parts(agents: pa.Table, fact: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return the part ``[N]`` of each agent by a fact, and the names of the parts.

    Intervals are in order, words by descending frequency. Without a fact there is one part, named ``""``.
    """
    if not fact:
        return np.zeros(len(agents), np.int64), [""]
    if fact in BOUNDS:
        is_whole = pa.types.is_integer(agents[fact].type)
        return np.digitize(numbers(agents, fact), BOUNDS[fact]), _interval_names(BOUNDS[fact], is_whole)
    words, code, count = np.unique(agents[fact].to_numpy(), return_inverse=True, return_counts=True)
    order = np.argsort(-count, kind="stable")
    return np.argsort(order)[code], words[order].tolist()


def _interval_names(bounds: Sequence[float], is_whole: bool) -> list[str]:
    """Name intervals: ``5 to 10``, or for integers ``5 to 9``."""
    names: list[str] = []
    low = 0.0
    for bound in bounds:
        high = bound - 1 if is_whole else bound
        names.append(f"{low:g} to {high:g}" if low < high else f"{low:g}")
        low = bound
    return [*names, f"{low:g} and more"]


def summary(agents: pa.Table, facts: Sequence[str] = (), columns: Sequence[Column] | None = None) -> Summary:
    """Compute the means over all ``agents``, and of the headline metrics over the parts by each fact.

    Agents without a value do not count. Intervals are by bootstrap over the recordings of ``agents``: whole
    recordings are drawn, because agents of one recording are not independent; all means share the draws.

    Args:
        columns: of the means over all agents; by default all metrics of the table.

    Returns:
        Cells by fact and name of the part, :data:`EVERY` for all agents.
    """
    recording, R = _recordings(agents)
    keys: list[tuple[str, str, Column]] = []
    sums: list[NDArray[np.float64]] = []  # by column and part: [3, R, parts]
    whole = columns or columns_in(agents)
    for fact in ("", *facts):
        part, names = parts(agents, fact)
        cell = recording * len(names) + part
        for column in headline(MODES) if fact else whole:
            totals = [np.bincount(cell, term, R * len(names)) for term in _terms(agents, column)]
            sums.append(np.stack(totals, dtype=np.float64).reshape(3, R, len(names)))
            keys += [(fact, name, column) for name in names]
    count, total, weight = np.concatenate(sums, axis=2)
    counts = count.sum(axis=0).tolist()
    smallest = total.min(axis=0, initial=0.0).tolist()
    cells: Summary = {}
    for key, interval, counted, least in zip(keys, ratios(total, weight), counts, smallest, strict=True):
        fact, name, column = key
        possible = _possible(interval, column.metric, least)
        cells.setdefault((fact, name), {})[column] = Cell(int(counted), possible)
    return cells


def _terms(agents: pa.Table, column: Column) -> tuple[NDArray[Any], ...]:
    """Return whether each agent has a value of a metric ``[N]``, its weighted value, and its weight."""
    values = numbers(agents, column.name)
    has_value = ~np.isnan(values)
    weight = has_value.astype(np.float64)
    if column.metric.weight and column.ahead is None:
        weight *= numbers(agents, column.metric.weight)
    return has_value, np.nan_to_num(values) * weight, weight


def scene_cells(scenes: pa.Table, group: str) -> Cells:
    """Compute the means of the joint metrics over the joint scenes of a group, or over their actors."""
    metrics = metrics_of("joint")
    rows = scenes.filter((pc.field("group") == group) & pc.is_valid(pc.field(metrics[0].name)))
    values = {metric.name: numbers(rows, metric.name) for metric in metrics}
    weights = [numbers(rows, metric.weight) if metric.weight else np.ones(len(rows)) for metric in metrics]
    intervals = _weighted_means(rows, values, weights)
    cells: Cells = {}
    for metric in metrics:
        least = values[metric.name].min(initial=0.0)
        cells[Column(metric)] = Cell(len(rows), _possible(intervals[metric.name], metric, least))
    return cells


def _possible(interval: Interval, metric: Metric, least: float) -> Interval:
    """Keep the bounds of an error at 0 or above, and of a fraction at 1 or below; omit equal bounds.

    Args:
        least: the least value, or sum of values; metrics of other packages may be negative.
    """
    if interval.low == interval.high:  # for example no misses: nothing is known of other agents
        return Interval(interval.mean, np.nan, np.nan)
    if least < 0:
        return interval
    high = interval.high if metric.unit else min(interval.high, 1.0)
    return interval._replace(low=max(interval.low, 0.0), high=high)


def _weighted_means(
    rows: pa.Table, values: Mapping[str, NDArray[np.float64]], weights: Sequence[NDArray[Any]]
) -> dict[str, Interval]:
    """Compute the weighted mean of each of ``values`` ``[N]``; rows without a value do not count."""
    recording, R = _recordings(rows)
    total = np.zeros((R, len(values)))
    weight = np.zeros((R, len(values)))
    for column, (of_rows, of_weights) in enumerate(zip(values.values(), weights, strict=True)):
        counted = of_weights * ~np.isnan(of_rows)
        total[:, column] = np.bincount(recording, np.nan_to_num(of_rows) * counted, R)
        weight[:, column] = np.bincount(recording, counted, R)
    return dict(zip(values, ratios(total, weight), strict=True))


def _recordings(rows: pa.Table) -> tuple[NDArray[np.int64], int]:
    """Number each row's recording ``[N]``, or its scenario if it has none; also return how many there are."""
    names = rows["recording" if "recording" in rows.column_names else "scenario_id"]
    encoded = names.combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def ratios(total: NDArray[np.float64], weight: NDArray[np.float64]) -> list[Interval]:
    """Compute the means ``[C]`` of sums ``[S, C]`` of recordings, with intervals; NaN without weight."""
    C = total.shape[1]
    counted = (weight > 0).sum(axis=0).tolist()
    sums = resampled(np.concatenate((total, weight), axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = np.divide(sums[:, :C], sums[:, C:], out=sums[:, :C])
        mean = total.sum(axis=0) / weight.sum(axis=0)
    return [_bounded(*column) for column in zip(mean.tolist(), drawn.T, counted, strict=True)]


def _bounded(value: float, drawn: NDArray[np.float64], units: int) -> Interval:
    """Return a value with the bounds of 95 % of its resamples; resamples without agents do not count.

    Resamples of few units vary too little: their bounds are moved apart by the ratio of Student's t to the
    normal distribution. With fewer than two ``units`` there are no bounds.
    """
    finite = drawn[~np.isnan(drawn)]
    if units < 2 or len(finite) == 0:
        return Interval(value, np.nan, np.nan)
    low, high = np.quantile(finite, (0.025, 0.975)).tolist()
    wider = student(units - 1) / NORMAL * math.sqrt(units / (units - 1))
    return Interval(value, value - (value - low) * wider, value + (high - value) * wider)


def student(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t by the Cornish-Fisher expansion; exact to 4 % from 2 on."""
    z = NORMAL
    second = (z**3 + z) / 4
    third = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    fourth = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + second / freedom + third / freedom**2 + fourth / freedom**3


def resampled(sums: NDArray[np.float64], resamples: int = RESAMPLES, seed: int = 0) -> NDArray[np.float64]:
    """Draw ``S`` recordings with replacement, ``R`` times, and add up their ``sums`` ``[S, C]``: ``[R, C]``.

    With fewer than two recordings there is nothing to draw: ``[0, C]``.
    """
    S = len(sums)
    if S < 2:
        return np.empty((0, sums.shape[1]))
    random = np.random.default_rng(seed)
    parts: list[NDArray[np.float64]] = []
    for start in range(0, resamples, CHUNK):
        rows = np.arange(min(CHUNK, resamples - start))[:, None]
        drawn = random.integers(S, size=(len(rows), S))
        # Count how often each was drawn: one product for all columns instead of a gather for each.
        times = np.bincount((drawn + rows * S).ravel(), minlength=len(rows) * S).reshape(len(rows), S)
        parts.append(times.astype(np.float64) @ sums)
    return np.concatenate(parts)


def bootstrap(values: ArrayLike) -> Interval:
    """Compute the mean of ``values`` ``[N]`` with its interval. Raises: DataError if there are none."""
    sample = np.asarray(values, np.float64)
    require(sample.ndim == 1 and len(sample) > 0, "values", f"must be [N], is {list(sample.shape)}")
    [interval] = ratios(sample[:, None], np.ones((len(sample), 1)))
    return interval


def calibration_errors(agents: pa.Table) -> dict[str, Cell]:
    """Compute the expected calibration error of all modes (``ECE``) and of only the most probable ones.

    ``top ECE`` is as in Guo et al. 2017.
    """
    scene, scenes = _recordings(agents)
    best = agents["best"].to_numpy()
    probability = agents["probability"].combine_chunks()
    modes = probability.value_lengths().to_numpy()
    errors: dict[str, Cell] = {}
    for name, top_only in (("ECE", False), ("top ECE", True)):
        sums = np.zeros((scenes, BINS + 1))
        for count in np.unique(modes):
            rows = np.flatnonzero(modes == count)
            values = probability.take(pa.array(rows)).flatten().to_numpy().reshape(len(rows), count)
            bins, excess = reliability(values, best[rows], BINS, top_only)
            np.add.at(sums, (scene[rows][:, None], bins), excess)
            np.add.at(sums[:, BINS], scene[rows], bins.shape[1])
        drawn = np.concatenate((sums.sum(axis=0)[None], resampled(sums)))
        with np.errstate(invalid="ignore"):  # without agents
            error = np.abs(drawn[:, :BINS]).sum(axis=1) / drawn[:, BINS]
        errors[name] = Cell(len(agents), _bounded(float(error[0]), error[1:], scenes))
    return errors


class Pairs(NamedTuple):
    """Rows that ``R`` evaluations have in common: agents, or for summaries scenarios.

    Attributes:
        rows: ``[N]`` with ``scenario_id`` and, if known, ``recording``.
        agents: ``[N]`` number of agents in each row.
        values: by metric ``[R, N]``.
    """

    rows: pa.Table
    agents: NDArray[np.int64]
    values: dict[str, NDArray[np.float64]]

    def intervals(self, values: Mapping[str, NDArray[np.float64]]) -> dict[str, Interval]:
        """Compute the mean over agents for each of ``values`` ``[N]``; rows without a value do not count."""
        return _weighted_means(self.rows, values, [self.agents] * len(values))

    def possible_intervals(self, metrics: Mapping[str, NDArray[np.float64]]) -> dict[str, Interval]:
        """Compute :meth:`intervals` of metrics, not of differences: within the values that they can have."""
        columns = {column.name: column for column in compared_columns()}
        possible: dict[str, Interval] = {}
        for name, interval in self.intervals(metrics).items():
            least = float(np.nanmin(metrics[name], initial=0.0))
            possible[name] = _possible(interval, columns[name].metric, least)
        return possible


def pairs(evaluations: Sequence[Evaluation], group: str) -> Pairs:
    """Join evaluations by scenario and track, or by scenario if one is a summary.

    Raises: DataError if they were scored over different seconds or different scenes of the same names, or
        predict no agent in common; for summaries also if they predict different agents of a scenario.
    """
    first = evaluations[0]
    by_agent = all(result.agents is not None for result in evaluations)
    keys = ["scenario_id", "track_id"] if by_agent else ["scenario_id"]
    tables = [result.rows(group, by_agent) for result in evaluations]
    shared = set.intersection(*(set(table.column_names) for table in tables))
    names = [name for name in tables[0].column_names if name in shared - {*keys, *SCENE, "count", "ids"}]
    joined = tables[0].append_column("row", pa.array(np.arange(len(tables[0]))))
    for number, (result, table) in enumerate(zip(evaluations, tables, strict=True)):
        both = f"{first.predictor} and {result.predictor}"
        require_same_scenes(first, result)
        if not len(table):
            raise DataError(f"{result.predictor} predicts no {group} agent that could be compared")
        if first.seconds and result.seconds and first.seconds[0] != result.seconds[0]:
            scored = f"{first.seconds[0]:g} and {result.seconds[0]:g} s"
            raise DataError(f"{both} were scored over {scored}: compare models with equal horizons")
        if number:
            joined = joined.join(table, keys, join_type="inner", right_suffix=f" {number}")
        if not len(joined):
            raise DataError(f"{both} predict no {group} agent in common")
        if number and not by_agent and not joined["ids"].equals(joined[f"ids {number}"]):
            raise DataError(f"{both} predict different {group} agents: compare their tables, .parquet")
    joined = joined.sort_by("row")
    values: dict[str, NDArray[np.float64]] = {}
    for name in names:
        of_each = [numbers(joined, f"{name} {number}" if number else name) for number in range(len(tables))]
        if not any(np.isnan(column).all() for column in of_each):
            values[name] = np.stack(of_each)
    where = [name for name in ("scenario_id", "recording") if name in joined.column_names]
    return Pairs(joined.select(where), joined["count"].to_numpy(), values)


def require_same_scenes(first: Evaluation, second: Evaluation) -> None:
    """Raise DataError if scenarios of one name have different digests, as far as these are known."""
    for group in first.per_scenario.keys() & second.per_scenario.keys():
        tables = [first.per_scenario[group], second.per_scenario[group]]
        if any("digest" not in table.column_names for table in tables):
            continue
        names = of_other_scenes(_digests(tables[0]), _digests(tables[1]))
        if names:
            both = f"{first.predictor} and {second.predictor} were scored on different scenes"
            problem = f"{both}: {names}, but a different last observed second or different positions"
            raise DataError(f"{problem}: evaluate both on one store")


def _digests(rows: pa.Table) -> dict[str, int]:
    return dict(zip(rows["scenario_id"].to_pylist(), rows["digest"].to_pylist(), strict=True))


class Change(NamedTuple):
    """The change from one recipe to another, over the agents that both predict.

    Attributes:
        agents: number of these agents.
        metrics: means of the differences, by metric.
        by_scenario: mean difference in minFDE6 per scenario, ascending: improved ones first.
    """

    agents: int
    metrics: dict[str, Interval]
    by_scenario: dict[str, float]


def change(first: Sequence[Evaluation], second: Sequence[Evaluation], group: str = "focal") -> Change:
    """Compute ``first`` minus ``second`` over the agents of ``group`` that both predict.

    Pairing removes the variance of difficulty between scenarios. Each side is one evaluation, or several with
    different seeds, which are averaged; the interval covers the choice of recordings, not of seeds.

    Raises: DataError like :func:`pairs`.
    """
    paired = pairs([*first, *second], group)
    differences: dict[str, NDArray[np.float64]] = {}
    for metric, values in paired.values.items():
        differences[metric] = values[: len(first)].mean(axis=0) - values[len(first) :].mean(axis=0)
    by_scenario: dict[str, float] = {}
    if "minFDE6" in differences:
        rows = pa.table({"id": paired.rows["scenario_id"], "change": differences["minFDE6"]})
        means = rows.group_by("id", use_threads=False).aggregate([("change", "mean")])
        means = means.sort_by("change_mean")
        by_scenario = dict(zip(means["id"].to_pylist(), means["change_mean"].to_pylist(), strict=True))
    return Change(int(paired.agents.sum()), paired.intervals(differences), by_scenario)


def compare(
    first: Sequence[Evaluation], second: Sequence[Evaluation], metric: str = "minFDE6", group: str = "focal"
) -> Interval:
    """Compute the mean :func:`change` of one ``metric``. Raises: DataError, also if it is not recorded."""
    metrics = change(first, second, group).metrics
    if metric not in metrics:
        both = f"{first[0].predictor} and {second[0].predictor}"
        raise DataError(f"{both} have no {metric} of the same agents")
    return metrics[metric]
