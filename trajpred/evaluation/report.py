"""Text tables of evaluations, in the terminal or as Markdown: single, with less input, and compared."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from trajpred.data.splits import GROUPS
from trajpred.evaluation.results import Evaluation, listing
from trajpred.evaluation.table import (
    EVERY,
    FACTS,
    Cell,
    Cells,
    Summary,
    calibration_errors,
    change,
    fact_names,
    members,
    scene_cells,
    summary,
    whole_columns,
)
from trajpred.metrics import headline
from trajpred.metrics.registry import MODES

#: Printed below every report, because published tables follow different conventions.
CONVENTIONS = (
    "Means in metres, with 95 % intervals by bootstrap over recordings; MR: fraction of agents whose best "
    "endpoint is more than 2 m off; headings in radians. minADE is the minimum over the modes, as in av2; "
    "ADE-of-best-FDE is what QCNet, HiVT and others call minADE. Brier metrics add (1 - p)², with the "
    "probability p of that mode, not renormalised. Metrics use the K most probable modes."
)
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
    return with_rows(built)


def with_rows(built: Iterable[Table]) -> list[Table]:
    """Leave out empty tables."""
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
    return with_rows([*built, *map(joint_table, variants)])


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
