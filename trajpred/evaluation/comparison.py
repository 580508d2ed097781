"""Comparison of evaluations: bootstrap intervals over scenarios, and Markdown tables by recipe over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.errors import DataError, require
from trajpred.evaluation.results import Evaluation
from trajpred.metrics import columns, metrics_of, paired_columns

RESAMPLES = 10_000
#: Evaluations of one recipe from several seeds, and several recipes by name.
Seeds = Sequence[Evaluation]
Recipes = Mapping[str, Seeds]


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
    values = [*columns.values()]
    weight = np.ones(len(values[0])) if count is None else count
    sample = np.stack((*values, weight), axis=1, dtype=np.float64)
    random, size = np.random.default_rng(seed), len(sample)
    means = []
    for _ in range(resamples):
        # Count how often each was drawn: one product serves all columns, instead of a gather for each.
        total = np.bincount(random.integers(size, size=size), minlength=size).astype(np.float64) @ sample
        means.append(total[:-1] / total[-1])
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    mean = sample[:, :-1].sum(axis=0) / sample[:, -1].sum()
    bounds = zip(mean.tolist(), low.tolist(), high.tolist(), strict=True)
    return {name: Interval(*each) for name, each in zip(columns, bounds, strict=True)}


def compare(first: Seeds, second: Seeds, metric: str = "minFDE6", group: str = "focal") -> Interval:
    """Compute ``first`` minus ``second`` in the ``metric`` of a ``group`` of agents, paired by scenario.

    Pairing removes the variance of difficulty between scenarios. Each side is one evaluation, or several of
    different seeds, averaged in every scenario; the interval covers scenarios, not the spread over seeds. All
    agents of the group (``focal`` or ``moving``) count the same.

    Raises: DataError if the two sides were not evaluated on the same agents, or one predicts none.
    """
    differences = _differences(first, second, metric, group)
    return _over_agents(differences, first[0], group)


def _over_agents(values: Mapping[str, float], result: Evaluation, group: str) -> Interval:
    """Compute the mean over the agents of ``group`` of means by scenario, with its interval."""
    counts = result.by_scenario("count", group)
    count = np.array([counts[scenario] for scenario in values])
    return bootstrap_columns({"": np.array([*values.values()]) * count}, count)[""]


def changes(
    first: Seeds, second: Seeds, count: int
) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """List the ``count`` scenarios in which ``first`` improves most over ``second``, and degrades most.

    Each with minFDE6 of ``first`` minus that of ``second``, the largest change first. Raises: DataError as
    :func:`compare`.
    """
    ordered = sorted(_differences(first, second, "minFDE6").items(), key=lambda pair: pair[1])
    improved = [pair for pair in ordered[:count] if pair[1] < 0]
    return improved, [pair for pair in ordered[::-1][:count] if pair[1] > 0]


def in_common(first: Evaluation, second: Evaluation) -> tuple[Evaluation, Evaluation]:
    """Reduce both to the scenarios that both predict: a predictions file may contain a part of a split.

    Without such scenarios both are returned as they are, and :func:`compare` reports the cause.
    """
    shared = set(first.per_scenario["scenario_id"]) & set(second.per_scenario["scenario_id"])
    if not shared:
        return first, second

    def reduced(one: Evaluation) -> Evaluation:
        rows = [i for i, name in enumerate(one.per_scenario["scenario_id"]) if name in shared]
        return replace(one, per_scenario={k: [x[i] for i in rows] for k, x in one.per_scenario.items()})

    return reduced(first), reduced(second)


def _differences(first: Seeds, second: Seeds, metric: str, group: str = "focal") -> dict[str, float]:
    a, b = _per_scenario(first, metric, group), _per_scenario(second, metric, group)
    _require_same_agents(a, b, first[0], second[0], group)
    return {scenario: value - b[scenario] for scenario, value in a.items()}


def _per_scenario(seeds: Seeds, metric: str, group: str) -> dict[str, float]:
    """Return the mean of ``metric`` over a group's agents by scenario, averaged over ``seeds``."""
    each = [one.by_scenario(metric, group) for one in seeds]
    for values, one in zip(each[1:], seeds[1:], strict=True):
        _require_same_agents(each[0], values, seeds[0], one, group)
    means = {scenario: float(np.mean([values[scenario] for values in each])) for scenario in each[0]}
    known = {scenario: mean for scenario, mean in means.items() if not np.isnan(mean)}
    if not known:
        raise DataError(f"{seeds[0].predictor} predicts no {group} agent to compare by")
    return known


def shared_columns(evaluations: Sequence[Evaluation], group: str = "focal") -> tuple[str, ...]:
    """List the columns that all evaluations have of each scenario, changes between updates included.

    None of a group of which they predict different agents; of the focal agent, :func:`compare` reports it.
    """
    counts = [one.by_scenario("count", group) for one in evaluations]
    if group != "focal" and any(count != counts[0] for count in counts):
        return ()
    every = (*paired_columns(), *(one.name for one in metrics_of("streaming")))

    def known(one: Evaluation, name: str) -> bool:
        values = one.per_scenario.get(f"{group}/{name}", ())
        return any(x is not None and x == x for x in values)

    return tuple(name for name in every if all(known(one, name) for one in evaluations))


def _require_same_agents(
    a: dict[str, float], b: dict[str, float], first: Evaluation, second: Evaluation, group: str
) -> None:
    """Raise :class:`DataError` unless both contain the same scenarios, in any order, with as many agents."""
    names = f"{first.predictor} and {second.predictor}"
    if a.keys() != b.keys():
        raise DataError(f"{names} were evaluated on other scenarios: {len(a.keys() ^ b.keys())} have no pair")
    counts, others = (one.by_scenario("count", group) for one in (first, second))
    if any(counts[scenario] != others[scenario] for scenario in a):
        raise DataError(f"{names} predict other numbers of {group} agents")


def by_recipe(evaluations: Sequence[Evaluation]) -> dict[str, list[Evaluation]]:
    """Group evaluations by recipe, in the order in which the recipes first appear.

    Duplicates (a baseline beside every run) count once.

    Raises: DataError if there are none, they are of different data, or of one recipe and seed but differ.
    """
    if not evaluations:
        raise DataError("no results given")
    recipes: dict[str, list[Evaluation]] = {}
    for one in evaluations:
        _require_same_data(evaluations[0], one)
        seeds = recipes.setdefault(one.recipe, [])
        twins = [other for other in seeds if other.training.get("seed") == one.training.get("seed")]
        if not twins:
            seeds.append(one)
        elif not _agree(twins[0], one):
            names = f"{twins[0].predictor} and {one.predictor} differ"
            raise DataError(f"{names}, but are of one recipe, {one.recipe}, and one seed; give one of them")
    return recipes


def _agree(first: Evaluation, other: Evaluation) -> bool:
    """Whether results are equal up to the rounding of another machine."""
    a, b = first.metrics["focal"], other.metrics["focal"]
    return all(abs(a[name] - b[name]) < 1e-3 for name in columns("results") if name in a and name in b)


def _require_same_data(first: Evaluation, other: Evaluation) -> None:
    def facts(one: Evaluation) -> str:
        size = ", ".join(filter(None, (f"{one.scenarios} scenarios", one.part, one.partly)))
        return f"{one.split} of {one.store.get('source')} ({size})"

    if facts(first) != facts(other):
        both = f"{facts(first)} and {facts(other)}"
        raise DataError(f"{first.predictor} and {other.predictor} were evaluated on different data: {both}")


def format_table(evaluations: Sequence[Evaluation], group: str = "focal") -> str:
    """Format one Markdown row per evaluation; metres, miss rates as shares."""
    return _metrics_table([(one.predictor, [one]) for one in evaluations], group)


def format_recipes(recipes: Recipes, group: str = "focal") -> str:
    """Format one Markdown row per recipe: the mean over its seeds, with minimum and maximum."""
    return _metrics_table([(_with_count(name, seeds), seeds) for name, seeds in recipes.items()], group)


def _with_count(name: str, seeds: Seeds) -> str:
    return f"{name}, {len(seeds)} seeds" if len(seeds) > 1 else name


def _metrics_table(lines: Sequence[tuple[str, Seeds]], group: str) -> str:
    names, rows = columns("results"), []
    for name, seeds in lines:
        each = [one.metrics[group] for one in seeds if group in one.metrics]
        require(len(each) == len(seeds), "group", f"{name} has no results of {group} agents")
        rows.append([name, str(each[0]["count"]), *(_over_seeds(each, column) for column in names)])
    return markdown(["predictor", "agents", *names], rows)


def _over_seeds(each: Sequence[Mapping[str, float]], name: str) -> str:
    """Format ``mean (minimum–maximum)``; the value alone of one seed, a dash if there is none."""
    values = [metrics[name] for metrics in each if name in metrics]
    if not values:
        return "-"
    mean = f"{sum(values) / len(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.2f}\N{EN DASH}{max(values):.2f})"


def format_intervals(recipes: Recipes, group: str = "focal") -> str:
    """Format one Markdown row per recipe: means and differences from the first, with 95 % intervals.

    Raises: DataError if they were not evaluated on the same agents, or have no values per scenario.
    """
    names = shared_columns([one for seeds in recipes.values() for one in seeds], group)
    reference, first = next(iter(recipes.items()))
    rows = []
    for name, seeds in recipes.items():
        means = [_over_agents(_per_scenario(seeds, metric, group), seeds[0], group) for metric in names]
        changed = [compare(seeds, first, metric, group) for metric in names if seeds is not first]
        own = [_interval(mean) for mean in means]
        less = [_interval(change, "+") for change in changed] or ["-"] * len(names)
        rows.append([_with_count(name, seeds), *own, *less])
    return markdown(["predictor", *names, *(f"{metric} against {reference}" for metric in names)], rows)


def _interval(interval: Interval, sign: str = "") -> str:
    return "{:{s}.2f} [{:{s}.2f}, {:{s}.2f}]".format(*interval, s=sign)


def format_origin(seeds: Seeds) -> str:
    """Describe the origin of a recipe's figures in one line: its trainings, and the code that scored it."""
    scored, training = _code(seeds[0].environment), format_training([one.training for one in seeds])
    return "; ".join(filter(None, (training, scored and f"scored by {scored}")))


def format_training(training: Sequence[Mapping[str, Any]]) -> str:
    """Describe trainings of one recipe in one line: seeds, data, duration, machine and code."""
    machine, store = (training[0].get(name) or {} for name in ("environment", "store"))
    count = store.get("scenarios", {}).get("train")
    left_out = f", {training[0]['hold_out']:.3g} of them held out" if training[0].get("hold_out") else ""
    threads = _counted([machine.get("threads", 1)], "thread")
    cpu = f"{machine.get('cpu')} ({threads})" if machine else ""

    def distinct(name: str) -> list[Any]:
        return list(dict.fromkeys(facts[name] for facts in training if facts.get(name) is not None))

    minutes = dict.fromkeys(round(wall / 60) for wall in distinct("wall_s"))
    lasted = {"epoch": distinct("epochs"), "step": distinct("steps"), "minute": minutes}
    parts = {
        "seeds" if len(distinct("seed")) > 1 else "seed": ", ".join(map(str, distinct("seed"))),
        "trained on": f"{count:,} scenarios of {store.get('source')} (store {store.get('config')}){left_out}"
        if count
        else "",
        "starting with": ", ".join(distinct("weights")),
        "for": ", ".join(_counted(values, unit) for unit, values in lasted.items() if values),
        "on": ", ".join(filter(None, (machine.get("gpu"), cpu))),
        "code": _code(machine),
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items() if value)


def _counted(values: Iterable[int], unit: str) -> str:
    """Return for example ``1 thread`` or ``79, 80 minutes``."""
    numbers = [f"{value:,}" for value in values]
    return f"{', '.join(numbers)} {unit}{'' if numbers == ['1'] else 's'}"


def _code(environment: Mapping[str, Any]) -> str:
    if not environment:
        return ""
    commit = environment.get("commit", "")[:10] + (" with changes" if environment.get("dirty") else "")
    versions = f"trajpred {environment.get('trajpred')}", commit, f"torch {environment.get('torch')}"
    return ", ".join(filter(None, versions))


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table with columns aligned to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [" | ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in (head, *rows)]
    rule = "|".join("-" * (w + 1) + ":" for w in widths)
    return "\n".join((f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])))
