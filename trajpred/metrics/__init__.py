"""Argoverse 2's metrics: per agent, per world, and the torchmetrics class over them."""

from trajpred.metrics.agents import AGENT_METRICS, agent_metrics, heading_metrics, horizon_metrics
from trajpred.metrics.collection import ForecastMetrics
from trajpred.metrics.functional import MISS_THRESHOLD_M, average_error, final_error
from trajpred.metrics.world import COLLISION_THRESHOLD_M, WORLD_METRICS, world_metrics

__all__ = [
    "AGENT_METRICS",
    "COLLISION_THRESHOLD_M",
    "MISS_THRESHOLD_M",
    "WORLD_METRICS",
    "ForecastMetrics",
    "agent_metrics",
    "average_error",
    "final_error",
    "heading_metrics",
    "horizon_metrics",
    "world_metrics",
]
