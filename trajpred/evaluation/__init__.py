"""Evaluation of predictors on labelled scenarios: models, baselines and predictions files alike.

Results are read and compared without torch, which ``evaluate`` imports on first use.
"""

from typing import TYPE_CHECKING

from trajpred import lazy_names
from trajpred.evaluation.comparison import Interval, bootstrap, compare
from trajpred.evaluation.report.of_recipes import by_recipe, format_table
from trajpred.evaluation.results import Evaluation, read_results, write_results

if TYPE_CHECKING:
    from trajpred.evaluation.scoring import evaluate

__getattr__, _ = lazy_names(__name__, {"scoring": "evaluate"})
