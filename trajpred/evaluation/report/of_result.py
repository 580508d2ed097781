"""Tables of one evaluation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from trajpred.errors import DataError
from trajpred.evaluation.agent_truth import FACTS
from trajpred.evaluation.report.tables import Means, Table, cell, cells, listing, names_of
from trajpred.evaluation.results import Evaluation
from trajpred.metrics import columns, metric_names
from trajpred.metrics.registry import HELD


def tables(result: Evaluation, by: Sequence[str] = (), groups: Sequence[str] = ("focal",)) -> list[Table]:
    """Build the tables of a result.

    Args:
        by: facts to break results down by (:attr:`Evaluation.breakdowns`), or ``all``.
        groups: ``focal``, ``scored``, ``moving``, ``all``; several are side by side, with fewer metrics.

    Raises: DataError naming an unknown fact.
    """
    facts = fact_names(by, result.breakdowns)
    built = [*_main(result), *worlds(result), *_av2(result)]
    built += _parts("as if the future ended after", result.horizons, groups)
    built += _seconds_ahead(result, groups)
    built += _updates(result, groups)
    for fact in facts:
        built += _parts(f"by {fact}", result.breakdowns[fact], groups)
    return built


def fact_names(by: Iterable[str], available: Iterable[str] = FACTS) -> list[str]:
    """Return the facts whose names start with ``by``, or all ``available`` ones for ``all``.

    Raises: DataError naming an unknown one.
    """
    if "all" in by:
        return list(available)
    return [_fact_name(name) for name in by]


def _fact_name(name: str) -> str:
    for fact in FACTS:
        if fact.startswith(name):
            return fact
    short_names = [fact.partition(" (")[0] for fact in FACTS]
    raise DataError(f"{name!r} is none of {', '.join(short_names)}, all", field="by")


def _main(result: Evaluation) -> Iterator[Table]:
    """Build a table for each K, with the groups side by side; plausibility is in the last one."""
    recorded = names_of(result.metrics.values())
    counts: list[int] = []
    for name in recorded:
        match = re.fullmatch(r"minADE(\d+)", name)
        if match:
            counts.append(int(match[1]))
    titles = [f"{group} ({means['count']:,})" for group, means in result.metrics.items()]
    for k in sorted(counts):
        names = [f"{name}{k}" for name in metric_names("displacement")]
        is_last = k == max(counts)
        if is_last:
            names += metric_names("plausibility")
            names += metric_names("streaming")
        shown = [name for name in names if name in recorded]
        rows = [[name, *_cells_with_intervals(result, name)] for name in shown]
        if is_last:
            rows += _calibration(result)
        facts = listing(f"{result.covered} scenarios", result.part, result.partly, f"K = {k}", result.others)
        yield Table(f"{result.predictor}: {facts}", ["", *titles], rows)


def _calibration(result: Evaluation) -> list[list[str]]:
    """Build the rows of calibration errors and coverage, if they were computed."""
    groups = [result.calibration.get(group, {}) for group in result.metrics]
    if not any(groups):
        return []
    rows = [[name, *cells(name, groups)] for name in ("ECE", "top ECE")]
    coverage = [group.get("coverage", {}) for group in groups]
    for level in names_of(coverage):
        title = f"held by {level} interval"
        rows.append([title, *cells(level, coverage)])
    return rows


def _cells_with_intervals(result: Evaluation, name: str) -> list[str]:
    """Format the value of a metric of each group, with its interval if there is one."""
    row: list[str] = []
    for group, means in result.metrics.items():
        text = cell(means, name)
        bounds = result.intervals.get(group, {}).get(name)
        if bounds is not None:
            low, high = bounds
            text += f" [{low:.2f}, {high:.2f}]"
        row.append(text)
    return row


def worlds(result: Evaluation) -> Iterator[Table]:
    """Build the table of the world metrics, of a predictor of joint futures."""
    names = metric_names("world")
    rows: list[list[str]] = []
    for group, means in result.worlds.items():
        if means.get("count"):
            counts = [f"{means[name]:,}" for name in ("count", "incomplete", "actors")]
            rows.append([group, *counts, *[cell(means, name) for name in names]])
    if rows:
        yield Table("worlds", ["agents", "scenarios", "incomplete", "actors", *names], rows)


def _av2(result: Evaluation) -> Iterator[Table]:
    if not result.av2:
        return
    rows: list[list[str]] = []
    for name, compared in result.av2.items():
        count = f"{compared['count']:,}"
        ours = f"{compared['trajpred']:.6f}"
        theirs = f"{compared['av2']:.6f}"
        rows.append([name, count, ours, theirs, f"{compared['difference']:.1e}"])
    head = ["", "compared", "trajpred", "av2", "largest difference"]
    yield Table("all agents by trajpred and by av2's own functions", head, rows)


def _parts(
    title: str,
    parts: Mapping[str, Mapping[str, Means]],
    groups: Sequence[str],
    metrics: Sequence[str] = (),
) -> Iterator[Table]:
    """Build a table with a row for each part that has agents of any of ``groups``."""
    is_alone = len(groups) == 1
    if not metrics:
        metrics = columns("breakdown" if is_alone else "side by side")
    head = [""]
    for group in groups:
        prefix = "" if is_alone else f"{group} "
        head += [f"{prefix}{name}" for name in ("agents", *metrics)]
    rows: list[list[str]] = []
    for part, means_of in parts.items():
        counts = [means_of[group]["count"] for group in groups]
        if not any(counts):
            continue
        row = [part]
        for group, count in zip(groups, counts, strict=True):
            row.append(str(count))
            row += [cell(means_of[group], name) for name in metrics]
        rows.append(row)
    if rows:
        yield Table(f"{' | '.join(groups)} agents {title}", head, rows)


def _seconds_ahead(result: Evaluation, groups: Sequence[str]) -> Iterator[Table]:
    """Build a table for each group of headings and plausibility by seconds ahead, if they were computed.

    Standing agents are in the group of all agents, which is always included.
    """
    title = "by seconds ahead: shares of the futures, headings, drift of standing agents, and intervals"
    for group in dict.fromkeys((*groups, "all")):
        computed = names_of([means[group] for means in result.horizons.values()])
        if not {*metric_names("plausibility")}.isdisjoint(computed):
            names = columns("seconds ahead")
            if HELD in computed:
                names += (HELD,)
            yield from _parts(title, result.horizons, [group], names)


def _updates(result: Evaluation, groups: Sequence[str]) -> Iterator[Table]:
    """Build a table for each group with a row for each update."""
    title = "visible at every update: errors and changes from the update before, by length of the history"
    for group in groups:
        names = names_of([update[group] for update in result.updates.values()])
        metrics = [name for name in names if name != "count"]
        yield from _parts(title, result.updates, [group], metrics)
