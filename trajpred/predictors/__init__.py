"""Predictors turn scenarios into forecasts: models, bundles, baselines, files, ensembles.

Each name is imported when it is first used. See README.md here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trajpred.predictors.checkpoint import BundlePredictor, CheckpointPredictor
    from trajpred.predictors.ensemble import EnsemblePredictor
    from trajpred.predictors.perturbed import PerturbedPredictor
    from trajpred.predictors.predictions_file import FilePredictor
    from trajpred.predictors.predictor import BaselinePredictor, Predictor, load_ensemble, load_predictor

#: The module of each public name.
_HOME = {
    "BaselinePredictor": "predictor",
    "BundlePredictor": "checkpoint",
    "CheckpointPredictor": "checkpoint",
    "EnsemblePredictor": "ensemble",
    "FilePredictor": "predictions_file",
    "PerturbedPredictor": "perturbed",
    "Predictor": "predictor",
    "load_ensemble": "predictor",
    "load_predictor": "predictor",
}
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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
