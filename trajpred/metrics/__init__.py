"""Metrics of forecasts: displacement, worlds, plausibility and calibration; see ``registry.py``.

The registry describes metrics without torch; what computes them is imported on first use.
"""

from typing import TYPE_CHECKING

from trajpred import lazy_names
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

__getattr__, _ = lazy_names(
    __name__,
    {
        "forecast_metrics": "ForecastMetrics",
        "per_agent": "agent_metrics horizon_metrics",
        "world": "COLLISION_THRESHOLD_M world_metrics",
    },
)
