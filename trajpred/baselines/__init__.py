"""Forecasts without learning: what a model has to beat, and what to try where there is none.

They look at observed steps only, at every track that has one.
"""

from __future__ import annotations

from collections.abc import Callable

from trajpred.baselines.follow_lanes import lane_following
from trajpred.baselines.motion import MAX_TURN_RATE, constant_turn_rate, constant_velocity
from trajpred.forecast import Forecast

__all__ = ["BASELINES", "MAX_TURN_RATE", "constant_turn_rate", "constant_velocity", "lane_following"]

#: The baselines by name.
BASELINES: dict[str, Callable[..., Forecast]] = {
    "constant_velocity": constant_velocity,
    "constant_turn_rate": constant_turn_rate,
    "lane_following": lane_following,
}
