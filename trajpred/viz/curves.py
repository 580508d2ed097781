"""Curves as one figure: the learning curves of a run, and the scores of successive forecasts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from trajpred.metrics import metric_of
from trajpred.viz.style import LIGHT, Role, Theme, style_axes

#: Metrics with a panel each, beside the loss.
PANELS = ("minADE6", "minFDE6", "MR6")
#: Metrics of successive forecasts with a panel each, and its title.
UPDATE_PANELS = {
    "minFDE6": "Final error within the recording (m): minFDE6",
    "mode displacement": "Displacement of the modes since the last update (m)",
    "switches": "Switches of the most probable mode so far",
    "probability change": "Change of the probabilities since the last update",
}
#: Groups of agents, the first on top, and their colours.
GROUPS = {"focal": Role.FOCAL, "scored": Role.SCORED, "all": Role.OTHER}
#: More validations than this are drawn without markers.
MAX_MARKERS = 40


def draw_curves(rows: Mapping[int, Mapping[str, float]], name: str = "", best: int | None = None) -> Figure:
    """Draw the losses and validation metrics of a run over its epochs.

    Args:
        rows: by optimiser step: ``epoch``, and any of ``train/loss``, ``val/loss`` and ``val/GROUP/METRIC``,
            with the groups ``focal``, ``scored`` and ``all``, as in ``RunHistory.rows``.
        name: of the run.
        best: step of the best checkpoint, which is marked; otherwise the last one is.

    Returns: a figure of 10 by 6.8 inches, or 10 by 4 if no validation ran.
    """
    theme, names = LIGHT, PANELS if any("val/loss" in row for row in rows.values()) else ()
    figure, panels = _figure(2 if names else 1)
    mark = best if best is not None and best in rows else max(rows, default=0)
    lines = {"train/loss": ("training", theme.role_edge[Role.OTHER]), "val/loss": ("validation", theme.ink)}
    _draw_panel(panels[0], theme, "Loss", rows, lines, mark)
    for axes, column in zip(panels[1:], names, strict=False):
        metric = metric_of(column)
        unit = f" ({metric.unit})" if metric.unit else ""
        lines = {f"val/{group}/{column}": (group, theme.role[role]) for group, role in GROUPS.items()}
        _draw_panel(axes, theme, f"{metric.label}{unit}: {column}", rows, lines, mark)
        axes.set_ylim(bottom=0)
    if mark in rows:
        which = "the best checkpoint" if mark == best else "the end"
        text = f"{name}: numbers are those of {which}, after {rows[mark]['epoch']:.4g} epochs"
        figure.suptitle(text, x=0.012, ha="left", fontsize=11, color=theme.ink)
    return figure


def draw_updates(rows: Mapping[int, Mapping[str, float]], name: str = "") -> Figure:
    """Draw the errors of successive forecasts, and their changes from one to the next, over time.

    Args:
        rows: by step: ``seconds``, and any of ``focal/METRIC`` and ``scored/METRIC``, as in
            :func:`trajpred.evaluation.updates.update_series`.
        name: of the scenario and the predictor.

    Returns: a figure of 10 by 6.8 inches.
    """
    figure, panels = _figure(2)
    for axes, (column, title) in zip(panels, UPDATE_PANELS.items(), strict=True):
        drawn, lines = {step: {"seconds": row["seconds"]} for step, row in rows.items()}, {}
        for group in ("focal", "scored"):
            key = f"{group}/{column}"
            known = {step: row[key] for step, row in rows.items() if key in row}
            total, mean = sum(known.values()), f"mean {np.mean([*known.values()]):.2f}" if known else ""
            if column == "switches":  # single ones are spikes, their sum can be read
                known, mean = dict(zip(known, accumulate(known.values()), strict=True)), f"{total:.3g}"
            for step, value in known.items():
                drawn[step][key] = value
            lines[key] = (f"{group}, {mean}", LIGHT.role[GROUPS[group]])
        _draw_panel(axes, LIGHT, title, drawn, lines, x="seconds")
        axes.set_ylim(bottom=0)
    figure.suptitle(name, x=0.012, ha="left", fontsize=11, color=LIGHT.ink)
    return figure


def _figure(rows: int) -> tuple[Figure, NDArray[Any]]:
    """Make a figure of ``rows`` by ``rows`` panels."""
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1, hspace=0.04)
    figure = Figure(figsize=(10, 6.8 if rows > 1 else 4), layout=layout, facecolor=LIGHT.paper)
    return figure, figure.subplots(rows, rows, squeeze=False).ravel()


def _draw_panel(
    axes: Axes,
    theme: Theme,
    title: str,
    rows: Mapping[int, Mapping[str, float]],
    lines: Mapping[str, tuple[str, str]],
    mark: int | None = None,
    x: str = "epoch",
) -> None:
    """Draw a curve over ``x`` for each key of ``lines``, which maps to its name and colour; mark one step."""
    drawn: list[list[float]] = []
    for key, (name, color) in lines.items():
        points = [(row[x], row[key]) for _, row in sorted(rows.items()) if key in row]
        values = [value for _, value in points]
        if not points or values in drawn:  # in some data sets the scored agents are the focal ones
            continue
        drawn.append(values)
        marked = None if mark is None else rows[mark].get(key)
        label = name if marked is None else f"{name} {marked:.2f}"
        look: dict[str, Any] = {"zorder": 3 - 0.1 * len(drawn), "color": color, "label": label}
        look |= {"marker": "o", "markersize": 3.0} if len(points) <= MAX_MARKERS else {}
        axes.plot(*zip(*points, strict=True), linewidth=1.8, **look)
        if mark is not None and marked is not None:
            ring: dict[str, Any] = {"s": 42, "facecolor": theme.paper, "edgecolor": color, "linewidth": 1.8}
            axes.scatter(rows[mark][x], marked, zorder=4, clip_on=False, **ring)
    axes.set_title(title, loc="left", fontsize=10, color=theme.ink, fontweight="bold", pad=20)
    style_axes(axes, theme)
    axes.set_xlabel(x, fontsize=8.5, color=theme.muted)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    if drawn:
        axes.legend(
            frameon=False, fontsize=8.5, labelcolor=theme.ink, ncols=len(drawn), loc="lower left",
            bbox_to_anchor=(0, 1), borderpad=0, borderaxespad=0.4, handlelength=1.6, columnspacing=1.6,
        )  # fmt: skip
