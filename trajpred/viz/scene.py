"""One scenario from above: the road, the agents, their predicted and true futures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from trajpred.data.files import atomic_file
from trajpred.data.forecast import Attention, Forecast
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import TrackCategory
from trajpred.errors import require
from trajpred.viz.agent_layer import draw_agents, draw_histories, visible_agents
from trajpred.viz.caption import caption_line, draw_caption
from trajpred.viz.forecast_layer import draw_modes, draw_truth
from trajpred.viz.legend import MM_PER_INCH, draw_color_bar, draw_entries, draw_legend, draw_scale_bar
from trajpred.viz.map_layer import draw_links, draw_map, map_entries, map_parts
from trajpred.viz.overlays import WhatIf, draw_attention, draw_what_if
from trajpred.viz.style import Theme, get_theme
from trajpred.viz.view import MIN_RADIUS_M, View, fit, focal_position

#: Default width of a picture (inches).
WIDTH = 7.2
#: Room left and right of the square scene (inches).
BORDER = 0.15
#: Room for the caption above the scene (inches).
ABOVE = 0.7
#: Room for the short caption of a small panel (inches).
SMALL_ABOVE = 0.45
#: Room for the legend below the scene (inches).
BELOW = 0.7
#: Room around a plain scene, for its frame (inches).
PLAIN_BORDER = 0.01
#: Smallest width of a picture (millimetres).
MIN_WIDTH_MM = 20.0
#: Relative room around a map drawn alone.
MAP_MARGIN = 1.05
#: Scenes with a shorter side than this (points) are drawn as panels: short caption, no legend.
SMALL_PANEL = 320.0


def draw_scene(
    scenario: Scenario,
    forecast: Forecast | None = None,
    *,
    tracks: Sequence[str] | None = None,
    radius_m: float | None = None,
    joint_mode: int | None = None,
    what_if: WhatIf | None = None,
    attention: Attention | None = None,
    theme: str = "light",
    plain: bool = False,
    width_mm: float | None = None,
    axes: Axes | None = None,
) -> Figure:
    """Draw a scenario from above in its city frame: x right, y up, metres.

    Args:
        forecast: futures of some of the scenario's tracks; None draws the scenario alone.
        tracks: ids of the tracks whose predicted and true futures are drawn; by default the focal and scored
            ones.
        radius_m: half the side of a square around the focal agent; by default the square contains its
            history, future and forecasts.
        joint_mode: draw only this joint mode, one mode of every predicted agent, by probability from 0.
            Needs a joint forecast, see :meth:`Forecast.joint_mode`; not together with ``what_if``.
        what_if: also draw the focal agent's forecast without some road users.
        attention: also draw the lanes and agents that the focal agent attends to; not together with
            ``what_if``.
        theme: ``light`` for paper, ``dark`` for dark screens.
        plain: draw the scene alone, without caption, legend and colour bar, see
            :func:`~trajpred.viz.legend_alone`.
        width_mm: width of a new figure, by default 183; text and lines keep their size, to match the text
            around the figure.
        axes: where to draw, for figures of several scenes; by default a new figure without a display.
            Caption, legend and colour bar lie outside the axes: leave room above and below. Panels below
            4.4 inches get a shorter caption, no legend and no colour bar.

    Returns: the figure drawn on. No global state of matplotlib changes, so this is safe while training.

    Raises: DataError if forecast or attention are from another scenario, the forecast has no such joint mode,
        ``radius_m`` is not positive, ``width_mm`` is too small, or the theme is unknown; KeyError for an
        unknown track.

    Example:
        >>> scenario = Scenario.from_arrays(np.zeros((1, 30, 2)), num_observed=20)
        >>> save_scene(draw_scene(scenario, theme="dark"), "scene.png")  # doctest: +SKIP
    """
    has_forecast = forecast is not None
    require(has_forecast or joint_mode is None, "joint_mode", "needs a forecast")
    require(has_forecast or what_if is None, "what_if", "needs a forecast")
    require(what_if is None or attention is None, "attention", "cannot be combined with what_if")
    require(what_if is None or joint_mode is None, "joint_mode", "cannot be combined with what_if")
    drawn = forecast
    if forecast is not None and joint_mode is not None:
        drawn = forecast.joint_mode(joint_mode)
    forecasts: list[Forecast] = []
    if drawn is not None:
        forecasts.append(drawn)
    if what_if is not None:
        forecasts.append(what_if.forecast)
    if axes is None:
        axes = _new_axes(get_theme(theme), plain, width_mm)
    axes, view = open_scene(scenario, *forecasts, radius_m=radius_m, theme=theme, axes=axes)
    futures = future_rows(scenario, tracks)
    predicted = futures
    if drawn is not None and joint_mode is not None and tracks is None:
        predicted = predicted_rows(scenario, drawn)
    with_future = np.union1d(np.append(futures, scenario.focal), predicted)
    rows = visible_agents(scenario, view, with_future)
    draw_map(axes, view, scenario.map)
    draw_histories(axes, view, scenario, rows)
    draw_agents(axes, view, scenario, rows)
    draw_truth(axes, view, scenario, futures)
    overlay: list[Line2D] = []
    if what_if is not None:
        overlay += draw_what_if(axes, view, scenario, what_if)
    if attention is not None:
        overlay.append(draw_attention(axes, view, scenario, attention))
    draw_scale_bar(axes, view)
    if drawn is not None:  # last, because labels avoid other text
        draw_modes(axes, view, scenario, drawn, predicted, focus=attention is not None)
    if plain:
        return _figure_of(axes)
    small = 2 * view.radius * view.points_per_metre < SMALL_PANEL
    draw_caption(axes, view, scenario, forecast, joint_mode=joint_mode, what_if=what_if, small=small)
    if not small:
        shown = None if drawn is None else drawn.of(scenario.tracks.track_id[with_future])
        if shown is not None and attention is not None:
            shown = replace(shown, scale=None)  # no bands are drawn
        draw_legend(axes, view, scenario, rows, futures, shown, overlay)
    if not small and drawn is not None and drawn.probability.shape[1] > 1:
        draw_color_bar(axes, view)
    return _figure_of(axes)


def save_scene(figure: Figure, path: str | Path, *, dpi: int = 150) -> None:
    """Write ``figure`` atomically, in the format given by the suffix of ``path`` (png, pdf, svg …)."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(target) as unfinished:
        figure.savefig(unfinished, dpi=dpi, format=target.suffix[1:] or "png")


def plot_scenario(
    scenario: Scenario,
    forecast: Forecast | None = None,
    *,
    ax: Axes | None = None,
    theme: str = "light",
    **options: Any,
) -> Axes:
    """Draw a scenario on pyplot axes; shown by a notebook, or elsewhere by ``plt.show()``.

    Args:
        scenario, forecast, theme, options: as for :func:`draw_scene`.
        ax: where to draw; by default on a new pyplot figure.

    Returns: the axes drawn on, in the city frame (metres), to draw more on.
    """
    if ax is None:
        # Import late: pyplot keeps figures in a global list, which writing files and training must avoid.
        import matplotlib.pyplot as plt

        plain = options.get("plain", False)
        ax = _scene_axes(plt.figure(), get_theme(theme), plain, options.get("width_mm"))
    draw_scene(scenario, forecast, theme=theme, axes=ax, **options)
    return ax


def open_scene(
    scenario: Scenario,
    *forecasts: Forecast,
    radius_m: float | None = None,
    theme: str = "light",
    axes: Axes | None = None,
) -> tuple[Axes, View]:
    """Prepare empty axes for a scene and return them with their view; arguments as for :func:`draw_scene`."""
    for forecast in forecasts:
        same = forecast.scenario_id == scenario.scenario_id
        require(same, "forecast", f"is not of scenario {scenario.scenario_id}")
    if radius_m is None:
        centre, radius = fit(scenario, *forecasts)
        return _open_view(centre, radius, get_theme(theme), axes)
    require(radius_m > 0, "radius_m", f"must be above 0, is {radius_m}")
    return _open_view(focal_position(scenario), radius_m, get_theme(theme), axes)


def draw_lane_map(
    lane_map: LaneMap,
    *,
    title: str = "",
    frame: str = "",
    center: tuple[float, float] | None = None,
    radius_m: float | None = None,
    theme: str = "light",
    plain: bool = False,
    width_mm: float | None = None,
) -> Figure:
    """Draw a map alone from above with its directions, links and types: x right, y up, metres.

    Args:
        title: a line above the map.
        frame: description of the map's coordinates, for the line below the title.
        center, radius_m: centre and half the side of the drawn square; by default it fits the lanes, or the
            largest of several distant parts.
        theme, plain, width_mm: as for :func:`draw_scene`.

    Raises: DataError if there are no lanes, ``radius_m`` is not positive, or the theme is unknown.
    """
    require(len(lane_map) > 0, "map", "has no lanes")
    require(radius_m is None or radius_m > 0, "radius_m", f"must be above 0, is {radius_m}")
    parts = map_parts(lane_map)
    low, high = parts[0]
    middle = (low + high) / 2
    if len(parts) > 1 and center is None and radius_m is None:
        title += f" · the largest of {len(parts)} parts"
    if center is not None:
        middle = np.array(center)
    if radius_m is None:
        radius_m = max(MIN_RADIUS_M, MAP_MARGIN * float((high - low).max()) / 2)
    axes = _new_axes(get_theme(theme), plain, width_mm, above=SMALL_ABOVE)
    axes, view = _open_view(middle, radius_m, get_theme(theme).for_map, axes)
    draw_map(axes, view, lane_map)
    links = draw_links(axes, view, lane_map)
    draw_scale_bar(axes, view)
    if plain:
        return _figure_of(axes)
    if 2 * radius_m * view.points_per_metre >= SMALL_PANEL:
        draw_entries(axes, view, [*map_entries(view, lane_map), *links])
    x, y = middle.tolist()
    origin = f"middle at x = {x:.1f} m, y = {y:.1f} m"
    caption_line(axes, view, 0, " · ".join(filter(None, (frame, origin))), "subtitle")
    caption_line(axes, view, 1, title, "title")
    return _figure_of(axes)


def _open_view(
    centre: np.ndarray, radius: float, theme: Theme, axes: Axes | None = None
) -> tuple[Axes, View]:
    """Prepare axes, by default of a new figure, for the square around ``centre`` ``[2]``."""
    if axes is None:
        axes = _new_axes(theme)
    axes.apply_aspect()
    side = float(min(axes.bbox.width, axes.bbox.height)) * 72 / _figure_of(axes).dpi
    view = View(centre, radius, side / (2 * radius), theme)
    x, y = view.centre.tolist()
    axes.set_xlim(x - radius, x + radius)
    axes.set_ylim(y - radius, y + radius)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_facecolor(theme.background)
    axes.set_aspect("equal")
    axes.set_autoscale_on(False)
    for spine in axes.spines.values():
        spine.set(color=theme.frame, linewidth=0.8)
    return axes, view


def _figure_of(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes that were removed from their figure"
    return figure


def _new_axes(theme: Theme, plain: bool = False, width_mm: float | None = None, above: float = ABOVE) -> Axes:
    """Return axes for one scene on a new figure without a display."""
    figure = Figure()
    FigureCanvasAgg(figure)
    return _scene_axes(figure, theme, plain, width_mm, above)


def _scene_axes(
    figure: Figure, theme: Theme, plain: bool, width_mm: float | None, above: float = ABOVE
) -> Axes:
    """Give an empty ``figure`` its size, and axes for one scene with a caption of ``above`` inches."""
    width = WIDTH
    if width_mm is not None:
        enough = math.isfinite(width_mm) and width_mm >= MIN_WIDTH_MM
        require(enough, "width_mm", f"must be at least {MIN_WIDTH_MM:g}, is {width_mm:g}")
        width = width_mm / MM_PER_INCH
    border = PLAIN_BORDER if plain else BORDER
    side = width - 2 * border
    has_legend = not plain and 72 * side >= SMALL_PANEL
    if plain:
        above = border
    elif not has_legend:
        above = SMALL_ABOVE
    below = BELOW if has_legend else border
    height = below + side + above
    figure.set_size_inches(width, height)
    figure.set_facecolor(theme.paper)
    return figure.add_axes((border / width, below / height, side / width, side / height))


def predicted_rows(scenario: Scenario, forecast: Forecast) -> np.ndarray:
    """Return the rows of all tracks with a forecast: a joint mode consists of all, scored or not."""
    return np.flatnonzero(forecast.rows(scenario.tracks.track_id) >= 0)


def future_rows(scenario: Scenario, tracks: Sequence[str] | None = None) -> np.ndarray:
    """Return the rows of the tracks whose futures are drawn, see :func:`draw_scene`. Raises: KeyError."""
    if tracks is None:
        scored = scenario.tracks.category >= TrackCategory.SCORED
        scored[scenario.focal] = True
        return np.flatnonzero(scored)
    return scenario.tracks.indices(tracks)
