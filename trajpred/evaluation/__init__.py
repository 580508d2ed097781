"""Evaluation of predictors on labelled scenarios: one code path for models and baselines."""

from trajpred.evaluation.evaluate import evaluate
from trajpred.evaluation.intervals import Interval, bootstrap, compare
from trajpred.evaluation.results import Evaluation, read_results, write_results
from trajpred.evaluation.table import by_recipe, format_table

__all__ = [
    "Evaluation",
    "Interval",
    "bootstrap",
    "by_recipe",
    "compare",
    "evaluate",
    "format_table",
    "read_results",
    "write_results",
]
