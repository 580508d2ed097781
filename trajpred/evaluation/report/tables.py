"""Tables of text: their cells, and how they are printed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

#: Printed below every report, because published tables follow different conventions.
CONVENTIONS = (
    "Metres; MR: share of agents whose best endpoint is more than 2 m off; headings in radians. minADE is "
    "the minimum over the modes, as in av2; ADE-of-best-FDE is what QCNet, HiVT and others call minADE. "
    "Brier metrics add (1 - p)² of the best mode, probabilities as given. K modes: the most probable ones."
)
#: Means of the metrics of some agents, by name.
Means = Mapping[str, float]


class Table(NamedTuple):
    """A title, the names of the columns, and the cells."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def cells(name: str, groups: Sequence[Means]) -> list[str]:
    """Format a metric of each group."""
    return [cell(means, name) for means in groups]


def cell(means: Means, name: str) -> str:
    """Format a metric in metres, a dash if it is unknown."""
    return f"{means[name]:.2f}" if name in means else "-"


def names_of(groups: Iterable[Means]) -> list[str]:
    """List the names that any of the groups has, each once."""
    names: dict[str, None] = {}
    for means in groups:
        names |= dict.fromkeys(means)
    return list(names)


def listing(*parts: str) -> str:
    """Join the parts that are not empty by commas."""
    return ", ".join(filter(None, parts))


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table with columns aligned to the right."""
    widths = [len(cell) for cell in head]
    for row in rows:
        widths = [max(width, len(cell)) for width, cell in zip(widths, row, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        return f"| {' | '.join(cells)} |"

    rules = ["-" * (width + 1) + ":" for width in widths]
    lines = [line(head), f"|{'|'.join(rules)}|"]
    lines += [line(row) for row in rows]
    return "\n".join(lines)


def to_markdown(shown: Sequence[Table], note: str = CONVENTIONS) -> str:
    """Format the tables under their titles, and the note."""
    parts = [f"**{table.title}**\n\n{markdown(table.head, table.rows)}" for table in shown]
    if note:
        parts.append(note)
    return "\n\n".join(parts) + "\n"


def show(shown: Sequence[Table], note: str = CONVENTIONS) -> None:
    """Print the tables and the note: formatted in a terminal, as Markdown into a file or a pipe."""
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
        console.print(note, style="dim", highlight=False)
