"""Lane following: six futures per track, along the lanes and at several speeds; nothing is learned."""

from __future__ import annotations

from trajpred.forecast import Forecast
from trajpred.geometry import Pose
from trajpred.graph.lane_futures import lane_futures
from trajpred.predictors.motion import as_forecast, last_observed, time_ahead
from trajpred.scenario import Scenario


def lane_following(scenario: Scenario, num_future: int | None = None) -> Forecast:
    """Forecast six futures of every track by :func:`~trajpred.graph.lane_futures.lane_futures`.

    Args and errors: see :func:`trajpred.predictors.motion.constant_velocity`.
    """
    rows, last = last_observed(scenario)
    tracks = scenario.tracks
    path, probability = lane_futures(
        scenario.map,
        Pose(tracks.position, tracks.heading)[rows, last],
        tracks.velocity[rows, last],
        tracks.object_type[rows],
        time_ahead(scenario, last, num_future),
    )
    return as_forecast(scenario, rows, last, path, probability)
