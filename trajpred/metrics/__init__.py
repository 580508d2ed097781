"""Metrics of forecasts: displacement, worlds, plausibility and calibration; see ``registry.py``."""

from trajpred.metrics.displacement import MISS_THRESHOLD_M, average_error, final_error
from trajpred.metrics.forecast_metrics import ForecastMetrics, agent_metrics, horizon_metrics
from trajpred.metrics.registry import METRICS, Metric, columns, metric_of, metrics_of, names_in, register
from trajpred.metrics.world import COLLISION_THRESHOLD_M, world_metrics

__all__ = [
    "COLLISION_THRESHOLD_M",
    "METRICS",
    "MISS_THRESHOLD_M",
    "ForecastMetrics",
    "Metric",
    "agent_metrics",
    "average_error",
    "columns",
    "final_error",
    "horizon_metrics",
    "metric_of",
    "metrics_of",
    "names_in",
    "register",
    "world_metrics",
]
