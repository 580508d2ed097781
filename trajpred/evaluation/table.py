"""Evaluations as a table to read."""

from __future__ import annotations

from collections.abc import Sequence

from trajpred.evaluation.evaluate import Evaluation

COLUMNS = ("minADE1", "minFDE1", "MR1", "minADE6", "minFDE6", "MR6", "brier-minFDE6")


def format_table(evaluations: Sequence[Evaluation], group: str = "focal") -> str:
    """One line per evaluation, as Markdown; metres, miss rates as shares."""
    head = ["predictor", "agents", *COLUMNS]
    rows = []
    for evaluation in evaluations:
        values = evaluation.metrics[group]
        shown = [f"{values[name]:.2f}" if name in values else "-" for name in COLUMNS]
        rows.append([evaluation.predictor, str(values["count"]), *shown])
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [" | ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in (head, *rows)]
    rule = "|".join("-" * (w + 1) + ":" for w in widths)
    return "\n".join((f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])))
