"""Predictors turn scenarios into forecasts: models, bundles, baselines, files, ensembles."""

from trajpred.predictors.checkpoint import BundlePredictor, CheckpointPredictor
from trajpred.predictors.ensemble import EnsemblePredictor
from trajpred.predictors.perturbed import PerturbedPredictor
from trajpred.predictors.predictions_file import FilePredictor
from trajpred.predictors.predictor import BaselinePredictor, Predictor, load_ensemble, load_predictor

__all__ = [
    "BaselinePredictor",
    "BundlePredictor",
    "CheckpointPredictor",
    "EnsemblePredictor",
    "FilePredictor",
    "PerturbedPredictor",
    "Predictor",
    "load_ensemble",
    "load_predictor",
]
