"""Metrics of forecasts: displacement, worlds, plausibility and calibration; see ``standard.py``.

The registry describes metrics without torch; what computes them is imported on first use.
"""

from typing import TYPE_CHECKING

from trajpred import lazy_names
from trajpred.data.tracks import agent_groups
from trajpred.metrics import standard
from trajpred.metrics.displacement import MISS_THRESHOLD_M, average_error, final_error
from trajpred.metrics.registry import (
    METRICS,
    Metric,
    columns,
    metric_names,
    metric_of,
    metrics_of,
    names_in,
    paired_columns,
    register,
)

if TYPE_CHECKING:
    from trajpred.metrics.compute import agent_metrics, horizon_metrics, world_metrics
    from trajpred.metrics.forecast_metrics import ForecastMetrics

__getattr__, _ = lazy_names(
    __name__,
    {
        "compute": "agent_metrics horizon_metrics world_metrics",
        "forecast_metrics": "ForecastMetrics",
    },
)
