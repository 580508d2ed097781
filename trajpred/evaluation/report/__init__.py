"""Evaluations as tables, in the terminal or as Markdown."""

from trajpred.evaluation.report.of_changes import beside, change_tables, degradation
from trajpred.evaluation.report.of_result import fact_names, tables, worlds
from trajpred.evaluation.report.tables import CONVENTIONS, Table, markdown, show, to_markdown

__all__ = [
    "CONVENTIONS",
    "Table",
    "beside",
    "change_tables",
    "degradation",
    "fact_names",
    "markdown",
    "show",
    "tables",
    "to_markdown",
    "worlds",
]
