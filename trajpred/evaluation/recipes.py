"""Comparison of recipes, each with the results of its seeds: means, ranges, paired differences, changes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trajpred.data.splits import PAIRED_GROUPS
from trajpred.errors import DataError, require
from trajpred.evaluation.report import Row, Table, markdown, with_rows
from trajpred.evaluation.results import Evaluation, listing
from trajpred.evaluation.table import Change, change, pairs, require_same_scenes
from trajpred.metrics import headline, metrics_of

#: How many of the most improved, and of the most degraded, scenarios to list.
MOST_CHANGED = 10
#: Evaluations of one recipe with several seeds.
Seeds = Sequence[Evaluation]
#: Evaluations of several recipes, by name.
Recipes = Mapping[str, Seeds]
#: Metrics in a table of differences, besides the changes between updates.
COMPARED = ("minFDE1", "minFDE6", "MR6")


def by_recipe(evaluations: Sequence[Evaluation], files: Sequence[Path] = ()) -> dict[str, list[Evaluation]]:
    """Group evaluations by recipe, in the order in which the recipes first appear.

    Duplicates (a baseline beside every run) count once. If different runs have one recipe and seed, that
    recipe is listed once per folder of its files, or once per file.

    Args:
        files: file of each evaluation.

    Raises: DataError if there are none, their data differ, or the files do not distinguish such runs.
    """
    if not evaluations:
        raise DataError("no results given")
    runs_of: dict[str, list[tuple[Evaluation, Path]]] = {}
    for result, file in zip(evaluations, files or [Path()] * len(evaluations), strict=True):
        _require_same_data(evaluations[0], result)
        runs = runs_of.setdefault(result.recipe, [])
        if not any(_is_copy(other, result) for other, _ in runs):
            runs.append((result, file))
    recipes: dict[str, list[Evaluation]] = {}
    for recipe, runs in runs_of.items():
        results = [result for result, _ in runs]
        if _seeds_differ(results):
            recipes[recipe] = results
        else:
            recipes |= _by_place(runs)
    return recipes


def _by_place(runs: Sequence[tuple[Evaluation, Path]]) -> dict[str, list[Evaluation]]:
    """Group runs of one recipe by the folders of their files, or by the files if a folder has a seed twice.

    Raises: DataError if a file has a seed twice.
    """
    for name_of in (lambda file: file.parent, lambda file: file):
        placed: dict[str, list[Evaluation]] = {}
        for result, file in runs:
            placed.setdefault(f"{result.recipe} ({name_of(file)})", []).append(result)
        if all(_seeds_differ(results) for results in placed.values()):
            return placed
    names = " and ".join(result.predictor for result, _ in runs)
    raise DataError(f"{names} differ, but are {runs[0][0].recipe} with one seed; give one of them")


def _seeds_differ(results: Seeds) -> bool:
    return len({result.training.get("seed") for result in results}) == len(results)


def _require_same_data(first: Evaluation, second: Evaluation) -> None:
    if _data_of(first) != _data_of(second):
        names = f"{first.predictor} and {second.predictor}"
        data = f"{_data_of(first)} and {_data_of(second)}"
        raise DataError(f"{names} were evaluated on different data: {data}")
    require_same_scenes(first, second)


def _data_of(result: Evaluation) -> str:
    size = listing(f"{result.scenarios} scenarios", result.part, result.partly)
    return f"{result.split} of {result.store.get('source')} ({size})"


def _is_copy(first: Evaluation, second: Evaluation) -> bool:
    """Return whether two results have one seed and equal focal metrics, up to rounding on other machines."""
    if first.training.get("seed") != second.training.get("seed"):
        return False
    focal = first.metrics["focal"]
    other = second.metrics["focal"]
    names = [column.title for column in headline() if column.title in focal and column.title in other]
    return all(abs(focal[name] - other[name]) < 1e-3 for name in names)


def format_table(evaluations: Sequence[Evaluation] | Recipes, group: str = "focal") -> str:
    """Format a Markdown row per evaluation, or per recipe: the mean over its seeds, with minimum and maximum.

    Metres, miss rates as fractions.
    """
    if isinstance(evaluations, Mapping):
        rows = [_means(_with_count(name, seeds), seeds, group) for name, seeds in evaluations.items()]
    else:
        rows = [_means(result.predictor, [result], group) for result in evaluations]
    table = Table.of("", rows)
    return markdown(table.head, table.rows)


def _means(name: str, seeds: Seeds, group: str) -> Row:
    """Return a row with the means of the headline metrics. Raises: DataError without the group."""
    scored = all(group in result.metrics for result in seeds)
    require(scored, "group", f"{name} has no results of {group} agents")
    row: Row = {"predictor": name, "agents": str(seeds[0].metrics[group]["count"])}
    for column in headline():
        row[column.title] = over_seeds(seeds, column.title, group)
    return row


def over_seeds(seeds: Seeds, metric: str, group: str = "focal") -> str:
    """Format ``mean (minimum–maximum)``; only the value for one seed, a dash if there is none."""
    metrics = [result.metrics[group] for result in seeds]
    values = [of_seed[metric] for of_seed in metrics if metric in of_seed]
    if not values:
        return "-"
    mean = f"{sum(values) / len(values):.2f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.2f}\N{EN DASH}{max(values):.2f})"


def interval_table(recipes: Recipes, group: str = "focal") -> Table:
    """Build a table of the means of each recipe and their differences from the first, with 95 % intervals.

    For the metrics :data:`COMPARED`, over the agents that all predict.

    Raises: DataError if there are none, or results have no values per scenario.
    """
    paired = pairs([*chain.from_iterable(recipes.values())], group)
    streaming = [metric.name for metric in metrics_of("streaming")]
    names = [name for name in (*COMPARED, *streaming) if name in paired.values]
    titles = _short_names(recipes)
    reference = next(iter(recipes))
    first: dict[str, NDArray[np.float64]] = {}
    rows: list[Row] = []
    start = 0
    for recipe, seeds in recipes.items():
        end = start + len(seeds)
        means = {name: paired.values[name][start:end].mean(axis=0) for name in names}
        start = end
        row: Row = {"predictor": _with_count(titles[recipe], seeds)}
        for name, interval in paired.possible_intervals(means).items():
            row[name] = f"{interval}"
        if rows:
            differences = {name: means[name] - first[name] for name in names}
            for name, interval in paired.intervals(differences).items():
                row[f"{name} against {titles[reference]}"] = f"{interval:+}"
        first = first or means
        rows.append(row)
    agents = f"{paired.agents.sum():,} {group} agents that all predict"
    shown = "means and paired differences with 95 % bootstrap intervals over recordings"
    return Table.of(listing(agents, recipes[reference][0].partly, shown), rows)


def _short_names(recipes: Iterable[str]) -> dict[str, str]:
    """Return each recipe's name up to the first comma if that is unambiguous."""
    short = {recipe: recipe.partition(",")[0] for recipe in recipes}
    count = Counter(short.values())
    return {recipe: name if count[name] == 1 else recipe for recipe, name in short.items()}


def _with_count(name: str, seeds: Seeds) -> str:
    return f"{name}, {len(seeds)} seeds" if len(seeds) > 1 else name


def change_tables(
    before: Sequence[Evaluation],
    after: Sequence[Evaluation],
    names: tuple[str, str],
    count: int = MOST_CHANGED,
) -> list[Table]:
    """Build tables of the change in metrics between two recipes, given by their seeds.

    Mean changes over the focal and moving agents that both predict, with 95 % intervals, and the ``count``
    scenarios in which the focal agent's minFDE6 improved and degraded most.
    """
    old, new = names
    rows: list[Row] = []
    agents: list[str] = []
    for group, changed in _changes(before, after).items():
        agents.append(f"{changed.agents:,} {group}")
        for metric, (mean, low, high) in changed.metrics.items():
            row: Row = {"": f"{group} {metric}", "change": f"{mean:+.3f}", "from": "-", "to (95 %)": "-"}
            if not math.isnan(low):
                row |= {"from": f"{low:+.3f}", "to (95 %)": f"{high:+.3f}"}
            rows.append(row)
    both = f"{' and '.join(agents)} agents that both predict"
    built = [Table.of(listing(f"{new} against {old}, {both}", after[0].part), rows)]
    for how, scenarios in zip(("better", "worse"), most_changed(before, after, count), strict=True):
        rows = [{"scenario": scenario, "change": f"{value:+.2f}"} for scenario, value in scenarios.items()]
        built.append(Table.of(f"{how} minFDE6 than {old}", rows))
    return with_rows(built)


def _changes(before: Sequence[Evaluation], after: Sequence[Evaluation]) -> dict[str, Change]:
    """Compute the change for each group with common agents. Raises: DataError if there is none."""
    changes: dict[str, Change] = {}
    problems: list[DataError] = []
    for group in PAIRED_GROUPS:
        try:
            changes[group] = change(after, before, group)
        except DataError as error:  # predictions files may have only the focal agents, or none of them
            problems.append(error)
    if not changes:
        raise problems[0]
    return changes


def most_changed(
    before: Sequence[Evaluation], after: Sequence[Evaluation], count: int = MOST_CHANGED
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the ``count`` scenarios in which minFDE6 improves most, and those in which it degrades most.

    Uses the focal agent's minFDE6, or the moving agents' if the recipes share no focal agent.
    """
    by_scenario = next(iter(_changes(before, after).values())).by_scenario
    improved_first = list(by_scenario.items())
    degraded_first = improved_first[::-1]
    improved = {name: value for name, value in improved_first[:count] if value < 0}
    degraded = {name: value for name, value in degraded_first[:count] if value > 0}
    return improved, degraded
