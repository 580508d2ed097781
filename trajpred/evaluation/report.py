"""Text tables of evaluations, in the terminal or as Markdown: single, with less input, and compared."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
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
Row = dict[str, str | Cell]


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
        texts = [list(map(str, (blank | row).values())) for row in rows]
        return cls(title, list(blank), texts)


def tables(result: Evaluation, by: Sequence[str] = (), groups: Sequence[str] = ("focal",)) -> list[Table]:
    """Build the tables of a result: by K, joint futures, and horizons and breakdowns for ``groups``.

    Args:
        by: facts to break results down by (:data:`~trajpred.evaluation.table.FACTS`), or ``all``.
        groups: ``focal``, ``scored``, ``moving``, ``all``.

    Raises: DataError naming an unknown fact.
    """
    facts = fact_names(by)
    broken_down = dict.fromkeys(groups, facts)
    summaries: dict[str, Summary] = {}
    for group in GROUPS:
        summaries[group] = summary(members(result.agents, group), broken_down.get(group, ()))
    built = [*_by_k(result, summaries), joint_table(result), _av2(result)]
    for group in groups:
        if result.metrics[group]["count"]:
            built += _of_group(summaries[group], group, facts)
    if "all" not in groups:  # stationary agents are only in the group of all agents
        built.append(_plausibility_ahead(summaries["all"][EVERY], "all"))
    return _with_rows(built)


def _with_rows(built: Iterable[Table]) -> list[Table]:
    return [table for table in built if table.rows]


def _by_k(result: Evaluation, summaries: Mapping[str, Summary]) -> Iterator[Table]:
    """Build a table for each K, with the groups side by side; metrics without K are in the last table."""
    agents = result.agents
    assert agents is not None
    whole = whole_columns(agents)
    ks = sorted({column.k for column in whole if column.k is not None})
    for k in ks:
        facts = listing(f"{result.covered} scenarios", result.part, result.partly, f"K = {k}", result.others)
        shown = (k, None) if k == ks[-1] else (k,)
        rows: list[Row] = []
        for column in whole:
            cells = {group: summaries[group][EVERY][column] for group in GROUPS}
            if column.k in shown and _most_agents(cells):
                rows.append(_by_group(result, column.name, cells))
        if k == ks[-1] and "probability" in agents.column_names:
            errors = {group: calibration_errors(members(agents, group)) for group in GROUPS}
            for name in ("ECE", "top ECE"):
                cells = {group: errors[group][name] for group in GROUPS}
                rows.append(_by_group(result, name, cells))
        yield Table.of(f"{result.predictor}: {facts}", rows)


def _by_group(result: Evaluation, name: str, cells: Mapping[str, Cell]) -> Row:
    """Return a row with a metric's cell for each group of agents."""
    row: Row = {"": name}
    for group, cell in cells.items():
        row[f"{group} ({result.metrics[group]['count']:,})"] = cell
    return row


def _of_group(means: Summary, group: str, facts: Sequence[str]) -> Iterator[Table]:
    """Build the horizons, the updates and the breakdowns of a group."""
    cells_of_all = means[EVERY]
    errors = {column: cell for column, cell in cells_of_all.items() if column.metric.headline}
    yield _by_time(errors, "ahead", f"{group} agents as if the future ended after")
    yield _plausibility_ahead(cells_of_all, group)
    updates = f"{group} agents visible at every update: errors and changes, by length of the history"
    yield _by_time(cells_of_all, "after", updates)
    for fact in facts:
        rows: list[Row] = []
        for (of_fact, part), cells in means.items():
            if of_fact == fact and _most_agents(cells):
                rows.append({"": part, **_by_metric(cells)})
        yield Table.of(f"{group} agents by {FACTS[fact]}", rows)


def _plausibility_ahead(cells: Cells, group: str) -> Table:
    """Build the table of metrics by seconds ahead that need ``--plausibility``."""
    ahead = {column: cell for column, cell in cells.items() if column.metric.ahead}
    kinds = {column.metric.kind for column in ahead}
    title = f"{group} agents by seconds ahead: headings, fractions of the futures, drift, intervals"
    return _by_time(ahead if "plausibility" in kinds else {}, "ahead", title)


def _by_time(cells: Cells, field: str, title: str) -> Table:
    """Build a table with a row for each number of seconds ahead, or of history (``after``)."""
    by_time: dict[float, Cells] = {}
    for column, cell in cells.items():
        time = getattr(column, field)
        if time is not None:
            by_time.setdefault(time, {})[column] = cell
    rows = [{"": f"{time:g} s", **_by_metric(by_time[time])} for time in sorted(by_time)]
    return Table.of(title, rows)


def _by_metric(cells: Cells) -> Row:
    """Return the largest number of agents, and the cells by metric and K."""
    return {"agents": str(_most_agents(cells)), **_by_title(cells)}


def _most_agents(cells: Mapping[Any, Cell]) -> int:
    return max(cell.agents for cell in cells.values())


def _by_title(cells: Cells) -> Row:
    return {column.title: cell for column, cell in cells.items()}


def joint_table(result: Evaluation) -> Table:
    """Build the table of joint metrics; it has no rows without joint futures."""
    rows: list[Row] = []
    for group, means in result.joint.items():
        if means["count"] and result.scenes is not None:
            row: Row = {"agents": group, "scenarios": f"{means['count']:,}"}
            row |= {"incomplete": f"{means['incomplete']:,}", "actors": f"{means['actors']:,}"}
            rows.append(row | _by_title(scene_cells(result.scenes, group)))
    return Table.of(f"{result.predictor}: joint futures", rows)


def _av2(result: Evaluation) -> Table:
    """Build the table of the metrics compared with av2's; it has no rows without a comparison."""
    rows: list[Row] = []
    for name, compared in result.av2.items():
        row: Row = {
            "": name,
            "compared": f"{compared['count']:,}",
            "trajpred": f"{compared['trajpred']:.6f}",
            "av2": f"{compared['av2']:.6f}",
            "largest difference": f"{compared['difference']:.1e}",
        }
        rows.append(row)
    return Table.of("all agents by trajpred and by av2's own functions", rows)


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
            row: Row = {"": result.predictor, "agents": f"{result.metrics[group]['count']:,}"}
            row |= _by_title(summary(members(result.agents, group), columns=headline(MODES))[EVERY])
            if result is not first:
                changed = change([result], [first], group).metrics["minFDE6"]
                row["change of minFDE6"] = f"{changed:+}"
            rows.append(row)
        built.append(Table.of(listing(f"{group} agents, perturbed scenarios", first.part), rows))
    return _with_rows([*built, *map(joint_table, variants)])


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
    return _with_rows(built)


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
    notes = [conventions]
    for result in results:
        notes += result.notes
    return "\n\n".join(filter(None, dict.fromkeys(notes)))


def to_markdown(shown: Sequence[Table], note: str = CONVENTIONS) -> str:
    """Format the tables under their titles, and the note."""
    text = "".join(f"**{table.title}**\n\n{markdown(table.head, table.rows)}\n\n" for table in shown)
    return f"{text}{note}".rstrip() + "\n"


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
    of_recipe: dict[str, list[int]] = {}
    for row, result in enumerate(evaluations):
        _require_same_data(evaluations[0], result)
        rows = of_recipe.setdefault(result.recipe, [])
        if not any(_is_copy(evaluations[other], result) for other in rows):
            rows.append(row)
    recipes: dict[str, list[Evaluation]] = {}
    for recipe, rows in of_recipe.items():
        results = [evaluations[row] for row in rows]
        seeds = {result.training.get("seed") for result in results}
        if len(seeds) == len(results):
            recipes[recipe] = results
        else:
            recipes |= _by_place(results, [files[row] for row in rows if files])
    return recipes


def _by_place(results: Sequence[Evaluation], files: Sequence[Path]) -> dict[str, list[Evaluation]]:
    """Distinguish runs of one recipe and seed by the folders of their files, or by the files.

    Raises: DataError if there are no files, or equal ones.
    """
    recipe = results[0].recipe
    for places in ([file.parent for file in files], files):
        if len(set(places)) == len(results):
            return {f"{recipe} ({place})": [result] for place, result in zip(places, results, strict=True)}
    names = " and ".join(result.predictor for result in results)
    raise DataError(f"{names} differ, but are {recipe} with one seed; give one of them")


def _require_same_data(first: Evaluation, second: Evaluation) -> None:
    """Raise :class:`DataError` if the evaluations are of different data."""
    if _data_of(first) != _data_of(second):
        names = f"{first.predictor} and {second.predictor}"
        data = f"{_data_of(first)} and {_data_of(second)}"
        raise DataError(f"{names} were evaluated on different data: {data}")
    require_same_scenes(first, second)


def _data_of(result: Evaluation) -> str:
    size = listing(f"{result.scenarios} scenarios", result.part, result.partly)
    return f"{result.split} of {result.store.get('source')} ({size})"


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
    for name, seeds in lines:
        means = [result.metrics[group] for result in seeds if group in result.metrics]
        require(len(means) == len(seeds), "group", f"{name} has no results of {group} agents")
        row: Row = {"predictor": name, "agents": str(means[0]["count"])}
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
        for name, interval in paired.intervals(means).items():
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


def format_origin(seeds: Seeds) -> str:
    """Describe the origin of a recipe's figures in one line: its trainings, and the code that scored it."""
    training = format_training([result.training for result in seeds])
    code = _code(seeds[0].environment)
    scored = f"scored by {code}" if code else ""
    return "; ".join(filter(None, (training, scored, seeds[0].others)))


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
    values = [facts[name] for facts in training if facts.get(name) is not None]
    return list(dict.fromkeys(values))


def _training_data(facts: Mapping[str, Any]) -> str:
    """Describe the training scenarios and the store they came from; empty if unknown."""
    store = facts.get("store") or {}
    count = store.get("scenarios", {}).get("train")
    if not count:
        return ""
    data = f"{count:,} scenarios of {store.get('source')} (store {store.get('config')})"
    if facts.get("hold_out"):
        data += f", {facts['hold_out']:.3g} of them held out"
    return data


def _duration(training: Sequence[Mapping[str, Any]]) -> str:
    epochs = [count for count in _distinct(training, "epochs") if count > 0]  # -1: until the steps are done
    minutes = [round(wall_s / 60) for wall_s in _distinct(training, "wall_s")]
    return listing(
        _counted(epochs, "epoch"), _counted(_distinct(training, "steps"), "step"), _counted(minutes, "minute")
    )


def _processor(machine: Mapping[str, Any]) -> str:
    if not machine:
        return ""
    threads = _counted([machine.get("threads", 1)], "thread")
    return listing(machine.get("gpu") or "", f"{machine.get('cpu')} ({threads})")


def _counted(values: Iterable[int], unit: str) -> str:
    """Return text such as ``1 thread`` or ``79, 80 minutes``; empty without a value."""
    numbers = ", ".join(f"{value:,}" for value in dict.fromkeys(values))
    plural = "" if numbers in ("", "1") else "s"
    return f"{numbers} {unit}{plural}" if numbers else ""


def _code(environment: Mapping[str, Any]) -> str:
    if not environment:
        return ""
    commit = environment.get("commit", "")[:10]
    if environment.get("dirty"):
        commit += " with changes"
    return listing(f"trajpred {environment.get('trajpred')}", commit, f"torch {environment.get('torch')}")
