"""Forecasts without learning: what a model has to beat, and what to try where there is none.

They look at observed steps only, at every track that has one.
"""

from __future__ import annotations

from collections.abc import Callable

from trajpred.forecast import Forecast
from trajpred.predictors.lane_following import lane_following
from trajpred.predictors.motion import MAX_TURN_RATE, constant_turn_rate, constant_velocity

__all__ = ["BASELINES", "MAX_TURN_RATE", "constant_turn_rate", "constant_velocity", "lane_following"]

#: The baselines by name.
BASELINES: dict[str, Callable[..., Forecast]] = {
    "constant_velocity": constant_velocity,
    "constant_turn_rate": constant_turn_rate,
    "lane_following": lane_following,
}
