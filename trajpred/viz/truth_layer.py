"""True futures of tracks, dashed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from trajpred.scenario import Scenario
from trajpred.viz.agent_layer import roles
from trajpred.viz.style import Layer, Role
from trajpred.viz.view import View

#: Dash and gap of a true future, in multiples of the line width.
DASHES = (0.0, (2.6, 1.4))


@dataclass(frozen=True)
class _TruthLook:
    """How a true future is drawn: its line, and the marker at its end (sizes in points)."""

    gid: str
    width: float
    alpha: float
    layer: Layer
    marker: str
    marker_size: float
    has_halo: bool
    end_layer: Layer


FOCAL_TRUTH = _TruthLook(
    gid="focal-truth",
    width=1.7,
    alpha=1.0,
    layer=Layer.TRUTH,
    marker="*",
    marker_size=9.5,
    has_halo=True,
    end_layer=Layer.TRUTH_END,
)
OTHER_TRUTH = _TruthLook(
    gid="other-truth",
    width=0.9,
    alpha=0.75,
    layer=Layer.OTHER_TRUTH,
    marker="o",
    marker_size=3.0,
    has_halo=False,
    end_layer=Layer.OTHER_TRUTH,
)


def draw_truth(axes: Axes, view: View, scenario: Scenario, rows: np.ndarray, ends: bool = True) -> None:
    """Draw the true future of those tracks ``rows`` that have one, dashed, and where it ends."""
    has_future = scenario.tracks.valid[rows, scenario.num_observed :].any(axis=1)
    for row in rows[has_future].tolist():
        path = true_future(scenario, row)
        color = view.theme.role[Role(roles(scenario)[row])]
        look = FOCAL_TRUTH if row == scenario.focal else OTHER_TRUTH
        _draw_path_of_truth(axes, view, path, color, look, ends)


def _draw_path_of_truth(
    axes: Axes, view: View, path: np.ndarray, color: str, look: _TruthLook, ends: bool
) -> None:
    halo = view.theme.halo
    axes.plot(
        path[:, 0],
        path[:, 1],
        color=color,
        linewidth=look.width,
        linestyle=DASHES,
        dash_capstyle="butt",
        alpha=look.alpha,
        zorder=look.layer,
        gid=look.gid,
        path_effects=[withStroke(linewidth=look.width + 1.3, foreground=halo, alpha=0.8)],
    )
    if ends:
        axes.scatter(
            path[-1, 0],
            path[-1, 1],
            marker=look.marker,
            s=look.marker_size**2,
            color=color,
            edgecolors=halo if look.has_halo else color,
            linewidths=0.7,
            zorder=look.end_layer,
        )


def true_future(scenario: Scenario, row: int) -> np.ndarray:
    """Return the valid future positions ``[F, 2]`` of a track."""
    future = slice(scenario.num_observed, None)
    return scenario.tracks.position[row, future][scenario.tracks.valid[row, future]]
