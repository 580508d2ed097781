"""Metrics of forecasts: displacement, worlds, plausibility and calibration; see ``registry.py``.

The registry describes metrics without torch; what computes them is imported on first use.
"""

from typing import TYPE_CHECKING

from trajpred.lazy import lazy_names
from trajpred.metrics.displacement import MISS_THRESHOLD_M, average_error, final_error
from trajpred.metrics.groups import MOVING_M, agent_groups
from trajpred.metrics.registry import (
    METRICS,
    Metric,
    columns,
    metric_of,
    metrics_of,
    names_in,
    paired_columns,
    register,
)

if TYPE_CHECKING:
    from trajpred.metrics.forecast_metrics import ForecastMetrics
    from trajpred.metrics.per_agent import agent_metrics, horizon_metrics
    from trajpred.metrics.world import COLLISION_THRESHOLD_M, world_metrics

__all__ = [
    "COLLISION_THRESHOLD_M",
    "METRICS",
    "MISS_THRESHOLD_M",
    "MOVING_M",
    "ForecastMetrics",
    "Metric",
    "agent_groups",
    "agent_metrics",
    "average_error",
    "columns",
    "final_error",
    "horizon_metrics",
    "metric_of",
    "metrics_of",
    "names_in",
    "paired_columns",
    "register",
    "world_metrics",
]
__getattr__ = lazy_names(
    __name__,
    {"ForecastMetrics": "forecast_metrics"}
    | dict.fromkeys(("agent_metrics", "horizon_metrics"), "per_agent")
    | dict.fromkeys(("COLLISION_THRESHOLD_M", "world_metrics"), "world"),
)
