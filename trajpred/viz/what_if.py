"""What if: the futures of the focal agent without some of the others, over the picture as seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.geometry import norm
from trajpred.scenario import Scenario
from trajpred.viz.agent_layer import outlines
from trajpred.viz.style import Layer
from trajpred.viz.view import View

#: Dash and gap in points.
DASHES = (0.0, (3.2, 1.5))


@dataclass(frozen=True)
class WhatIf:
    """Another forecast of the same scenario, made as if some road users were not there.

    Attributes:
        removed: ids of the tracks that it knows nothing of.
        forecast: what is said without them.
    """

    removed: tuple[str, ...]
    forecast: Forecast

    @property
    def name(self) -> str:
        """For the legend: long ids are cut, many are counted."""
        short = [name if len(name) <= 10 else name[:8] for name in self.removed]
        return "without " + (", ".join(short) if len(short) < 3 else f"{short[0]} and {len(short) - 1} more")

    def told(self, scenario: Scenario, seen: Forecast) -> str:
        """How far the focal agent's mean future moved from ``seen``, in words."""
        moved = mean_moved(seen, self.forecast, scenario.focal_id)
        return f"{self.name}: mean future {moved.mean():.2f} m away, {moved[-1]:.2f} m at the end"


def mean_moved(one: Forecast, other: Forecast, track_id: str) -> NDArray[np.float64]:
    """How far the mean futures of a track, modes weighted by probability, lie apart in two forecasts.

    Modes have no partners in the other forecast, but their means do.

    Returns: ``[F]`` metres at each step. Raises: DataError if a forecast does not tell of the track.
    """
    rows = [(forecast, _row(forecast, track_id)) for forecast in (one, other)]
    means = [np.tensordot(told.probability[row], told.trajectory[row], axes=1) for told, row in rows]
    moved: NDArray[np.float64] = norm(means[1] - means[0])
    return moved


def _row(forecast: Forecast, track_id: str) -> int:
    row = int(forecast.rows(np.array([track_id]))[0])
    require(row >= 0, "forecast", f"does not tell of track {track_id!r}")
    return row


def draw_what_if(axes: Axes, view: View, scenario: Scenario, what_if: WhatIf) -> Line2D:
    """The focal agent's other futures as dashed lines, those who are not there as hollow outlines.

    Returns: the line for the legend.

    Raises: DataError if the forecast does not tell of the focal track; KeyError on an unknown removed one.
    """
    color = view.theme.what_if
    lines = what_if.forecast.trajectory[_row(what_if.forecast, scenario.focal_id)]
    # Thinner than the modes as seen, and open at the ends: where nothing changes both are seen.
    modes = LineCollection(
        list(lines),
        colors=color,
        linewidths=1.1,
        linestyles=[DASHES],
        zorder=Layer.TRUTH,
        gid="what-if-modes",
    )
    axes.add_collection(modes, autolim=False)
    ring: dict[str, Any] = {"facecolors": "none", "edgecolors": color, "linewidths": 1.3, "zorder": Layer.END}
    axes.scatter(lines[:, -1, 0], lines[:, -1, 1], s=38, **ring)
    rows = np.array([scenario.tracks.index(name) for name in what_if.removed], np.int64)
    rows = rows[scenario.last_seen[rows] >= 0]
    bodies = PolyCollection(
        outlines(view, scenario, rows)[0],
        facecolors=view.theme.ground,
        edgecolors=color,
        linewidths=1.3,
        linestyles=[(0.0, (2.2, 1.1))],
        zorder=Layer.FOCAL_AGENT,
        gid="removed",
    )
    axes.add_collection(bodies, autolim=False)
    return Line2D([], [], color=color, linewidth=1.1, linestyle=DASHES, label=what_if.name)
