"""Markdown tables of recipes, each over its seeds, and descriptions of their origin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trajpred.errors import DataError, require
from trajpred.evaluation.comparison import Interval, Seeds, compare, mean_of, shared_columns
from trajpred.evaluation.report.tables import Means, listing, markdown
from trajpred.evaluation.results import Evaluation
from trajpred.metrics import columns

#: Evaluations from several seeds, by recipe.
Recipes = Mapping[str, Seeds]


def by_recipe(evaluations: Sequence[Evaluation]) -> dict[str, list[Evaluation]]:
    """Group evaluations by recipe, in the order in which the recipes first appear.

    Duplicates (a baseline beside every run) count once.

    Raises: DataError if there are none, they are of different data, or two of one recipe and seed differ.
    """
    if not evaluations:
        raise DataError("no results given")
    recipes: dict[str, list[Evaluation]] = {}
    for result in evaluations:
        _require_same_data(evaluations[0], result)
        seeds = recipes.setdefault(result.recipe, [])
        twin = _same_seed(seeds, result)
        if twin is None:
            seeds.append(result)
        elif not _agree(twin, result):
            names = f"{twin.predictor} and {result.predictor}"
            raise DataError(f"{names} differ, but both are {result.recipe} with one seed; give one of them")
    return recipes


def _same_seed(seeds: Seeds, result: Evaluation) -> Evaluation | None:
    for other in seeds:
        if other.training.get("seed") == result.training.get("seed"):
            return other
    return None


def _agree(first: Evaluation, second: Evaluation) -> bool:
    """Return whether results are equal up to the rounding of another machine."""
    focal = first.metrics["focal"]
    other = second.metrics["focal"]
    for name in columns("results"):
        if name in focal and name in other and not abs(focal[name] - other[name]) < 1e-3:
            return False
    return True


def _require_same_data(first: Evaluation, second: Evaluation) -> None:
    data = _data_of(first)
    other = _data_of(second)
    if data != other:
        names = f"{first.predictor} and {second.predictor}"
        raise DataError(f"{names} were evaluated on different data: {data} and {other}")


def _data_of(result: Evaluation) -> str:
    size = listing(f"{result.scenarios} scenarios", result.part, result.partly)
    return f"{result.split} of {result.store.get('source')} ({size})"


def format_table(evaluations: Sequence[Evaluation], group: str = "focal") -> str:
    """Format one Markdown row per evaluation; metres, miss rates as shares."""
    return _metrics_table([(result.predictor, [result]) for result in evaluations], group)


def format_recipes(recipes: Recipes, group: str = "focal") -> str:
    """Format one Markdown row per recipe: the mean over its seeds, with minimum and maximum."""
    return _metrics_table([(_with_count(name, seeds), seeds) for name, seeds in recipes.items()], group)


def _with_count(name: str, seeds: Seeds) -> str:
    return f"{name}, {len(seeds)} seeds" if len(seeds) > 1 else name


def _metrics_table(lines: Sequence[tuple[str, Seeds]], group: str) -> str:
    names = columns("results")
    rows: list[list[str]] = []
    for title, seeds in lines:
        means = [result.metrics[group] for result in seeds if group in result.metrics]
        require(len(means) == len(seeds), "group", f"{title} has no results of {group} agents")
        row = [title, str(means[0]["count"])]
        row += [_over_seeds(means, name) for name in names]
        rows.append(row)
    return markdown(["predictor", "agents", *names], rows)


def _over_seeds(means: Sequence[Means], name: str) -> str:
    """Format ``mean (minimum–maximum)``; the value alone of one seed, a dash if there is none."""
    values = [metrics[name] for metrics in means if name in metrics]
    if not values:
        return "-"
    mean = f"{sum(values) / len(values):.2f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.2f}\N{EN DASH}{max(values):.2f})"


def format_intervals(recipes: Recipes, group: str = "focal") -> str:
    """Format one Markdown row per recipe: means and differences from the first, with 95 % intervals.

    Raises: DataError if they were not evaluated on the same agents, or have no values per scenario.
    """
    evaluations: list[Evaluation] = []
    for seeds in recipes.values():
        evaluations += seeds
    names = shared_columns(evaluations, group)
    reference = next(iter(recipes))
    rows: list[list[str]] = []
    for recipe, seeds in recipes.items():
        row = [_with_count(recipe, seeds)]
        row += [_interval(mean_of(seeds, name, group)) for name in names]
        for name in names:
            if recipe == reference:
                row.append("-")
            else:
                row.append(_interval(compare(seeds, recipes[reference], name, group), "+"))
        rows.append(row)
    differences = [f"{name} against {reference}" for name in names]
    return markdown(["predictor", *names, *differences], rows)


def _interval(interval: Interval, sign: str = "") -> str:
    mean = format(interval.mean, f"{sign}.2f")
    low = format(interval.low, f"{sign}.2f")
    high = format(interval.high, f"{sign}.2f")
    return f"{mean} [{low}, {high}]"


def format_origin(seeds: Seeds) -> str:
    """Describe the origin of a recipe's figures in one line: its trainings, and the code that scored it."""
    parts = [format_training([result.training for result in seeds])]
    scored = _code(seeds[0].environment)
    if scored:
        parts.append(f"scored by {scored}")
    parts.append(seeds[0].others)
    return "; ".join(filter(None, parts))


def format_training(training: Sequence[Mapping[str, Any]]) -> str:
    """Describe trainings of one recipe in one line: seeds, data, duration, machine and code."""
    machine = training[0].get("environment") or {}
    seeds = _distinct(training, "seed")
    parts = {
        "seeds" if len(seeds) > 1 else "seed": ", ".join(str(seed) for seed in seeds),
        "trained on": _training_data(training[0]),
        "starting with": ", ".join(_distinct(training, "weights")),
        "for": _duration(training),
        "on": _processor(machine),
        "code": _code(machine),
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items() if value)


def _distinct(training: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """List the different values of a fact, without None."""
    values = dict.fromkeys(facts.get(name) for facts in training)
    return [value for value in values if value is not None]


def _training_data(facts: Mapping[str, Any]) -> str:
    store = facts.get("store") or {}
    count = store.get("scenarios", {}).get("train")
    if not count:
        return ""
    data = f"{count:,} scenarios of {store.get('source')} (store {store.get('config')})"
    if facts.get("hold_out"):
        data += f", {facts['hold_out']:.3g} of them held out"
    return data


def _duration(training: Sequence[Mapping[str, Any]]) -> str:
    minutes = dict.fromkeys(round(wall_s / 60) for wall_s in _distinct(training, "wall_s"))
    lasted: dict[str, Iterable[int]] = {
        "epoch": _distinct(training, "epochs"),
        "step": _distinct(training, "steps"),
        "minute": minutes,
    }
    return ", ".join(_counted(values, unit) for unit, values in lasted.items() if values)


def _processor(machine: Mapping[str, Any]) -> str:
    if not machine:
        return ""
    threads = _counted([machine.get("threads", 1)], "thread")
    return ", ".join(filter(None, (machine.get("gpu"), f"{machine.get('cpu')} ({threads})")))


def _counted(values: Iterable[int], unit: str) -> str:
    """Return for example ``1 thread`` or ``79, 80 minutes``."""
    numbers = [f"{value:,}" for value in values]
    plural = "" if numbers == ["1"] else "s"
    return f"{', '.join(numbers)} {unit}{plural}"


def _code(environment: Mapping[str, Any]) -> str:
    if not environment:
        return ""
    commit = environment.get("commit", "")[:10]
    if environment.get("dirty"):
        commit += " with changes"
    return listing(f"trajpred {environment.get('trajpred')}", commit, f"torch {environment.get('torch')}")
