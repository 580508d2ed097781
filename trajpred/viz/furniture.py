"""Everything around the scene: caption, legend, colour bar, scale bar."""

from __future__ import annotations

import math
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
from trajpred.viz import style
from trajpred.viz.agent_layer import OBJECT_OUTLINE, OUTLINES, roles
from trajpred.viz.shapes import DIAMOND, ELLIPSE, LOZENGE
from trajpred.viz.style import Layer, Role
from trajpred.viz.view import View

SMALL = 7.5
#: Three rows of the longest names leave room for the colour bar beside them.
LEGEND_ROWS = 3


def style_axes(axes: Axes, view: View) -> None:
    """A square window with equal scales and no ticks: city coordinates mean nothing to a reader."""
    (x, y), r = view.centre.tolist(), view.radius
    axes.set(xlim=(x - r, x + r), ylim=(y - r, y + r), xticks=[], yticks=[], facecolor=style.BACKGROUND)
    axes.set_aspect("equal")
    axes.set_autoscale_on(False)
    for spine in axes.spines.values():
        spine.set(color=style.FRAME, linewidth=0.8)


def focal_metrics(scenario: Scenario, forecast: Forecast) -> tuple[float, float, bool] | None:
    """minADE and minFDE in metres and whether it is a miss, for the focal track, by av2's definitions.

    Each minimum is over the modes by itself. Where steps of the truth are missing, the average is over
    those that exist and the end is the last of them. None without a forecast or a future of that track.
    """
    # Only now: a scene without a forecast is drawn without torch.
    import torch

    from trajpred.metrics import agent_metrics

    row = int(forecast.rows(np.array([scenario.focal_id]))[0])
    now, (K, F) = scenario.num_observed, forecast.trajectory.shape[1:3]
    tracks, at = scenario.tracks, slice(scenario.focal, scenario.focal + 1)
    valid = tracks.valid[at, now : now + F]
    if row < 0 or not valid.any():
        return None
    path, p = forecast.trajectory[row : row + 1, :, : valid.shape[1]], forecast.probability[row : row + 1]
    given = (path, p, tracks.position[at, now : now + F], valid)
    path_, p_, truth, known = (torch.from_numpy(x) for x in given)
    found = agent_metrics(path_, p_, truth, known, ks=(K,), names=("minADE", "minFDE", "MR"))
    ade, fde, missed = (float(value) for value in found.values())
    return ade, fde, bool(missed)


def draw_caption(axes: Axes, scenario: Scenario, forecast: Forecast | None, small: bool) -> None:
    """Two lines above the scene: what it is, and how good the forecast of the focal track is.

    Args:
        small: leave out what would not fit a small panel.
    """
    kind = OBJECT_TYPES[scenario.tracks.object_type[scenario.focal]].replace("_", " ")
    name = scenario.scenario_id[:8] if small else scenario.scenario_id
    title = " · ".join(part for part in (name, scenario.city, f"focal {kind}") if part)
    _above(axes, title, 17.0, fontsize=9, fontweight="bold", color=style.INK, gid="caption")
    _above(axes, summary(scenario, forecast, small), 5.0, fontsize=8, color=style.MUTED, gid="metrics")


def _above(axes: Axes, text: str, points: float, **look: Any) -> None:
    """A line of text that starts ``points`` above the upper left corner of the scene."""
    axes.annotate(
        text, (0, 1), (0, points), xycoords="axes fraction", textcoords="offset points",
        ha="left", va="bottom", **look,
    )  # fmt: skip


def summary(scenario: Scenario, forecast: Forecast | None, small: bool = False) -> str:
    """The second line of the caption; ``small``: only the metrics where there are some."""
    observed = f"{scenario.num_observed * scenario.step_s:.1f} s observed"
    if forecast is None:
        return observed
    K, F = forecast.trajectory.shape[1:3]
    told = f"{observed}, {F * scenario.step_s:.1f} s predicted, {K} mode{'s' if K > 1 else ''}"
    metrics = focal_metrics(scenario, forecast)
    if metrics is None:
        return told
    ade, fde, miss = metrics
    from trajpred.metrics import MISS_THRESHOLD_M as FAR

    verdict = f"miss (> {FAR:g} m)" if miss else f"hit (≤ {FAR:g} m)"
    judged = f"minADE {ade:.2f} m · minFDE {fde:.2f} m · {verdict}"
    return judged if small else f"{told}   |   {judged}"


def draw_legend(axes: Axes, scenario: Scenario, rows: NDArray[np.int64], forecast: Forecast | None) -> None:
    """Below the scene, on the left: only what the picture shows. ``rows`` are the agents drawn."""
    present = set(roles(scenario)[rows].tolist())
    entries = [_square(style.ROLE_COLORS[r], style.ROLE_NAMES[r]) for r in sorted(Role)[::-1] if r in present]
    entries += _glyphs({OBJECT_TYPES[i] for i in scenario.tracks.object_type[rows].tolist()})
    focal = style.ROLE_COLORS[Role.FOCAL]
    entries.append(Line2D([], [], color=focal, linewidth=2.4, alpha=0.6, label="history"))
    if scenario.has_future:
        entries.append(
            Line2D([], [], color=focal, linewidth=1.7, linestyle=(0, (2.6, 1.4)), label="true future")
        )
    if forecast is not None:
        color = style.PROBABILITY_COLORS(style.PROBABILITY_NORM(0.3))
        entries.append(Line2D([], [], color=color, linewidth=1.9, label="prediction"))
    legend = axes.legend(
        handles=entries,
        loc="upper left",
        bbox_to_anchor=(0.0, -0.012),
        borderaxespad=0.0,
        borderpad=0.0,
        ncols=math.ceil(len(entries) / LEGEND_ROWS),
        fontsize=SMALL,
        labelcolor=style.INK,
        frameon=False,
        handlelength=1.9,
        columnspacing=1.3,
    )
    legend.set_zorder(Layer.LABEL)


def _square(color: str, label: str) -> Line2D:
    return Line2D([], [], linestyle="none", marker="s", markersize=6.5, color=color, label=label)


def _glyphs(kinds: set[str]) -> list[Line2D]:
    """An entry for each outline that stands for some of the object types ``kinds`` and is no plain box."""
    color = style.ROLE_EDGES[Role.OTHER]
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


def draw_color_bar(axes: Axes) -> None:
    """Below the scene, on the right: probability."""
    bar = axes.inset_axes((0.73, -0.046, 0.25, 0.016))
    mappable = ScalarMappable(style.PROBABILITY_NORM, style.PROBABILITY_COLORS)
    color_bar = axes.figure.colorbar(mappable, cax=bar, orientation="horizontal")
    color_bar.set_ticks(style.PROBABILITY_TICKS, labels=[f"{tick:.0%}" for tick in style.PROBABILITY_TICKS])
    color_bar.ax.minorticks_off()
    color_bar.ax.tick_params(labelsize=SMALL - 0.5, length=2, width=0.6, pad=1.5, colors=style.MUTED)
    color_bar.outline.set_visible(False)
    color_bar.ax.annotate(
        "probability of a mode", (0, 1), (0, 3.5), xycoords="axes fraction", textcoords="offset points",
        ha="left", va="bottom", fontsize=SMALL, color=style.INK,
    )  # fmt: skip


def draw_scale_bar(axes: Axes, view: View) -> None:
    """A round length at the lower left of the scene."""
    metres = round_length(view.radius / 2.5)
    left, y = view.centre - view.radius * np.array([0.94, 0.93])
    halo = [withStroke(linewidth=3.2, foreground=style.HALO, alpha=0.9)]
    axes.plot(
        [left, left + metres], [y, y], color=style.INK, linewidth=1.6, solid_capstyle="butt",
        zorder=Layer.LABEL, path_effects=halo, gid="scale-bar",
    )  # fmt: skip
    axes.annotate(
        f"{metres:g} m", (left + metres / 2, y), (0, 3), textcoords="offset points", ha="center", va="bottom",
        fontsize=SMALL, color=style.INK, zorder=Layer.LABEL, path_effects=halo,
    )  # fmt: skip


def round_length(metres: float) -> float:
    """The largest of 1, 2 or 5 times a power of ten that is no longer than ``metres``."""
    power: float = 10.0 ** math.floor(math.log10(metres))
    return max(step * power for step in (1, 2, 5) if step * power <= metres)
