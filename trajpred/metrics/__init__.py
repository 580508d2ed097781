"""Argoverse 2's metrics: per-agent functions and the torchmetrics class over them."""

from trajpred.metrics.agents import AGENT_METRICS, agent_metrics, heading_metrics, horizon_metrics
from trajpred.metrics.collection import ForecastMetrics
from trajpred.metrics.functional import (
    MISS_THRESHOLD_M,
    ade_of_best_endpoint,
    average_error,
    brier_min_ade,
    brier_min_fde,
    final_error,
    is_missed,
    min_ade,
    min_fde,
    top_modes,
)
from trajpred.metrics.world import COLLISION_THRESHOLD_M, WORLD_METRICS, world_metrics

__all__ = [
    "AGENT_METRICS",
    "COLLISION_THRESHOLD_M",
    "MISS_THRESHOLD_M",
    "WORLD_METRICS",
    "ForecastMetrics",
    "ade_of_best_endpoint",
    "agent_metrics",
    "average_error",
    "brier_min_ade",
    "brier_min_fde",
    "final_error",
    "heading_metrics",
    "horizon_metrics",
    "is_missed",
    "min_ade",
    "min_fde",
    "top_modes",
    "world_metrics",
]
