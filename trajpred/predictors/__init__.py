"""Predictors: whatever turns scenarios into forecasts, behind one interface.

Names are imported when first used, so that baselines and predictions files need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trajpred.predictors.loading import Predictor, load_predictor

__all__ = ["Predictor", "load_predictor"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("trajpred.predictors.loading"), name)
