"""Evaluation of predictors on labelled scenarios: models, baselines and predictions files alike."""

from trajpred.evaluation.comparison import Interval, bootstrap, by_recipe, compare, format_table
from trajpred.evaluation.evaluate import evaluate
from trajpred.evaluation.results import Evaluation, read_results, write_results

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
