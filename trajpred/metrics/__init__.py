"""Metrics of forecasts: displacement, joint futures, plausibility and calibration; see ``registry.py``.

The registry needs no torch; metrics based on torchmetrics are imported on first use.
"""

from typing import TYPE_CHECKING

from trajpred import lazy_names
from trajpred.data.tracks import agent_groups
from trajpred.metrics.displacement import MISS_THRESHOLD_M, average_error, final_error
from trajpred.metrics.registry import (
    METRICS,
    Column,
    Metric,
    agent_metrics,
    columns_of,
    headline,
    joint_metrics,
    metrics_of,
    register,
)

if TYPE_CHECKING:
    from trajpred.metrics.forecast_metrics import ForecastMetrics

__getattr__, _ = lazy_names(__name__, {"forecast_metrics": "ForecastMetrics"})
