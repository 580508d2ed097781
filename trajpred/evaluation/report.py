"""Text tables of evaluations, in the terminal or as Markdown: single, with less input, and compared."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from trajpred.data.splits import GROUPS, PAIRED_GROUPS
from trajpred.errors import DataError, require
from trajpred.evaluation.results import Evaluation, listing
from trajpred.evaluation.table import (
    EVERY,
    FACTS,
    Cell,
    Cells,
    Change,
    Interval,
    Summary,
    calibration_errors,
    change,
    fact_names,
    members,
    pairs,
    require_same_scenes,
    scene_cells,
    summary,
    whole_columns,
)
from trajpred.metrics import headline, metrics_of
from trajpred.metrics.registry import MODES

#: Printed below every report, because published tables follow different conventions.
CONVENTIONS = (
    "Means in metres, with 95 % intervals by bootstrap over recordings; MR: fraction of agents whose best "
    "endpoint is more than 2 m off; headings in radians. minADE is the minimum over the modes, as in av2; "
    "ADE-of-best-FDE is what QCNet, HiVT and others call minADE. Brier metrics add (1 - p)² of that mode, p "
    "as given. K modes: the most probable ones."
)
#: How many of the most improved, and of the most degraded, scenarios to list.
MOST_CHANGED = 10
#: Cells of a row by column; the column of the row's name is often "".
Row = dict[str, str]


class Table(NamedTuple):
    """A title, the names of the columns, and the cells."""

    title: str
    head: list[str]
    rows: list[list[str]]

    @classmethod
    def of(cls, title: str, rows: Sequence[Row]) -> Table:
        """Build a table with a dash for missing cells."""
        blank: Row = {}
        for row in rows:
            blank |= dict.fromkeys(row, "-")
        return cls(title, list(blank), [list((blank | row).values()) for row in rows])


def tables(result: Evaluation, by: Sequence[str] = (), groups: Sequence[str] = ("focal",)) -> list[Table]:
    """Build the tables of a result: by K, joint futures, and horizons and breakdowns for ``groups``.

    Args:
        by: facts to break results down by (:data:`~trajpred.evaluation.table.FACTS`), or ``all``.
        groups: ``focal``, ``scored``, ``moving``, ``all``.

    Raises: DataError naming an unknown fact.
    """
    facts = fact_names(by)
    assert result.agents is not None
    found: dict[str, Summary] = {}
    for group in GROUPS:
        found[group] = summary(members(result.agents, group), facts if group in groups else ())
    built = [*_by_k(result, found), joint_table(result), _av2(result)]
    for group in groups:
        if not result.metrics[group]["count"]:
            continue
        means = found[group][EVERY]
        errors = {column: cell for column, cell in means.items() if column.metric.headline}
        updates = f"{group} agents visible at every update: errors and changes, by length of the history"
        built.append(_by_time(errors, "ahead", f"{group} agents as if the future ended after"))
        built.append(_plausibility_ahead(means, group))
        built.append(_by_time(means, "after", updates))
        built += [_breakdown(found[group], group, fact) for fact in facts]
    if "all" not in groups:  # stationary agents are only in the group of all agents
        built.append(_plausibility_ahead(found["all"][EVERY], "all"))
    return [table for table in built if table.rows]


def _by_k(result: Evaluation, found: Mapping[str, Summary]) -> Iterator[Table]:
    """Build a table for each K, with the groups side by side; metrics without K are in the last table."""
    assert result.agents is not None
    whole = whole_columns(result.agents)
    ks = sorted({column.k for column in whole if column.k is not None})
    for k in ks:
        rows: list[Row] = []
        for column in whole:
            cells = {group: found[group][EVERY][column] for group in GROUPS}
            is_here = column.k == k or (column.k is None and k == ks[-1])
            if is_here and any(cell.agents for cell in cells.values()):
                rows.append({"": column.name, **_by_group(result, cells)})
        if k == ks[-1] and "probability" in result.agents.column_names:
            errors = {group: calibration_errors(members(result.agents, group)) for group in GROUPS}
            for name in ("ECE", "top ECE"):
                cells = {group: errors[group][name] for group in GROUPS}
                rows.append({"": name, **_by_group(result, cells)})
        facts = listing(f"{result.covered} scenarios", result.part, result.partly, f"K = {k}", result.others)
        yield Table.of(f"{result.predictor}: {facts}", rows)


def _by_group(result: Evaluation, cells: Mapping[str, Cell]) -> Row:
    row: Row = {}
    for group, cell in cells.items():
        row[f"{group} ({result.metrics[group]['count']:,})"] = _text(cell)
    return row


def _by_metric(cells: Cells) -> Row:
    """Return the largest number of agents, and the cells by metric and K."""
    return {"agents": str(max(cell.agents for cell in cells.values())), **_texts(cells)}


def _texts(cells: Cells) -> Row:
    return {column.title: _text(cell) for column, cell in cells.items()}


def joint_table(result: Evaluation) -> Table:
    """Build the table of joint metrics; it has no rows without joint futures."""
    rows: list[Row] = []
    for group, means in result.joint.items():
        if means["count"] and result.scenes is not None:
            row = {"agents": group, "scenarios": f"{means['count']:,}"}
            row |= {"incomplete": f"{means['incomplete']:,}", "actors": f"{means['actors']:,}"}
            rows.append(row | _texts(scene_cells(result.scenes, group)))
    return Table.of(f"{result.predictor}: joint futures", rows)


def _av2(result: Evaluation) -> Table:
    rows: list[Row] = []
    for name, compared in result.av2.items():
        row = {
            "": name,
            "compared": f"{compared['count']:,}",
            "trajpred": f"{compared['trajpred']:.6f}",
            "av2": f"{compared['av2']:.6f}",
            "largest difference": f"{compared['difference']:.1e}",
        }
        rows.append(row)
    return Table.of("all agents by trajpred and by av2's own functions", rows)


def _plausibility_ahead(found: Cells, group: str) -> Table:
    """Build the table of metrics by seconds ahead that need ``--plausibility``."""
    ahead = {column: cell for column, cell in found.items() if column.metric.ahead}
    if not any(column.metric.kind == "plausibility" for column in ahead):
        ahead = {}
    title = f"{group} agents by seconds ahead: headings, fractions of the futures, drift, intervals"
    return _by_time(ahead, "ahead", title)


def _by_time(found: Cells, field: str, title: str) -> Table:
    """Build a table with a row for each number of seconds ahead, or of history (``after``)."""
    by_time: dict[float, Cells] = {}
    for column, cell in found.items():
        time = getattr(column, field)
        if time is not None:
            by_time.setdefault(time, {})[column] = cell
    rows = [{"": f"{time:g} s", **_by_metric(by_time[time])} for time in sorted(by_time)]
    return Table.of(title, rows)


def _breakdown(found: Summary, group: str, fact: str) -> Table:
    """Build a table with a row for each value of a fact that has agents."""
    rows: list[Row] = []
    for (of_fact, part), cells in found.items():
        if of_fact == fact and any(cell.agents for cell in cells.values()):
            rows.append({"": part, **_by_metric(cells)})
    return Table.of(f"{group} agents by {FACTS[fact]}", rows)


def degradation(results: Sequence[Evaluation], groups: Sequence[str]) -> list[Table]:
    """Build a table for each group with the means of the first result and of variants with less input.

    Includes the paired change in minFDE6: an input does harm if its removal reduces the error by more than
    the interval.
    """
    first, *variants = results
    if not variants:
        return []
    built: list[Table] = []
    for group in groups:
        rows: list[Row] = []
        for result in results:
            assert result.agents is not None
            cells = summary(members(result.agents, group), columns=headline(MODES))[EVERY]
            row = {"": result.predictor, **_by_metric(cells), "change of minFDE6": "-"}
            row["agents"] = f"{result.metrics[group]['count']:,}"
            if result is not first:
                changed = change([result], [first], group).metrics["minFDE6"]
                row["change of minFDE6"] = format_interval(changed, "+")
            rows.append(row)
        built.append(Table.of(listing(f"{group} agents, perturbed scenarios", first.part), rows))
    built += [joint_table(result) for result in variants]
    return [table for table in built if table.rows]


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
            row = {"": f"{group} {metric}", "change": f"{mean:+.3f}", "from": "-", "to (95 %)": "-"}
            if not math.isnan(low):
                row |= {"from": f"{low:+.3f}", "to (95 %)": f"{high:+.3f}"}
            rows.append(row)
    both = f"{' and '.join(agents)} agents that both predict"
    built = [Table.of(listing(f"{new} against {old}, {both}", after[0].part), rows)]
    for how, scenarios in zip(("better", "worse"), most_changed(before, after, count), strict=True):
        rows = []
        for scenario, value in scenarios.items():
            rows.append({"scenario": scenario, "change": f"{value:+.2f}"})
        built.append(Table.of(f"{how} minFDE6 than {old}", rows))
    return [table for table in built if table.rows]


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

    It is the focal agent's minFDE6, or the moving agents' if both predict no common focal agent.
    """
    changed = next(iter(_changes(before, after).values()))
    ascending = list(changed.by_scenario.items())
    improved = [pair for pair in ascending[:count] if pair[1] < 0]
    degraded = [pair for pair in ascending[: -count - 1 : -1] if pair[1] > 0]
    return dict(improved), dict(degraded)


def _text(cell: Cell) -> str:
    """Format a mean with its interval, or a dash without agents."""
    return format_interval(cell.interval) if cell.agents else "-"


def format_interval(interval: Interval, sign: str = "") -> str:
    """Format ``mean [low, high]``; only the mean for a single scenario."""
    mean = format(interval.mean, f"{sign}.2f")
    if math.isnan(interval.low):
        return mean
    low = format(interval.low, f"{sign}.2f")
    high = format(interval.high, f"{sign}.2f")
    return f"{mean} [{low}, {high}]"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table with columns aligned to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        return f"| {' | '.join(cells)} |"

    rules = ["-" * (width + 1) + ":" for width in widths]
    return "\n".join([line(head), f"|{'|'.join(rules)}|", *map(line, rows)])


def note_of(results: Sequence[Evaluation], conventions: str = CONVENTIONS) -> str:
    """Return the note below tables of results: the conventions, and remarks on each result."""
    notes = [conventions] if conventions else []
    for result in results:
        notes += result.notes
    return "\n\n".join(dict.fromkeys(notes))


def to_markdown(shown: Sequence[Table], note: str = CONVENTIONS) -> str:
    """Format the tables under their titles, and the note."""
    parts = [f"**{table.title}**\n\n{markdown(table.head, table.rows)}" for table in shown]
    if note:
        parts.append(note)
    return "\n\n".join(parts) + "\n"


def show(shown: Sequence[Table], note: str = CONVENTIONS) -> None:
    """Print the tables and the note: formatted in a terminal, as Markdown to a file or a pipe."""
    if not sys.stdout.isatty():
        print(to_markdown(shown, note))
        return
    console = Console()
    for table in shown:
        grid = RichTable(box=box.SIMPLE_HEAD)
        for i, name in enumerate(table.head):
            grid.add_column(name, justify="right" if i else "left", no_wrap=not i)
        for row in table.rows:
            grid.add_row(*row)
        console.print(table.title, style="bold", markup=False)  # rich wraps a table's own title to its width
        console.print(grid)
    if note:
        console.print(note, style="dim", highlight=False, markup=False)


#: Evaluations of one recipe with several seeds.
Seeds = Sequence[Evaluation]
#: Evaluations of several recipes, by name.
Recipes = Mapping[str, Seeds]
#: Metrics in a table of differences, besides the changes between updates.
COMPARED = ("minFDE1", "minFDE6", "MR6")


def by_recipe(evaluations: Sequence[Evaluation], files: Sequence[Path] = ()) -> dict[str, list[Evaluation]]:
    """Group evaluations by recipe, in the order in which the recipes first appear.

    Duplicates (a baseline beside every run) count once.

    Args:
        files: files of the evaluations; different runs of one recipe and seed are distinguished by folder.

    Raises: DataError if there are none, their data differ, or two with one recipe and seed differ.
    """
    if not evaluations:
        raise DataError("no results given")
    first = evaluations[0]
    of_recipe: dict[str, list[int]] = {}
    for row, result in enumerate(evaluations):
        if _data_of(result) != _data_of(first):
            names = f"{first.predictor} and {result.predictor}"
            data = f"{_data_of(first)} and {_data_of(result)}"
            raise DataError(f"{names} were evaluated on different data: {data}")
        require_same_scenes(first, result)
        rows = of_recipe.setdefault(result.recipe, [])
        if not any(_is_copy(evaluations[other], result) for other in rows):
            rows.append(row)
    recipes: dict[str, list[Evaluation]] = {}
    for recipe, rows in of_recipe.items():
        seeds = [evaluations[row] for row in rows]
        if _are_distinct([result.training.get("seed") for result in seeds]):
            recipes[recipe] = seeds
            continue
        places = [files[row].parent for row in rows if files]
        if not _are_distinct(places):
            places = [files[row] for row in rows]
        if not places or not _are_distinct(places):
            names = " and ".join(result.predictor for result in seeds)
            raise DataError(f"{names} differ, but are {recipe} with one seed; give one of them")
        for place, result in zip(places, seeds, strict=True):
            recipes[f"{recipe} ({place})"] = [result]
    return recipes


def _data_of(result: Evaluation) -> str:
    size = listing(f"{result.scenarios} scenarios", result.part, result.partly)
    return f"{result.split} of {result.store.get('source')} ({size})"


def _are_distinct(values: Sequence[Any]) -> bool:
    return len(set(values)) == len(values)


def _is_copy(first: Evaluation, second: Evaluation) -> bool:
    """Return whether a recipe's results have one seed and are equal up to rounding on other machines."""
    focal = first.metrics["focal"]
    other = second.metrics["focal"]
    for column in headline():
        name = column.title
        if name in focal and name in other and not abs(focal[name] - other[name]) < 1e-3:
            return False
    return first.training.get("seed") == second.training.get("seed")


def format_table(evaluations: Sequence[Evaluation] | Recipes, group: str = "focal") -> str:
    """Format a Markdown row per evaluation, or per recipe: the mean over its seeds, with minimum and maximum.

    Metres, miss rates as fractions.
    """
    if isinstance(evaluations, Mapping):
        lines = [(_with_count(name, seeds), seeds) for name, seeds in evaluations.items()]
    else:
        lines = [(result.predictor, [result]) for result in evaluations]
    rows: list[Row] = []
    for title, seeds in lines:
        means = [result.metrics[group] for result in seeds if group in result.metrics]
        require(len(means) == len(seeds), "group", f"{title} has no results of {group} agents")
        row = {"predictor": title, "agents": str(means[0]["count"])}
        for column in headline():
            row[column.title] = _over_seeds(means, column.title)
        rows.append(row)
    table = Table.of("", rows)
    return markdown(table.head, table.rows)


def _with_count(name: str, seeds: Seeds) -> str:
    return f"{name}, {len(seeds)} seeds" if len(seeds) > 1 else name


def _over_seeds(means: Sequence[Mapping[str, float]], name: str) -> str:
    """Format ``mean (minimum–maximum)``; only the value for one seed, a dash if there is none."""
    values = [metrics[name] for metrics in means if name in metrics]
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
    paired = pairs([result for seeds in recipes.values() for result in seeds], group)
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
        row = {"predictor": _with_count(titles[recipe], seeds)}
        for name, interval in paired.intervals(means).items():
            row[name] = format_interval(interval)
        if rows:
            differences = {name: means[name] - first[name] for name in names}
            for name, interval in paired.intervals(differences).items():
                row[f"{name} against {titles[reference]}"] = format_interval(interval, "+")
        first = first or means
        rows.append(row)
    agents = f"{paired.agents.sum():,} {group} agents that all predict"
    shown = "means and paired differences with 95 % bootstrap intervals over recordings"
    return Table.of(listing(agents, recipes[reference][0].partly, shown), rows)


def _short_names(recipes: Iterable[str]) -> dict[str, str]:
    """Return each recipe's name up to the first comma if that is unambiguous."""
    start = {recipe: recipe.partition(",")[0] for recipe in recipes}
    count = Counter(start.values())
    return {recipe: name if count[name] == 1 else recipe for recipe, name in start.items()}


def format_origin(seeds: Seeds) -> str:
    """Describe the origin of a recipe's figures in one line: its trainings, and the code that scored it."""
    scored = _code(seeds[0].environment)
    parts = [
        format_training([result.training for result in seeds]),
        f"scored by {scored}" if scored else "",
        seeds[0].others,
    ]
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
    """List the distinct values of a fact, without None."""
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
        "epoch": [count for count in _distinct(training, "epochs") if count > 0],  # -1: as many as the steps
        "step": _distinct(training, "steps"),
        "minute": minutes,
    }
    return ", ".join(_counted(values, unit) for unit, values in lasted.items() if values)


def _processor(machine: Mapping[str, Any]) -> str:
    if not machine:
        return ""
    threads = _counted([machine.get("threads", 1)], "thread")
    return listing(machine.get("gpu") or "", f"{machine.get('cpu')} ({threads})")


def _counted(values: Iterable[int], unit: str) -> str:
    """Return text such as ``1 thread`` or ``79, 80 minutes``."""
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
