"""Caption, legend, colour bar and scale bar of a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.patheffects import withStroke

from trajpred.forecast import Forecast, with_truth
from trajpred.scenario import Scenario
from trajpred.tracks import OBJECT_TYPES
from trajpred.viz.agent_layer import CHEVRON, DIAMOND, ELLIPSE, LOZENGE, OUTLINES, roles
from trajpred.viz.forecast_layer import DASHES
from trajpred.viz.overlays import WhatIf
from trajpred.viz.style import PROBABILITY_NORM, PROBABILITY_TICKS, ROLE_NAMES, Layer, Role
from trajpred.viz.view import View, percent

#: From the scene up to the lowest line of the caption, and from line to line (points).
CAPTION_GAP, LINE_PITCH = 5.0, 12.0
#: Font size of the legend (points).
SMALL = 7.5
#: Three rows of the longest names leave room for the colour bar beside them.
LEGEND_ROWS = 3


def draw_caption(
    axes: Axes,
    view: View,
    scenario: Scenario,
    forecast: Forecast | None,
    *,
    world: int | None = None,
    what_if: WhatIf | None = None,
    small: bool = False,
) -> None:
    """Write up to three lines above the scene: its name, what is observed and predicted, and metrics.

    Args:
        forecast: with all modes, even if only one ``world`` is drawn.
        small: shorten the text to fit a small panel.
    """
    kind = OBJECT_TYPES[scenario.tracks.object_type[scenario.focal]].replace("_", " ")
    name = scenario.scenario_id[:8] if small else scenario.scenario_id
    title = " · ".join(part for part in (name, scenario.city, f"focal {kind}") if part)
    subtitle = describe(scenario, forecast, world)
    metrics = "" if forecast is None else describe_metrics(scenario, forecast, world, small)
    if forecast is not None and what_if is not None:
        subtitle += f"   |   {what_if.describe(scenario, forecast)}"
    lines = [("metrics", metrics), ("subtitle", "" if small and metrics else subtitle), ("title", title)]
    for i, (gid, text) in enumerate((gid, text) for gid, text in lines if text):
        caption_line(axes, view, i, text, gid)


def caption_line(axes: Axes, view: View, line: int, text: str, gid: str) -> None:
    """Write one line above the scene; ``line`` counts upwards from 0."""
    title: dict[str, Any] = {"fontsize": 9, "fontweight": "bold", "color": view.theme.ink}
    axes.annotate(
        text, xy=(0, 1), xytext=(0, CAPTION_GAP + LINE_PITCH * line), xycoords="axes fraction",
        textcoords="offset points", ha="left", va="bottom", gid=gid, parse_math=False,
        **(title if gid == "title" else {"fontsize": 8, "color": view.theme.muted}),
    )  # fmt: skip


def describe(scenario: Scenario, forecast: Forecast | None, world: int | None = None) -> str:
    """Describe how long is observed and predicted, and which modes are drawn."""
    observed = f"{scenario.num_observed * scenario.step_s:.1f} s observed"
    if forecast is None:
        return observed
    K, F = forecast.trajectory.shape[1:3]
    modes = f"{K} mode{'s' if K > 1 else ''}"
    if world is not None:
        share = percent(float(forecast.world(world).probability[0, 0]))
        modes = f"world {world + 1} of {K} by probability ({share})"
    return f"{observed}, {F * scenario.step_s:.1f} s predicted, {modes}"


def describe_metrics(
    scenario: Scenario, forecast: Forecast, world: int | None = None, small: bool = False
) -> str:
    """Describe the metrics of the focal track and, if there are several, of the scored tracks; or ""."""
    found = track_metrics(scenario, forecast, np.array([scenario.focal]), world)
    if not found:
        return ""
    # Imported late: a picture without a forecast needs no torch.
    from trajpred.metrics import MISS_THRESHOLD_M

    prefix = "min" if world is None else ""
    parts = [f"{prefix}{name} {_metres(found[f'min{name}'][0])}" for name in ("ADE", "FDE")]
    if not small and world is None:
        parts.append(f"brier-minFDE {_metres(found['brier-minFDE'][0])}")
    parts.append(f"miss (> {MISS_THRESHOLD_M:g} m)" if found["MR"][0] else f"hit (≤ {MISS_THRESHOLD_M:g} m)")
    scored = "" if small else _describe_scored(scenario, forecast, world)
    return " · ".join(parts) + (f"   |   {scored}" if scored else "")


def _describe_scored(scenario: Scenario, forecast: Forecast, world: int | None) -> str:
    """Describe the scored tracks if there are several; of joint forecasts, the best world."""
    import torch

    from trajpred.evaluation.agents import groups_of

    rows = np.flatnonzero(groups_of(scenario)["scored"])
    found = track_metrics(scenario, forecast, rows, world)
    agents = len(found.get("minFDE", ()))
    if agents < 2:
        return ""
    mean, missed = _metres(found["minFDE"].mean()), int(found["MR"].sum())
    if world is not None:
        return f"{agents} scored: FDE {mean}, {missed} missed"
    if forecast.has_worlds and forecast.probability.shape[1] > 1:
        from trajpred.metrics import world_metrics

        path, p, truth, valid = _predicted(scenario, forecast, rows)
        best = world_metrics(path, p[:1], truth, valid, torch.zeros(agents, dtype=torch.int64))["avgMinFDE"]
        return f"{agents} scored: avgMinFDE {_metres(float(best))}"
    return f"{agents} scored: minFDE {mean}, {missed} missed"


def _metres(error: float) -> str:
    return f"{error:.2f} m" if error < 100 else f"{error:.0f} m"


def track_metrics(
    scenario: Scenario, forecast: Forecast, rows: np.ndarray, world: int | None = None
) -> dict[str, np.ndarray]:
    """Compute minADE, minFDE, MR and brier-minFDE ``[R]`` of those tracks ``rows`` that can be evaluated.

    By av2's definitions over all modes, or of one ``world``. Where steps of the truth are missing, the
    average is over the existing ones and the final error at the last of them. Empty if no track of ``rows``
    has both a forecast and a future.
    """
    from trajpred.metrics import agent_metrics, names_in

    modes = forecast if world is None else forecast.world(world)
    path, p, truth, valid = _predicted(scenario, modes, rows)
    if not len(path):
        return {}
    K, names = path.shape[1], names_in("breakdown")
    found = agent_metrics(path, p, truth, valid, ks=(K,), names=names)
    return {name: found[f"{name}{K}"].numpy() for name in names}


def _predicted(scenario: Scenario, forecast: Forecast, rows: np.ndarray) -> Iterator[Any]:
    import torch

    return map(torch.from_numpy, with_truth(forecast, scenario, rows)[1:])


def draw_legend(
    axes: Axes,
    view: View,
    scenario: Scenario,
    rows: np.ndarray,
    futures: np.ndarray,
    forecast: Forecast | None,
    overlay: Sequence[Line2D] = (),
) -> None:
    """Draw the legend below the scene, on the left: of agents ``rows``, true ``futures`` and ``overlay``."""
    lines = _line_entries(view, scenario, np.intersect1d(rows, futures), forecast)
    entries = [*_agent_entries(view, scenario, rows), *lines, *overlay]
    legend = axes.legend(
        handles=entries, loc="upper left", bbox_to_anchor=(0.0, -0.012), borderaxespad=0.0, borderpad=0.0,
        ncols=math.ceil(len(entries) / LEGEND_ROWS), fontsize=SMALL, labelcolor=view.theme.ink,
        frameon=False, handlelength=1.9, columnspacing=1.3,
    )  # fmt: skip
    legend.set_zorder(Layer.LABEL)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _agent_entries(view: View, scenario: Scenario, rows: np.ndarray) -> list[Line2D]:
    """Return entries for the roles (colours) and object types (outlines) drawn."""
    theme, present = view.theme, set(roles(scenario)[rows].tolist())
    look: dict[str, Any] = {"linestyle": "none", "marker": "s", "markersize": 6.5}
    entries = [
        Line2D([], [], color=theme.role[r], markeredgecolor=theme.role_edge[r], label=ROLE_NAMES[r], **look)
        for r in sorted(Role)[::-1]
        if r in present
    ]
    types = {OBJECT_TYPES[i] for i in scenario.tracks.object_type[rows].tolist()}
    drawn = [OUTLINES.get(name, DIAMOND) for name in types]
    for label, outline, shape, size in (
        ("pedestrian", ELLIPSE, ELLIPSE, 5.5),
        ("two-wheeler", LOZENGE, LOZENGE * np.array([2.2, 1.0]), 9.0),
        ("unknown type", CHEVRON, CHEVRON, 8.0),
        ("object", DIAMOND, DIAMOND, 5.5),
    ):
        if any(outline is one for one in drawn):
            look = {"linestyle": "none", "marker": Path(shape), "markersize": size}
            entries.append(Line2D([], [], color=theme.role_edge[Role.OTHER], label=label, **look))
    return entries


def _line_entries(
    view: View, scenario: Scenario, futures: np.ndarray, forecast: Forecast | None
) -> list[Line2D]:
    """Return entries for histories, true futures and bands; the colour bar is that of predictions."""
    focal = view.theme.role[Role.FOCAL]
    entries = [Line2D([], [], color=focal, linewidth=2.4, alpha=0.6, label="history")]
    known = futures[scenario.tracks.valid[futures, scenario.num_observed :].any(axis=1)]
    for role in sorted({*roles(scenario)[known].tolist()}, reverse=True):
        look: dict[str, Any] = {"linewidth": 1.7 if role == Role.FOCAL else 1.2, "linestyle": DASHES}
        name = "true future" + ("" if role == Role.FOCAL else f", {Role(role).name.lower()}")
        entries.append(Line2D([], [], color=view.theme.role[role], label=name, **look))
    if forecast is not None and forecast.scale is not None and scenario.focal_id in forecast.track_id:
        [color] = view.theme.mode_colors(np.array([0.3]))
        look = {"linewidth": 7.0, "alpha": 0.3, "solid_capstyle": "butt"}
        entries.append(Line2D([], [], color=color, label="80% band", **look))
    return entries


def draw_color_bar(axes: Axes, view: View) -> None:
    """Draw the colour bar of probabilities below the scene, on the right."""
    bar = axes.inset_axes((0.73, -0.046, 0.25, 0.016))
    bar.set_facecolor(view.theme.background)
    mappable = ScalarMappable(PROBABILITY_NORM, view.theme.probability)
    color_bar = axes.figure.colorbar(mappable, cax=bar, orientation="horizontal")
    color_bar.set_ticks(PROBABILITY_TICKS, labels=[f"{tick:.0%}" for tick in PROBABILITY_TICKS])
    color_bar.ax.minorticks_off()
    color_bar.ax.tick_params(labelsize=SMALL - 0.5, length=2, width=0.6, pad=1.5, colors=view.theme.muted)
    color_bar.outline.set_visible(False)
    color_bar.ax.annotate(
        "predicted futures by probability", (0, 1), (0, 3.5), xycoords="axes fraction",
        textcoords="offset points", ha="left", va="bottom", fontsize=SMALL, color=view.theme.ink,
    )  # fmt: skip


def draw_scale_bar(axes: Axes, view: View) -> None:
    """Draw a bar of a round length at the lower left of the scene."""
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
    """Return the largest of 1, 2 or 5 times a power of ten that is at most ``metres``."""
    power: float = 10.0 ** math.floor(math.log10(metres))
    return max(step * power for step in (1, 2, 5) if step * power <= metres)
