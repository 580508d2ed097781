"""Predictors turn scenarios into forecasts: models, bundles, baselines, files, ensembles."""

from typing import TYPE_CHECKING

from trajpred import lazy_names

if TYPE_CHECKING:
    from trajpred.predictors.checkpoint import BundlePredictor, CheckpointPredictor
    from trajpred.predictors.derived import EnsemblePredictor, PerturbedPredictor
    from trajpred.predictors.load import PREDICTORS, BaselinePredictor, load_ensemble, load_predictor
    from trajpred.predictors.predictions_file import FilePredictor
    from trajpred.predictors.predictor import Predictor

__getattr__, __all__ = lazy_names(
    __name__,
    {
        "checkpoint": "BundlePredictor CheckpointPredictor",
        "load": "PREDICTORS BaselinePredictor load_ensemble load_predictor",
        "derived": "EnsemblePredictor PerturbedPredictor",
        "predictions_file": "FilePredictor",
        "predictor": "Predictor",
    },
)
