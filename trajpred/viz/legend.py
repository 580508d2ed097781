"""Legend, colour bar and scale bar of a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.patheffects import withStroke

from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.viz.agent_layer import CHEVRON, DIAMOND, ELLIPSE, LOZENGE, OUTLINES, roles
from trajpred.viz.forecast_layer import DASHES, FOCAL_WIDTHS, QUIET, SINGLE_WIDTHS, meeting_rows
from trajpred.viz.style import PROBABILITY_NORM, PROBABILITY_TICKS, ROLE_NAMES, Layer, Role
from trajpred.viz.view import View, legend_marker

#: Font size of the legend (points).
SMALL = 7.5
#: Least number of rows, if there are enough entries.
LEGEND_ROWS = 3
#: Left, bottom, width and height of the colour bar, as shares of the axes.
COLOR_BAR = (0.73, -0.046, 0.25, 0.016)
#: At other resolutions, text is wider by up to this factor.
SLACK = 1.08
#: Share of the width that the colour bar leaves to the entries.
BESIDE_BAR = 0.71
#: Room around a legend alone (points).
MARGIN = 4.0
#: Room below its entries for the colour bar with title and ticks, and for the ticks below the bar (points).
BAR_ROOM, BAR_ABOVE = 36.0, 12.0
#: Length and width of that colour bar (points).
BAR_LENGTH, BAR_WIDTH = 125.0, 8.0
MM_PER_INCH = 25.4


#: Outlines explained by the legend, with marker and size (points); vehicles need no entry.
OUTLINE_ENTRIES = (
    ("pedestrian", ELLIPSE, ELLIPSE, 5.5),
    ("two-wheeler", LOZENGE, LOZENGE * np.array([2.2, 1.0]), 9.0),
    ("unknown type", CHEVRON, CHEVRON, 8.0),
    ("object", DIAMOND, DIAMOND, 5.5),
)


def draw_legend(
    axes: Axes,
    view: View,
    scenario: Scenario,
    rows: np.ndarray,
    futures: np.ndarray,
    forecast: Forecast | None,
    overlay: Sequence[Line2D] = (),
) -> None:
    """Draw the legend for agents ``rows``, true ``futures`` and ``overlay`` below the scene, on the left."""
    lines = _line_entries(view, scenario, np.intersect1d(rows, futures), forecast)
    entries = [*_agent_entries(view, scenario, rows), *lines, *overlay]
    has_bar = forecast is not None and forecast.probability.shape[1] > 1
    draw_entries(axes, view, entries, BESIDE_BAR if has_bar else 1.0)


def draw_entries(axes: Axes, view: View, entries: Sequence[Line2D], share: float = 1.0) -> None:
    """Draw a legend of ``entries`` below the scene, on the left, within a ``share`` of its width."""
    room = share * 2 * view.radius * view.points_per_metre
    most = math.ceil(len(entries) / LEGEND_ROWS)
    _draw_columns(axes, view.theme.ink, entries, most, room, (0.0, -0.012))


def _draw_columns(
    axes: Axes, ink: Any, entries: Sequence[Any], most: int, room: float, corner: tuple[float, float]
) -> np.ndarray:
    """Draw a legend in as many columns (at ``most``) as fit in ``room`` (points); return its size ``[2]``.

    Args:
        corner: its upper left corner in fractions of ``axes``.
    """
    size = np.full(2, np.inf)
    for columns in range(most, 0, -1):
        legend = axes.legend(
            handles=entries,
            loc="upper left",
            bbox_to_anchor=corner,
            ncols=columns,
            fontsize=SMALL,
            labelcolor=ink,
            frameon=False,
            borderaxespad=0.0,
            borderpad=0.0,
            handlelength=1.9,
            columnspacing=1.3,
        )
        legend.set_zorder(Layer.LABEL)
        for text in legend.get_texts():
            text.set_parse_math(False)
        size = np.asarray(legend.get_window_extent().size) * 72 / axes.figure.dpi
        if SLACK * size[0] <= room:
            break
    return size


def legend_alone(figure: Figure, width_mm: float | None = None) -> Figure:
    """Reduce a picture of ``draw_scene`` or ``draw_lane_map`` to its legend and colour bar.

    Args:
        width_mm: width of the figure, by default the picture's; entries take as many rows as needed.

    Example:
        >>> save_scene(legend_alone(draw_scene(scenario, forecast), 85.0), "legend.pdf")  # doctest: +SKIP
    """
    axes = figure.axes[0]
    bars = axes.child_axes
    drawn = axes.get_legend()
    assert drawn is not None, "a small panel, which has no legend"
    entries = drawn.legend_handles
    ink = drawn.get_texts()[0].get_color()
    for artist in axes.get_children():
        artist.set_visible(artist in bars)
    if width_mm is not None:
        figure.set_figwidth(width_mm / MM_PER_INCH)
    room = 72 * figure.get_figwidth() - 2 * MARGIN
    size = _draw_columns(axes, ink, entries, len(entries), room, (0.0, 1.0))
    below = BAR_ROOM if bars else 0.0
    height = float(size[1]) + below + 2 * MARGIN
    figure.set_figheight(height / 72)
    width = 72 * figure.get_figwidth()
    axes.set_aspect("auto")
    axes.set_position((MARGIN / width, MARGIN / height, room / width, 1.0 - 2 * MARGIN / height))
    length = min(BAR_LENGTH, room - 4 * MARGIN)
    for bar in bars:
        bar.set_axes_locator(None)  # type: ignore[arg-type]
        bottom = (MARGIN + BAR_ABOVE) / height
        bar.set_position((3 * MARGIN / width, bottom, length / width, BAR_WIDTH / height))
        if length < BAR_LENGTH:
            bar.texts[0].set_text("probability")
    return figure


def _agent_entries(view: View, scenario: Scenario, rows: np.ndarray) -> list[Line2D]:
    """Return entries for the roles (colours) and object types (outlines) drawn."""
    theme = view.theme
    entries: list[Line2D] = []
    present = set(roles(scenario)[rows].tolist())
    for role in sorted(present, reverse=True):
        name = ROLE_NAMES[Role(role)]
        edge = theme.role_edge[role]
        entries.append(legend_marker(name, "s", 6.5, theme.role[role], markeredgecolor=edge))
    drawn: set[int] = set()
    for code in scenario.tracks.object_type[rows].tolist():
        outline = OUTLINES.get(OBJECT_TYPES[code], DIAMOND)
        drawn.add(id(outline))
    for label, outline, marker, size in OUTLINE_ENTRIES:
        if id(outline) in drawn:
            closed = Path(np.append(marker, marker[:1], axis=0), closed=True)
            entries.append(legend_marker(label, closed, size, theme.role_edge[Role.OTHER]))
    return entries


def _line_entries(
    view: View, scenario: Scenario, futures: np.ndarray, forecast: Forecast | None
) -> list[Line2D]:
    """Return entries for histories, true futures and bands; the colour bar explains predictions."""
    focal = view.theme.role[Role.FOCAL]
    entries = [Line2D([], [], color=focal, linewidth=2.4, alpha=0.6, label="history")]
    has_truth = scenario.tracks.valid[futures, scenario.num_observed :].any(axis=1)
    roles_with_truth = set(roles(scenario)[futures[has_truth]].tolist())
    for role in sorted(roles_with_truth, reverse=True):
        label = "true future"
        width = 1.7
        if role != Role.FOCAL:
            label = f"true future, {Role(role).name.lower()}"
            width = 1.2
        color = view.theme.role[role]
        entries.append(Line2D([], [], color=color, linewidth=width, linestyle=DASHES, label=label))
    if forecast is not None and forecast.probability.shape[1] == 1:
        entries += _single_entries(view, scenario, forecast)
    has_band = forecast is not None and forecast.scale is not None and scenario.focal_id in forecast.track_id
    if has_band:
        [color] = view.theme.mode_colors(np.array([0.3]))
        band = Line2D([], [], color=color, linewidth=7.0, alpha=0.3, solid_capstyle="butt", label="80% band")
        entries.append(band)
    return entries


def _single_entries(view: View, scenario: Scenario, forecast: Forecast) -> list[Line2D]:
    """Return entries for single modes, which the colour bar does not explain."""
    theme = view.theme
    [darkest] = theme.mode_colors(np.ones(1))
    entries = [Line2D([], [], color=darkest, linewidth=FOCAL_WIDTHS[1], label="predicted future")]
    others = np.flatnonzero(forecast.track_id != scenario.focal_id)
    thin, wide = SINGLE_WIDTHS
    meeting = meeting_rows(scenario, forecast, others)[: len(theme.partners)]
    if len(meeting):
        entries.append(Line2D([], [], color=theme.partners[0], linewidth=wide, label="of those it meets"))
    if len(meeting) < len(others):
        [pale] = theme.mode_colors(np.array([QUIET]))
        entries.append(Line2D([], [], color=pale, linewidth=thin, label="of others"))
    return entries


def draw_color_bar(axes: Axes, view: View) -> None:
    """Draw the colour bar of probabilities below the scene, on the right."""
    bar = axes.inset_axes(COLOR_BAR)
    bar.set_facecolor(view.theme.background)
    mappable = ScalarMappable(PROBABILITY_NORM, view.theme.probability)
    color_bar = axes.figure.colorbar(mappable, cax=bar, orientation="horizontal")
    labels = [f"{tick:.0%}" for tick in PROBABILITY_TICKS]
    color_bar.set_ticks(PROBABILITY_TICKS, labels=labels)
    color_bar.ax.minorticks_off()
    color_bar.ax.tick_params(labelsize=SMALL - 0.5, length=2, width=0.6, pad=1.5, colors=view.theme.muted)
    color_bar.outline.set_visible(False)
    color_bar.ax.annotate(
        "predicted futures by probability",
        xy=(0, 1),
        xytext=(0, 3.5),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="left",
        va="bottom",
        fontsize=SMALL,
        color=view.theme.ink,
    )


def draw_scale_bar(axes: Axes, view: View) -> None:
    """Draw a bar of a round length at the lower left of the scene."""
    metres = round_length(view.radius / 2.5)
    left, y = view.centre - view.radius * np.array([0.94, 0.93])
    halo = [withStroke(linewidth=3.2, foreground=view.theme.halo, alpha=0.9)]
    axes.plot(
        [left, left + metres],
        [y, y],
        color=view.theme.ink,
        linewidth=1.6,
        solid_capstyle="butt",
        zorder=Layer.LABEL,
        path_effects=halo,
        gid="scale-bar",
    )
    axes.annotate(
        f"{metres:g} m",
        xy=(left + metres / 2, y),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=SMALL,
        color=view.theme.ink,
        zorder=Layer.LABEL,
        path_effects=halo,
    )


def round_length(metres: float) -> float:
    """Return the largest of 1, 2 or 5 times a power of ten that is at most ``metres``."""
    power: float = 10.0 ** math.floor(math.log10(metres))
    if 5 * power <= metres:
        return 5 * power
    if 2 * power <= metres:
        return 2 * power
    return power
