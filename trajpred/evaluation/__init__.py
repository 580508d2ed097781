"""Evaluation of predictors on labelled scenarios: models, baselines and predictions files alike.

Results are read and compared without torch, which only ``evaluate`` imports.
"""

from typing import TYPE_CHECKING

from trajpred import lazy_names
from trajpred.evaluation.recipes import by_recipe, format_table
from trajpred.evaluation.results import Evaluation, read_results, write_results
from trajpred.evaluation.table import Interval, bootstrap, compare

if TYPE_CHECKING:
    from trajpred.evaluation.score import evaluate

__getattr__, _ = lazy_names(__name__, {"score": "evaluate"})
