"""How wide a forecast's own Laplace scales make each of its modes."""

from __future__ import annotations

import numpy as np
import shapely

from trajpred.forecast import Forecast
from trajpred.scenario import Scenario
from trajpred.viz.shapes import Floats

#: A Laplace distribution keeps this share within ``BAND`` scales of its centre: ln 5 of them.
BAND_SHARE = 0.8
BAND = -float(np.log(1 - BAND_SHARE))
#: Steps from one disc of a band's outline to the next.
STRIDE = 4


def across(scenario: Scenario, forecast: Forecast) -> Floats:
    """``[B, K, F]`` metres to either side of each mode within which 80 % lie, by its Laplace scales.

    The two scales lie along the axes of the track's own frame; across the mode their mixture is a Laplace
    distribution only roughly, so that the share is, too. The forecast must tell scales.
    """
    assert forecast.scale is not None
    rows = np.array([scenario.tracks.index(name) for name in forecast.track_id.tolist()], np.int64)
    frame = scenario.tracks.heading[rows, scenario.last_seen[rows]]
    turned = forecast.heading - frame[:, None, None]
    ahead, left = forecast.scale[..., 0], forecast.scale[..., 1]
    width: Floats = BAND * np.hypot(ahead * np.sin(turned), left * np.cos(turned))
    return width


def bands(scenario: Scenario, forecast: Forecast, row: int) -> list[Floats]:
    """Outlines ``[V, 2]`` of the 80 % bands around the modes of the forecast's ``row``: metres, city frame.

    Discs and what lies between them: sideways strokes would fold over where a mode turns sharply.
    """
    F = forecast.trajectory.shape[2]
    steps = np.unique(np.append(np.arange(0, F, STRIDE), F - 1))
    width = across(scenario, forecast)[row][:, steps]
    discs = shapely.buffer(shapely.points(forecast.trajectory[row][:, steps]), width, quad_segs=4)
    pairs = np.stack((discs[:, :-1], discs[:, 1:]), axis=2) if len(steps) > 1 else discs[..., None]
    hulls = shapely.convex_hull(shapely.multipolygons(pairs))
    return [shapely.get_coordinates(one.exterior) for one in shapely.union_all(hulls, axis=1)]
