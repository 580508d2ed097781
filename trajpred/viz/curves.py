"""The learning curves of a run as one figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from trajpred.metrics import METRICS, Column
from trajpred.metrics.registry import MODES
from trajpred.viz.style import LIGHT, Role, legible, style_axes

#: A run's values by name, by optimiser step.
Rows: TypeAlias = Mapping[int, Mapping[str, float]]
#: Metrics with their own panel, besides the loss.
PANELS = ("minADE", "minFDE", "MR")
#: Groups of agents, the first on top, and their colours.
GROUPS = {"focal": Role.FOCAL, "scored": Role.SCORED, "all": Role.OTHER}
#: Maximum number of epoch ticks.
MAX_TICKS = 8
#: Maximum number of validations drawn with markers.
MAX_MARKERS = 40


def draw_curves(rows: Rows, name: str = "", best: int | None = None) -> Figure:
    """Draw the losses and validation metrics of a run over its epochs.

    Args:
        rows: by optimiser step: ``epoch``, and any of ``train/loss``, ``val/loss`` and ``val/GROUP/METRIC``,
            with the groups ``focal``, ``scored`` and ``all``, as in ``RunHistory.rows``.
        name: name of the run.
        best: step of the best checkpoint, which is marked; by default the last one.

    Returns: a figure of 10 by 6.8 inches, or 10 by 4 if no validation ran.
    """
    validated = any("val/loss" in row for row in rows.values())
    side = 2 if validated else 1
    height = 6.8 if validated else 4
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1, hspace=0.04)
    figure = Figure(figsize=(10, height), layout=layout, facecolor=LIGHT.paper)
    panels = figure.subplots(side, side, squeeze=False).ravel()
    mark = max(rows, default=0)
    if best is not None and best in rows:
        mark = best
    lines = {
        "train/loss": ("training", LIGHT.role_edge[Role.OTHER]),
        "val/loss": ("validation", LIGHT.ink),
    }
    _draw_panel(panels[0], "Loss", rows, lines, mark)
    if validated:
        for axes, metric in zip(panels[1:], PANELS, strict=True):
            _draw_metric(axes, Column(METRICS[metric], MODES), rows, mark)
    if mark in rows:
        place = "the best checkpoint" if mark == best else "the end"
        text = f"{name}: numbers are those of {place}, after {rows[mark]['epoch']:.4g} epochs"
        text, font = legible(text)
        figure.suptitle(text, x=0.012, ha="left", fontsize=11, fontproperties=font, color=LIGHT.ink)
    return figure


def _draw_metric(axes: Axes, column: Column, rows: Rows, mark: int) -> None:
    """Draw the curves of a metric for each group of agents."""
    metric = column.metric
    title = f"{metric.label}: {column.title}"
    if metric.unit:
        title = f"{metric.label} ({metric.unit}): {column.title}"
    lines = {f"val/{group}/{column.title}": (group, LIGHT.role[role]) for group, role in GROUPS.items()}
    _draw_panel(axes, title, rows, lines, mark)
    axes.set_ylim(bottom=0)


def _draw_panel(axes: Axes, title: str, rows: Rows, lines: Mapping[str, tuple[str, str]], mark: int) -> None:
    """Draw a curve over the epochs for each key of ``lines``, with its name and colour; ``mark`` one step."""
    in_order = [row for _, row in sorted(rows.items())]
    drawn: list[list[float]] = []
    for key, (name, color) in lines.items():
        recorded = [row for row in in_order if key in row]
        values = [row[key] for row in recorded]
        if not values or values in drawn:  # in some data sets the scored agents are the focal ones
            continue
        drawn.append(values)
        marked = rows[mark].get(key)
        look: dict[str, Any] = {"zorder": 3 - 0.1 * len(drawn), "color": color, "label": name}
        if marked is not None:
            look["label"] = f"{name} {marked:.2f}"
            _mark(axes, rows[mark]["epoch"], marked, color)
        if len(values) <= MAX_MARKERS:
            look["marker"] = "o"
            look["markersize"] = 3.0
        epochs = [row["epoch"] for row in recorded]
        axes.plot(epochs, values, linewidth=1.8, **look)
    axes.set_title(title, loc="left", fontsize=10, color=LIGHT.ink, fontweight="bold", pad=20)
    style_axes(axes, LIGHT)
    axes.set_xlabel("epoch", fontsize=8.5, color=LIGHT.muted)
    axes.set_xlim(left=0)
    validations = [row["epoch"] for row in in_order if "val/loss" in row]
    axes.xaxis.set_major_locator(MaxNLocator(MAX_TICKS, integer=True, min_n_ticks=1))
    if validations:  # the ticks are some of them, and the last one
        every = math.ceil(len(validations) / MAX_TICKS)
        from_last = validations[::-1][::every]
        axes.set_xticks(from_last[::-1])
    if drawn:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=len(drawn),
            frameon=False,
            fontsize=8.5,
            labelcolor=LIGHT.ink,
            borderpad=0,
            borderaxespad=0.4,
            handlelength=1.6,
            columnspacing=1.6,
        )


def _mark(axes: Axes, epoch: float, value: float, color: str) -> None:
    """Draw a ring around a point of a curve."""
    axes.scatter(
        epoch,
        value,
        s=42,
        facecolor=LIGHT.paper,
        edgecolor=color,
        linewidth=1.8,
        zorder=4,
        clip_on=False,
    )
