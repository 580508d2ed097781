"""Lane following: six futures per track, along the lanes and at several speeds; nothing is learned."""

from __future__ import annotations

import numpy as np

from trajpred.forecast import Forecast
from trajpred.geometry import Pose
from trajpred.graph.lane_futures import lane_futures
from trajpred.graph.lane_paths import Routes
from trajpred.predictors.motion import as_forecast, last_observed, time_ahead
from trajpred.scenario import Scenario


def lane_following(scenario: Scenario, num_future: int | None = None) -> Forecast:
    """Forecast the :func:`~trajpred.graph.lane_futures.lane_futures` of every track, the most probable first.

    Args and errors: see :func:`trajpred.predictors.motion.constant_velocity`.
    """
    rows, last = last_observed(scenario)
    tracks = scenario.tracks
    path, probability = lane_futures(
        Routes.of(scenario.map),
        Pose(tracks.position, tracks.heading)[rows, last],
        tracks.velocity[rows, last],
        tracks.object_type[rows],
        time_ahead(scenario, last, num_future),
    )
    # Equal accelerations and decelerations are equally probable: without rounding, their order is arbitrary.
    order = np.argsort(-probability.round(9), axis=1, kind="stable")
    path = np.take_along_axis(path, order[..., None, None], axis=1)
    return as_forecast(scenario, rows, last, path, -np.sort(-probability, axis=1))
