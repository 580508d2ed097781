"""Evaluations as Markdown tables: as they are, by recipe over seeds, and with intervals over scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajpred.errors import DataError, require
from trajpred.evaluation.intervals import Interval, bootstrap, compare, per_scenario
from trajpred.evaluation.results import Evaluation
from trajpred.metrics import columns

TO = "\N{EN DASH}"
#: Evaluations of the same training from several seeds, by the recipe's name.
Recipes = Mapping[str, Sequence[Evaluation]]


def by_recipe(evaluations: Sequence[Evaluation]) -> dict[str, list[Evaluation]]:
    """Evaluations grouped by recipe, in the order in which the recipes are first met.

    What says the same again (a baseline beside every run) counts once.

    Raises: DataError if there are none, they were scored on different data, or differ without another seed.
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
    """Whether both tell the same, up to the rounding of another machine."""
    a, b = first.metrics["focal"], other.metrics["focal"]
    return all(abs(a[name] - b[name]) < 1e-3 for name in columns("results") if name in a and name in b)


def _require_same_data(first: Evaluation, other: Evaluation) -> None:
    data = [(one.split, one.scenarios, one.store.get("source")) for one in (first, other)]
    if data[0] != data[1]:
        told = " and ".join(f"{split} of {source} ({count} scenarios)" for split, count, source in data)
        raise DataError(f"{first.predictor} and {other.predictor} were scored on different data: {told}")


def format_table(evaluations: Sequence[Evaluation], group: str = "focal") -> str:
    """One line per evaluation, as Markdown; metres, miss rates as shares."""
    return _metrics_table([(one.predictor, [one]) for one in evaluations], group)


def format_recipes(recipes: Recipes, group: str = "focal") -> str:
    """One line per recipe: the mean over its seeds, with the least and the largest."""
    return _metrics_table([(_counted(name, seeds), seeds) for name, seeds in recipes.items()], group)


def _counted(name: str, seeds: Sequence[Evaluation]) -> str:
    return f"{name}, {len(seeds)} seeds" if len(seeds) > 1 else name


def _metrics_table(lines: Sequence[tuple[str, Sequence[Evaluation]]], group: str) -> str:
    rows = []
    for name, seeds in lines:
        require(all(group in one.metrics for one in seeds), "group", f"{name} says nothing of {group} agents")
        each = [one.metrics[group] for one in seeds]
        rows.append(
            [name, str(each[0]["count"]), *(_over_seeds(each, column) for column in columns("results"))]
        )
    return markdown(["predictor", "agents", *columns("results")], rows)


def _over_seeds(each: Sequence[Mapping[str, float]], name: str) -> str:
    """``mean (least–largest)``; the value alone where there is one seed, a dash where there is none."""
    values = [metrics[name] for metrics in each if name in metrics]
    if not values:
        return "-"
    mean = f"{sum(values) / len(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.2f}{TO}{max(values):.2f})"


def format_intervals(recipes: Recipes) -> str:
    """One line per recipe: means with 95 % intervals over scenarios, and how far they are from the first's.

    Raises: DataError if they were not scored on the same scenarios, or do not hold them one by one.
    """
    first, *_ = recipes.values()
    rows = []
    for name, seeds in recipes.items():
        own = [_shown(bootstrap(list(per_scenario(seeds, m).values()))) for m in columns("interval")]
        less = ["-" if seeds is first else _shown(compare(seeds, first, m), "+") for m in columns("interval")]
        rows.append([_counted(name, seeds), *own, *less])
    against = [f"{metric} against {next(iter(recipes))}" for metric in columns("interval")]
    return markdown(["predictor", *columns("interval"), *against], rows)


def _shown(interval: Interval, sign: str = "") -> str:
    return "{:{s}.2f} [{:{s}.2f}, {:{s}.2f}]".format(*interval, s=sign)


def format_origin(seeds: Sequence[Evaluation]) -> str:
    """Where a recipe's figures come from, in a line: seeds, length of training, data, machine and code."""
    training, scored = [one.training for one in seeds], seeds[0].environment
    trained = training[0].get("environment", {})
    parts = {
        "seeds": _listed([facts.get("seed") for facts in training]),
        "trained on": _data(training[0].get("store", {}), "train"),
        "starting with": _listed([facts.get("weights") for facts in training]),
        "epochs": _listed([facts.get("epochs") for facts in training]),
        "steps": _listed([facts.get("steps") for facts in training]),
        "minutes": _listed([round(facts["wall_s"] / 60) for facts in training if "wall_s" in facts]),
        "on": _machine(trained),
        "code": _code(trained),
        "scored by": _code(scored),
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items() if value)


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))


def _data(store: Mapping[str, Any], split: str) -> str:
    count = store.get("scenarios", {}).get(split)
    return f"{count:,} scenarios of {store['source']} (store {store['config']})" if count else ""


def _machine(environment: Mapping[str, Any]) -> str:
    cpu = f"{environment.get('cpu')} ({environment.get('threads')} threads)" if environment else ""
    return ", ".join(filter(None, (environment.get("gpu"), cpu)))


def _code(environment: Mapping[str, Any]) -> str:
    if not environment:
        return ""
    commit = environment.get("commit", "")[:10] + (" with changes" if environment.get("dirty") else "")
    versions = f"trajpred {environment['trajpred']}", commit, f"torch {environment['torch']}"
    return ", ".join(filter(None, versions))


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its columns aligned to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [" | ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in (head, *rows)]
    rule = "|".join("-" * (w + 1) + ":" for w in widths)
    return "\n".join((f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])))
