"""What helps to read the scene: legend, colour bar, scale bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from trajpred.forecast import Forecast
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.viz.agent_layer import OBJECT_OUTLINE, OUTLINES, roles
from trajpred.viz.forecast_layer import DASHES
from trajpred.viz.shapes import DIAMOND, ELLIPSE, LOZENGE
from trajpred.viz.style import PROBABILITY_NORM, PROBABILITY_TICKS, ROLE_NAMES, Layer, Role
from trajpred.viz.view import View

SMALL = 7.5
#: Three rows of the longest names leave room for the colour bar beside them.
LEGEND_ROWS = 3


def style_axes(axes: Axes, view: View) -> None:
    """A square window with equal scales and no ticks: city coordinates mean nothing to a reader."""
    (x, y), r = view.centre.tolist(), view.radius
    axes.set(xlim=(x - r, x + r), ylim=(y - r, y + r), xticks=[], yticks=[], facecolor=view.theme.background)
    axes.set_aspect("equal")
    axes.set_autoscale_on(False)
    for spine in axes.spines.values():
        spine.set(color=view.theme.frame, linewidth=0.8)


def draw_legend(
    axes: Axes,
    view: View,
    scenario: Scenario,
    rows: NDArray[np.int64],
    forecast: Forecast | None,
    more: Sequence[Line2D] = (),
) -> None:
    """Below the scene, on the left: only what the picture shows.

    Args:
        rows: the agents drawn.
        more: entries of whatever else is drawn.
    """
    entries = [*_agent_entries(view, scenario, rows), *_future_entries(view, scenario, forecast), *more]
    legend = axes.legend(
        handles=entries,
        loc="upper left",
        bbox_to_anchor=(0.0, -0.012),
        borderaxespad=0.0,
        borderpad=0.0,
        ncols=math.ceil(len(entries) / LEGEND_ROWS),
        fontsize=SMALL,
        labelcolor=view.theme.ink,
        frameon=False,
        handlelength=1.9,
        columnspacing=1.3,
    )
    legend.set_zorder(Layer.LABEL)


def _agent_entries(view: View, scenario: Scenario, rows: NDArray[np.int64]) -> list[Line2D]:
    """Colours by role, outlines by type."""
    theme, present = view.theme, set(roles(scenario)[rows].tolist())
    look: dict[str, Any] = {"linestyle": "none", "marker": "s", "markersize": 6.5}
    squares = [
        Line2D([], [], color=theme.role[r], markeredgecolor=theme.role_edge[r], label=ROLE_NAMES[r], **look)
        for r in sorted(Role)[::-1]
        if r in present
    ]
    kinds = {OBJECT_TYPES[i] for i in scenario.tracks.object_type[rows].tolist()}
    return squares + _glyphs(kinds, theme.role_edge[Role.OTHER])


def _future_entries(view: View, scenario: Scenario, forecast: Forecast | None) -> list[Line2D]:
    """Lines: past, future, and what is forecast."""
    focal = view.theme.role[Role.FOCAL]
    entries = [Line2D([], [], color=focal, linewidth=2.4, alpha=0.6, label="history")]
    if scenario.has_future:
        entries.append(Line2D([], [], color=focal, linewidth=1.7, linestyle=DASHES, label="true future"))
    if forecast is not None:
        [color] = view.theme.mode_colors(np.array([0.3]))
        entries.append(Line2D([], [], color=color, linewidth=2.2, label="prediction"))
        if forecast.scale is not None and scenario.focal_id in forecast.track_id:
            shade: dict[str, Any] = {"linewidth": 7.0, "alpha": 0.3, "solid_capstyle": "butt"}
            entries.append(Line2D([], [], color=color, label="80% band", **shade))
    return entries


def _glyphs(kinds: set[str], color: str) -> list[Line2D]:
    """An entry for each outline that stands for some of the object types ``kinds`` and is no plain box."""
    outlines = [OUTLINES.get(kind, OBJECT_OUTLINE)[0] for kind in kinds]
    return [
        Line2D([], [], linestyle="none", marker=Path(shape), markersize=size, color=color, label=label)
        for label, outline, shape, size in (
            ("pedestrian", ELLIPSE, ELLIPSE, 5.5),
            ("two-wheeler", LOZENGE, LOZENGE * np.array([2.2, 1.0]), 9.0),
            ("object", DIAMOND, DIAMOND, 5.5),
        )
        if any(outline is drawn for drawn in outlines)
    ]


def draw_color_bar(axes: Axes, view: View) -> None:
    """Below the scene, on the right: probability."""
    bar = axes.inset_axes((0.73, -0.046, 0.25, 0.016))
    bar.set_facecolor(view.theme.background)
    mappable = ScalarMappable(PROBABILITY_NORM, view.theme.probability)
    color_bar = axes.figure.colorbar(mappable, cax=bar, orientation="horizontal")
    color_bar.set_ticks(PROBABILITY_TICKS, labels=[f"{tick:.0%}" for tick in PROBABILITY_TICKS])
    color_bar.ax.minorticks_off()
    color_bar.ax.tick_params(labelsize=SMALL - 0.5, length=2, width=0.6, pad=1.5, colors=view.theme.muted)
    color_bar.outline.set_visible(False)
    color_bar.ax.annotate(
        "probability of a mode", (0, 1), (0, 3.5), xycoords="axes fraction", textcoords="offset points",
        ha="left", va="bottom", fontsize=SMALL, color=view.theme.ink,
    )  # fmt: skip


def draw_scale_bar(axes: Axes, view: View) -> None:
    """A round length at the lower left of the scene."""
    metres = round_length(view.radius / 2.5)
    left, y = view.centre - view.radius * np.array([0.94, 0.93])
    halo = [withStroke(linewidth=3.2, foreground=view.theme.halo, alpha=0.9)]
    axes.plot(
        [left, left + metres], [y, y], color=view.theme.ink, linewidth=1.6, solid_capstyle="butt",
        zorder=Layer.LABEL, path_effects=halo, gid="scale-bar",
    )  # fmt: skip
    axes.annotate(
        f"{metres:g} m", (left + metres / 2, y), (0, 3), textcoords="offset points", ha="center", va="bottom",
        fontsize=SMALL, color=view.theme.ink, zorder=Layer.LABEL, path_effects=halo,
    )  # fmt: skip


def round_length(metres: float) -> float:
    """The largest of 1, 2 or 5 times a power of ten that is no longer than ``metres``."""
    power: float = 10.0 ** math.floor(math.log10(metres))
    return max(step * power for step in (1, 2, 5) if step * power <= metres)
