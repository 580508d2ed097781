"""Argoverse 2's metrics: per-agent functions and the torchmetrics class over them."""

from trajpred.metrics.collection import ForecastMetrics
from trajpred.metrics.functional import (
    MISS_THRESHOLD_M,
    brier_min_fde,
    is_missed,
    min_ade,
    min_fde,
    top_modes,
)

__all__ = [
    "MISS_THRESHOLD_M",
    "ForecastMetrics",
    "brier_min_fde",
    "is_missed",
    "min_ade",
    "min_fde",
    "top_modes",
]
