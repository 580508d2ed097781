"""Tables that compare evaluations: with less input, before and after a change, and beside a baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trajpred.data.splits import PAIRED_GROUPS
from trajpred.evaluation.comparison import compare, most_changed, shared_columns
from trajpred.evaluation.report.tables import Means, Table, cell, cells, listing
from trajpred.evaluation.results import Evaluation
from trajpred.metrics import columns, metric_names


def degradation(results: Sequence[Evaluation], groups: Sequence[str]) -> Iterator[Table]:
    """Build tables of how much worse the others are than the first: of each group, and of scored worlds."""
    if len(results) > 1:
        for group in groups:
            means = [result.metrics[group] for result in results]
            yield from _relative_changes(results, f"{group} agents", means, _errors(means[0]))
        of_worlds = list(metric_names("world"))
        means = [result.worlds.get("scored", {}) for result in results]
        yield from _relative_changes(results, "worlds of scored agents", means, of_worlds)
    yield from _input_changes(results, groups)


def _errors(means: Means) -> list[str]:
    """List the errors of a breakdown, or all of them if these were evaluated for other K."""
    names = [name for name in columns("breakdown") if name in means]
    if names:
        return names
    errors = metric_names("displacement")
    return [name for name in means if name.rstrip("0123456789") in errors]


def _relative_changes(
    results: Sequence[Evaluation], title: str, means: Sequence[Means], metrics: Sequence[str]
) -> Iterator[Table]:
    """Build a table of the values of some agents and their relative change from the first result."""
    first = means[0]
    names = [name for name in metrics if name in first]
    if not names:
        return
    rows: list[list[str]] = []
    for result, values in zip(results, means, strict=True):
        row = [result.predictor, str(values.get("count", 0))]
        for name in names:
            text = cell(values, name)
            if name in values and first[name]:
                text += f" ({values[name] / first[name] - 1:+.0%})"
            row.append(text)
        rows.append(row)
    yield Table(listing(f"{title}, perturbed scenarios", results[0].part), ["", "count", *names], rows)


def _input_changes(results: Sequence[Evaluation], groups: Sequence[str]) -> Iterator[Table]:
    """Build tables of the paired change of the minFDE6 from the first to each of the others.

    An input whose removal makes the error smaller by more than the interval does harm. Variants that have
    other agents than the first, as short histories do, have no pairs.
    """
    first = results[0]
    paired = [group for group in groups if group in PAIRED_GROUPS]
    for group in paired:
        rows: list[list[str]] = []
        for variant in results[1:]:
            if "minFDE6" in shared_columns([first, variant], group):
                change = compare([variant], [first], "minFDE6", group)
                rows.append([variant.predictor, *_signed(change)])
        if rows:
            title = f"{group} agents, change of the minFDE6 without an input"
            yield Table(title, ["", "change", "from", "to (95 %)"], rows)


def _signed(values: Sequence[float]) -> list[str]:
    return [f"{value:+.3f}" for value in values]


def change_tables(
    before: Sequence[Evaluation], after: Sequence[Evaluation], count: int, names: tuple[str, str]
) -> list[Table]:
    """Build tables of the change of the metrics between two recipes, given by their seeds.

    The mean change of focal and of moving agents, paired by scenario, with its 95 % interval, and the
    ``count`` scenarios in which the focal agent's minFDE6 improved and degraded most.
    """
    old, new = names
    rows: list[list[str]] = []
    agents: list[str] = []
    for group in PAIRED_GROUPS:
        metrics = shared_columns([*before, *after], group)
        for metric in metrics:
            change = compare(after, before, metric, group)
            rows.append([f"{group} {metric}", *_signed(change)])
        if metrics:
            agents.append(f"{sum(after[0].per_scenario[f'{group}/count']):,} {group}")
    counted = f"{' and '.join(agents)} agents that both predict"
    title = listing(f"{new} against {old}, {counted}", after[0].part)
    built = [Table(title, ["", "change", "from", "to (95 %)"], rows)]
    improved, degraded = most_changed(after, before, count)
    for how, scenarios in (("better", improved), ("worse", degraded)):
        lines = [[scenario, f"{change:+.2f}"] for scenario, change in scenarios]
        if lines:
            built.append(Table(f"{how} minFDE6 than {old}", ["scenario", "change"], lines))
    return built


def beside(result: Evaluation, baseline: Evaluation) -> Table:
    """Build a table of the main metrics of focal, scored and moving agents, beside those of a baseline."""
    focal = result.metrics["focal"]
    head = [""]
    means: list[Means] = []
    for group, values in result.metrics.items():
        is_repeated = group != "focal" and values == focal
        if group == "all" or is_repeated:
            continue
        head += [f"{group} ({values['count']:,})", baseline.predictor.replace("_", " ")]
        means += [values, baseline.metrics[group]]
    rows = [[name, *cells(name, means)] for name in columns("results")]
    note = "metres; MR: share of agents missed by more than 2 m"
    return Table(f"Validation, {result.scenarios:,} scenarios ({note})", head, rows)
