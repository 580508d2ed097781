"""The tables of the documents: every number of a row that names its result files is what these files hold.

A table is checked if a comment before it names the files of each row, seeds joined by ``+``, ``-`` for none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from tests.conftest import ROOT
from trajpred.evaluation import Evaluation, read_results
from trajpred.evaluation.table import compare, pairs

RESULTS = ROOT / "datasets" / "argoverse1" / "results"
TABLE = re.compile(r"<!-- results: ([^>]*) -->\n\n((?:\|.*\n)+)")


class Row(NamedTuple):
    """A row of a table: its cells by column, and the results of it, of the first row and of the one above."""

    cells: dict[str, str]
    shown: list[Evaluation]
    first: list[Evaluation]
    above: list[Evaluation]


def rows() -> Iterator[tuple[str, Row]]:
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))):
        for files, table in TABLE.findall(page.read_text("utf-8")):
            lines = [split_cells(line) for line in table.splitlines()]
            head = lines[0]
            body = lines[2:]
            each = [read_seeds(word) for word in files.split()]
            assert len(each) == len(body), f"{page.name}: {len(each)} files for {len(body)} rows"
            above = each[0]
            for cells, shown in zip(body, each, strict=True):
                if shown:
                    name = f"{page.name}: {cells[0]}"
                    yield name, Row(dict(zip(head, cells, strict=True)), shown, each[0], above)
                    above = shown


def read_seeds(word: str) -> list[Evaluation]:
    """The results of one row: of a file, of several seeds (``a+b``), or none (``-``)."""
    names = () if word == "-" else word.split("+")
    return [one for name in names for one in read_results(RESULTS / f"{name}.json")]


def split_cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.replace("**", "").strip("|\n").split("|")]


def over_seeds(values: Sequence[float], digits: int = 2) -> str:
    mean = f"{sum(values) / len(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f}\N{EN DASH}{max(values):.{digits}f})"


def difference(row: Row, other: list[Evaluation], metric: str, group: str) -> str:
    found = compare(row.shown, other, metric, group)
    return "" if row.shown is other else f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def interval(row: Row, metric: str, group: str) -> str:
    paired = pairs(row.shown, group)
    [found] = paired.intervals({metric: paired.values[metric].mean(axis=0)}).values()
    return f"{found.low:.2f} to {found.high:.2f}"


def costs(row: Row) -> dict[str, str]:
    """What result files of tools/benchmark_row.py state, by column."""
    facts = [one.training.get("benchmark", {}) for one in row.shown]
    texts = {}
    for column, (name, unit) in {
        "core minutes": ("scaled_s", 60),
        "million parameters": ("parameters", 1e6),
        "ms a scene": ("ms_per_scene", 1),
    }.items():
        known = [fact[name] / unit for fact in facts if name in fact]
        if known:
            texts[column] = f"{sum(known) / len(known):.3g}"
    return texts


def expected(column: str, row: Row) -> str | None:
    """What a column must show; None of columns that are not results."""
    name, _, against = column.partition(" against ")
    group = "moving" if name.startswith("moving ") else "focal"
    metric = name.removeprefix("moving ")
    if against:
        return difference(row, row.above if against == "above" else row.first, metric, group)
    if metric.endswith(" interval"):
        return interval(row, metric.removesuffix(" interval"), group)
    if column in costs(row):
        return costs(row)[column]
    known = [one.joint.get("all", {}) | one.metrics[group] for one in row.shown]
    if not all(metric in one for one in known):
        return None
    return over_seeds([one[metric] for one in known], 3 if metric == "actorCR" else 2)


@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in rows()])
def test_numbers_are_those_of_the_result_files(row: Row) -> None:
    known = {column: text for column in row.cells if (text := expected(column, row)) is not None}
    assert len(known) >= 3, "the table has metrics"
    assert {column: row.cells[column] for column in known} == known
