"""An evaluation as tables: in the terminal, and as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from trajpred.errors import require
from trajpred.evaluation.intervals import changes, compare
from trajpred.evaluation.judged import FACTS
from trajpred.evaluation.results import Evaluation
from trajpred.evaluation.table import markdown
from trajpred.metrics import columns, metrics_of

#: Said below every report, because tables of this field do not agree on them.
CONVENTIONS = (
    "Metres; MR: share of agents whose best endpoint is more than 2 m off; headings in radians. minADE is "
    "the least over the modes, as av2 has it; ADE-of-best-FDE is what QCNet, HiVT and others call minADE. "
    "Brier metrics add (1 - p)² of the best mode, probabilities as given. K modes: the most probable ones."
)


class Table(NamedTuple):
    """A title, the names of the columns, and the cells."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(result: Evaluation, by: Sequence[str] = (), groups: Sequence[str] = ("focal",)) -> list[Table]:
    """The tables of ``result``.

    Args:
        by: facts to break results down by (:attr:`Evaluation.breakdowns`), or ``all``.
        groups: ``focal``, ``scored``, ``all``; of several fewer metrics are told, side by side.

    Raises: DataError naming an unknown fact.
    """
    chosen = list(result.breakdowns) if "all" in by else [fact_name(name) for name in by]
    return [
        *_groups(result),
        *_worlds(result),
        *_parts("as if the future ended after", result.horizons, groups),
        *(table for fact in chosen for table in _parts(f"by {fact}", result.breakdowns[fact], groups)),
    ]


def fact_name(name: str) -> str:
    """The fact that starts with ``name``: ``speed (m/s)`` for ``speed``. Raises: DataError if none does."""
    found = [fact for fact in FACTS if fact.startswith(name)]
    known = ", ".join([*(fact.split(" (")[0] for fact in FACTS), "all"])
    require(bool(found), "by", f"{name!r} is none of {known}")
    return found[0]


def _groups(result: Evaluation) -> Iterable[Table]:
    """One table per K, the groups side by side: so many metrics in a row would not fit a terminal."""
    known = {name for means in result.metrics.values() for name in means}
    ks = sorted({int(name.removeprefix("minADE")) for name in known if name.startswith("minADE")})
    (focal, *others) = (f"{group} ({means['count']:,})" for group, means in result.metrics.items())
    head = ["", focal, "95 % interval", *others]
    for k in ks:
        names = [f"{metric.name}{k}" for metric in metrics_of("displacement")]
        rows = [_line(result, name) for name in names]
        shown = [row for row, name in zip(rows, names, strict=True) if name in known]
        if k == ks[-1]:
            shown += _beyond(result)
        yield Table(f"{result.predictor}: {result.scenarios:,} scenarios, K = {k}", head, shown)


def _beyond(result: Evaluation) -> list[list[str]]:
    """Lines on what displacement does not tell, the groups side by side; none if it was not looked at."""
    told = [result.calibration.get(group, {}) for group in result.metrics]
    names = [m.name for m in metrics_of("plausibility")]
    names = [n for n in names if any(n in means for means in result.metrics.values())]
    rows = [_line(result, name) for name in names]
    rows += [_cells(name, told) for name in ("ECE", "top ECE") if any(told)]
    held = [one.get("coverage", {}) for one in told]
    levels = dict.fromkeys(level for one in held for level in one)
    return rows + [_cells(level, held, f"held by {level} interval") for level in levels]


def _line(result: Evaluation, name: str) -> list[str]:
    """A metric of the groups side by side, behind the focal agents' its interval."""
    return _cells(name, list(result.metrics.values()), interval=result.intervals.get(name))


def _cells(
    name: str,
    groups: Sequence[Mapping[str, float]],
    title: str = "",
    interval: Sequence[float] | None = None,
) -> list[str]:
    focal, *others = (_cell(means, name) for means in groups)
    between = "[{:.2f}, {:.2f}]".format(*interval) if interval else ""
    return [title or name, focal, between, *others]


def _worlds(result: Evaluation) -> Iterable[Table]:
    if result.worlds.get("count"):
        names = [metric.name for metric in metrics_of("world")]
        head = ["scenarios", "incomplete", "actors", *names]
        cells = [str(result.worlds[name]) for name in ("count", "incomplete", "actors")]
        values = [_cell(result.worlds, name) for name in names]
        yield Table("worlds of scored agents", head, [[*cells, *values]])


def _parts(
    title: str, parts: Mapping[str, Mapping[str, Mapping[str, float]]], groups: Sequence[str]
) -> Iterable[Table]:
    """One line per part that has agents of any of ``groups``."""
    names = columns("breakdown" if len(groups) == 1 else "side by side")
    head, rows = [""], []
    for group in groups:
        head += ["agents", *names] if len(groups) == 1 else [f"{group} {name}" for name in ("agents", *names)]
    for part, means in parts.items():
        if any(means[group]["count"] for group in groups):
            cells = ((str(means[g]["count"]), *(_cell(means[g], name) for name in names)) for g in groups)
            rows.append([part, *(cell for some in cells for cell in some)])
    if rows:
        yield Table(f"{' | '.join(groups)} agents {title}", head, rows)


def _change(means: Mapping[str, float], first: Mapping[str, float], name: str) -> str:
    return f" ({means[name] / first[name] - 1:+.0%})" if means.get(name) is not None and first[name] else ""


def degradation(results: Sequence[Evaluation], group: str) -> list[Table]:
    """How much worse the others are than the first, in the ``group``; nothing of one alone."""
    if len(results) < 2:
        return []
    first = results[0].metrics[group]
    known = [name for name in columns("breakdown") if name in first] or [
        name for name in first if name.startswith("min")
    ]
    rows = []
    for one in results:
        means = one.metrics[group]
        more = [_cell(means, name) + _change(means, first, name) for name in known]
        rows.append([one.predictor, str(means["count"]), *more])
    return [Table(f"{group} agents, what is seen made worse", ["", "agents", *known], rows)]


def changed(
    before: Sequence[Evaluation], after: Sequence[Evaluation], count: int, names: tuple[str, str]
) -> list[Table]:
    """How the focal agents fare ``after`` what was ``before``, seeds of one recipe each, called ``names``.

    The mean change, paired by scenario, with its 95 % interval, and the ``count`` scenarios that changed
    most to either side.
    """
    old, new = names
    differences = {name: compare(after, before, name) for name in columns("breakdown")}
    rows = [
        [name, *(f"{x:+.3f}" for x in (found.mean, found.low, found.high))]
        for name, found in differences.items()
    ]
    agents = f"{len(after[0].per_scenario['scenario_id']):,} focal agents"
    shown = [Table(f"{new} against {old}, {agents}", ["", "change", "from", "to (95 %)"], rows)]
    for how, found in zip(("better", "worse"), changes(after, before, count), strict=True):
        lines = [[scenario, f"{change:+.2f}"] for scenario, change in found]
        shown += [Table(f"{how} minFDE6 than {old}", ["scenario", "change"], lines)] if lines else []
    return shown


def _cell(means: Mapping[str, float], name: str) -> str:
    return f"{means[name]:.2f}" if name in means else "-"


def to_markdown(shown: Sequence[Table]) -> str:
    """The tables under their titles, and the conventions."""
    return "\n\n".join([*(f"**{t.title}**\n\n{markdown(t.head, t.rows)}" for t in shown), CONVENTIONS]) + "\n"


def show(shown: Sequence[Table]) -> None:
    """Print: for people in a terminal, as Markdown into a file or a pipe."""
    if not sys.stdout.isatty():
        print(to_markdown(shown))
        return
    console = Console()
    for one in shown:
        table = RichTable(box=box.SIMPLE_HEAD)
        for i, name in enumerate(one.head):
            table.add_column(name, justify="right" if i else "left", no_wrap=not i)
        for row in one.rows:
            table.add_row(*row)
        console.print(one.title, style="bold", markup=False)  # the table's own title would be as narrow as it
        console.print(table)
    console.print(CONVENTIONS, style="dim", highlight=False)
