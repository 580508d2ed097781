"""Scoring predictors on labelled scenarios: one code path for models and baselines."""

from trajpred.evaluation.evaluate import Evaluation, evaluate
from trajpred.evaluation.predictors import Predictor, load_predictor
from trajpred.evaluation.table import format_table

__all__ = ["Evaluation", "Predictor", "evaluate", "format_table", "load_predictor"]
