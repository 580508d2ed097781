"""Evaluations as tables, in the terminal or as Markdown."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from trajpred.errors import require
from trajpred.evaluation.agents import FACTS
from trajpred.evaluation.comparison import changes, compare, markdown, shared_columns
from trajpred.evaluation.results import Evaluation
from trajpred.metrics import columns, metrics_of
from trajpred.splits import PAIRED_GROUPS

#: Printed below every report, because published tables follow different conventions.
CONVENTIONS = (
    "Metres; MR: share of agents whose best endpoint is more than 2 m off; headings in radians. minADE is "
    "the minimum over the modes, as in av2; ADE-of-best-FDE is what QCNet, HiVT and others call minADE. "
    "Brier metrics add (1 - p)² of the best mode, probabilities as given. K modes: the most probable ones."
)


class Table(NamedTuple):
    """A title, the names of the columns, and the cells."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(result: Evaluation, by: Sequence[str] = (), groups: Sequence[str] = ("focal",)) -> list[Table]:
    """Build the tables of a result.

    Args:
        by: facts to break results down by (:attr:`Evaluation.breakdowns`), or ``all``.
        groups: ``focal``, ``scored``, ``moving``, ``all``; several are side by side, with fewer metrics.

    Raises: DataError naming an unknown fact.
    """
    chosen = list(result.breakdowns) if "all" in by else [fact_name(name) for name in by]
    return [
        *_main(result),
        *worlds(result),
        *_av2(result),
        *_parts("as if the future ended after", result.horizons, groups),
        *_seconds_ahead(result, groups),
        *_updates(result, groups),
        *(table for fact in chosen for table in _parts(f"by {fact}", result.breakdowns[fact], groups)),
    ]


def fact_name(name: str) -> str:
    """Return the fact that starts with ``name``: ``speed (m/s)`` for ``speed``. Raises: DataError."""
    found = [fact for fact in FACTS if fact.startswith(name)]
    known = ", ".join([*(fact.split(" (")[0] for fact in FACTS), "all"])
    require(bool(found), "by", f"{name!r} is none of {known}")
    return found[0]


def _main(result: Evaluation) -> Iterable[Table]:
    """Build a table for each K, with the groups side by side; plausibility is in the last one."""
    names = [metric.name for metric in metrics_of("displacement")]
    known = dict.fromkeys(name for means in result.metrics.values() for name in means)
    ks = sorted(int(found[1]) for name in known if (found := re.fullmatch(r"minADE(\d+)", name)))
    titles = [f"{group} ({means['count']:,})" for group, means in result.metrics.items()]
    groups = list(result.metrics.values())
    for k in ks:
        last = k == ks[-1]
        more = [*metrics_of("plausibility"), *metrics_of("streaming")] if last else []
        every = [f"{name}{k}" for name in names] + [one.name for one in more]
        rows = [_cells(name, groups, intervals=result.intervals.values()) for name in every if name in known]
        rows += _calibration(result) if last else []
        facts = f"{result.covered} scenarios", result.part, result.partly, f"K = {k}"
        yield Table(f"{result.predictor}: {', '.join(filter(None, facts))}", ["", *titles], rows)


def _calibration(result: Evaluation) -> list[list[str]]:
    """Build the rows of calibration errors and coverage, if they were computed."""
    found = [result.calibration.get(group, {}) for group in result.metrics]
    rows = [_cells(name, found) for name in ("ECE", "top ECE") if any(found)]
    coverage = [one.get("coverage", {}) for one in found]
    levels = dict.fromkeys(level for one in coverage for level in one)
    return rows + [_cells(level, coverage, f"held by {level} interval") for level in levels]


def _cells(
    name: str,
    groups: Sequence[Mapping[str, float]],
    title: str = "",
    intervals: Iterable[Mapping[str, Sequence[float]]] = (),
) -> list[str]:
    """Build the row of a metric: its title, and the value of each group with its interval, if known."""
    bounds = [" [{:.2f}, {:.2f}]".format(*each[name]) if name in each else "" for each in intervals]
    cells = zip(groups, bounds or [""] * len(groups), strict=True)
    return [title or name, *(_cell(means, name) + interval for means, interval in cells)]


def _cell(means: Mapping[str, float], name: str) -> str:
    return f"{means[name]:.2f}" if name in means else "-"


def worlds(result: Evaluation) -> Iterable[Table]:
    """Build the table of the world metrics, of a predictor of joint futures."""
    names, counts = [metric.name for metric in metrics_of("world")], ("count", "incomplete", "actors")
    rows = [
        [group, *(f"{means[name]:,}" for name in counts), *(_cell(means, name) for name in names)]
        for group, means in result.worlds.items()
        if means.get("count")
    ]
    if rows:
        yield Table("worlds", ["agents", "scenarios", "incomplete", "actors", *names], rows)


def _av2(result: Evaluation) -> Iterable[Table]:
    if result.av2:
        head = ["", "compared", "trajpred", "av2", "largest difference"]
        rows = [
            [name, f"{x['count']:,}", f"{x['trajpred']:.6f}", f"{x['av2']:.6f}", f"{x['difference']:.1e}"]
            for name, x in result.av2.items()
        ]
        yield Table("all agents by trajpred and by av2's own functions", head, rows)


def _parts(
    title: str,
    parts: Mapping[str, Mapping[str, Mapping[str, float]]],
    groups: Sequence[str],
    metrics: Sequence[str] = (),
) -> Iterable[Table]:
    """Build a table with a row for each part that has agents of any of ``groups``."""
    names = ("agents", *(metrics or columns("breakdown" if len(groups) == 1 else "side by side")))
    head, rows = [""], []
    for group in groups:
        head += names if len(groups) == 1 else [f"{group} {name}" for name in names]
    for part, means in parts.items():
        if any(means[group]["count"] for group in groups):
            cells = ((str(means[g]["count"]), *(_cell(means[g], name) for name in names[1:])) for g in groups)
            rows.append([part, *(cell for group in cells for cell in group)])
    if rows:
        yield Table(f"{' | '.join(groups)} agents {title}", head, rows)


def _seconds_ahead(result: Evaluation, groups: Sequence[str]) -> Iterable[Table]:
    """Build a table for each group of headings and plausibility by seconds ahead, if they were computed.

    Standing agents are in the group of all agents, which is always included.
    """
    names = columns("seconds ahead")
    title = "by seconds ahead: shares of the futures, headings, and drift of standing agents"
    for group in dict.fromkeys((*groups, "all")):
        computed = {name for means in result.horizons.values() for name in means[group]}
        if any(metric.name in computed for metric in metrics_of("plausibility")):
            yield from _parts(title, result.horizons, [group], names)


def _updates(result: Evaluation, groups: Sequence[str]) -> Iterable[Table]:
    """Build a table for each group with a row for each update."""
    title = "visible at every update: errors and changes from the update before, by length of the history"
    for group in groups:
        names = dict.fromkeys(name for update in result.updates.values() for name in update[group])
        yield from _parts(title, result.updates, [group], [name for name in names if name != "count"])


def degradation(results: Sequence[Evaluation], groups: Sequence[str]) -> Iterable[Table]:
    """Build tables of how much worse the others are than the first: of each group, and of scored worlds."""
    parts: dict[str, tuple[list[dict[str, float]], Sequence[str]]] = {
        f"{group} agents": ([one.metrics[group] for one in results], columns("breakdown")) for group in groups
    }
    joint = [one.worlds.get("scored", {}) for one in results]
    part = results[0].part
    parts["worlds of scored agents"] = joint, [metric.name for metric in metrics_of("world")]
    for title, (means, known) in parts.items() if len(results) > 1 else ():
        first, rows = means[0], []
        names = [name for name in known if name in first]
        for one, own in zip(results, means, strict=True):
            change = (f" ({own[n] / first[n] - 1:+.0%})" if n in own and first[n] else "" for n in names)
            cells = (_cell(own, name) + text for name, text in zip(names, change, strict=True))
            rows.append([one.predictor, str(own.get("count", 0)), *cells])
        if names:
            full = f"{title}, perturbed scenarios{part and ', '}{part}"
            yield Table(full, ["", "count", *names], rows)
    yield from _input_changes(results, groups)


def _input_changes(results: Sequence[Evaluation], groups: Sequence[str]) -> Iterable[Table]:
    """Build tables of the paired change of the minFDE6 from the first to each of the others.

    An input whose removal makes the error smaller by more than the interval does harm. Variants that have
    other agents than the first, as short histories do, have no pairs.
    """
    first = results[0]
    paired = [group for group in groups if group in PAIRED_GROUPS]
    for group in paired:
        rows = []
        for variant in results[1:]:
            if "minFDE6" in shared_columns([first, variant], group):
                change = compare([variant], [first], "minFDE6", group)
                rows.append([variant.predictor, *(f"{x:+.3f}" for x in change)])
        if rows:
            title = f"{group} agents, change of the minFDE6 without an input"
            yield Table(title, ["", "change", "from", "to (95 %)"], rows)


def changed(
    before: Sequence[Evaluation], after: Sequence[Evaluation], count: int, names: tuple[str, str]
) -> list[Table]:
    """Build tables of the change of the metrics between two recipes, given by their seeds.

    The mean change of focal and of moving agents, paired by scenario, with its 95 % interval, and the
    ``count`` scenarios in which the focal agent's minFDE6 improved and degraded most.
    """
    old, new = names
    rows: list[Sequence[str]] = []
    agents: list[str] = []
    for group in PAIRED_GROUPS:
        metrics = shared_columns([*before, *after], group)
        rows += [[f"{group} {n}", *(f"{x:+.3f}" for x in compare(after, before, n, group))] for n in metrics]
        agents += [f"{sum(after[0].per_scenario[f'{group}/count']):,} {group}"] if metrics else []
    part = after[0].part
    title = f"{new} against {old}, {' and '.join(agents)} agents{part and ', '}{part}"
    found = [Table(title, ["", "change", "from", "to (95 %)"], rows)]
    for how, scenarios in zip(("better", "worse"), changes(after, before, count), strict=True):
        lines = [[scenario, f"{change:+.2f}"] for scenario, change in scenarios]
        found += [Table(f"{how} minFDE6 than {old}", ["scenario", "change"], lines)] if lines else []
    return found


def beside(result: Evaluation, baseline: Evaluation) -> Table:
    """Build a table of the main metrics of focal, scored and moving agents, beside those of a baseline."""
    first = result.metrics["focal"]
    groups = [g for g, means in result.metrics.items() if g != "all" and (g == "focal" or means != first)]
    means = [one.metrics[group] for group in groups for one in (result, baseline)]
    rows = [[name, *(_cell(mean, name) for mean in means)] for name in columns("results")]
    other = baseline.predictor.replace("_", " ")
    head = [x for g in groups for x in (f"{g} ({result.metrics[g]['count']:,})", other)]
    note = "metres; MR: share of agents missed by more than 2 m"
    return Table(f"Validation, {result.scenarios:,} scenarios ({note})", ["", *head], rows)


def to_markdown(shown: Sequence[Table], note: str = CONVENTIONS) -> str:
    """Format the tables under their titles, and the note."""
    parts = [f"**{table.title}**\n\n{markdown(table.head, table.rows)}" for table in shown]
    return "\n\n".join([*parts, *([note] if note else [])]) + "\n"


def show(shown: Sequence[Table], note: str = CONVENTIONS) -> None:
    """Print the tables and the note: formatted in a terminal, as Markdown into a file or a pipe."""
    if not sys.stdout.isatty():
        print(to_markdown(shown, note))
        return
    console = Console()
    for one in shown:
        table = RichTable(box=box.SIMPLE_HEAD)
        for i, name in enumerate(one.head):
            table.add_column(name, justify="right" if i else "left", no_wrap=not i)
        for row in one.rows:
            table.add_row(*row)
        console.print(one.title, style="bold", markup=False)  # rich wraps a table's own title to its width
        console.print(table)
    if note:
        console.print(note, style="dim", highlight=False)
