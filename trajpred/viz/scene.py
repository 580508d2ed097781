"""One scenario seen from above: the road, the agents, what is predicted and what really happened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.forecast import Attention, Forecast
from trajpred.scenario import Scenario, TrackCategory
from trajpred.viz.agent_layer import draw_agents, draw_histories, shown_agents
from trajpred.viz.attention_layer import draw_attention
from trajpred.viz.caption import draw_caption
from trajpred.viz.forecast_layer import (
    draw_bands,
    draw_focal_modes,
    draw_other_modes,
    draw_probabilities,
    draw_truth,
)
from trajpred.viz.furniture import draw_color_bar, draw_legend, draw_scale_bar, style_axes
from trajpred.viz.map_layer import draw_map
from trajpred.viz.style import Theme, theme_of
from trajpred.viz.view import View, fit_radius, frame
from trajpred.viz.what_if import WhatIf, draw_what_if

#: Inches; the scene is the square between the caption above and the legend below.
WIDTH, HEIGHT, BORDER, BELOW = 7.2, 8.24, 0.15, 0.64
#: A picture whose side is shorter than this, in points, is a panel among others.
SMALL_PANEL = 320.0


def draw_scene(
    scenario: Scenario,
    forecast: Forecast | None = None,
    *,
    tracks: Sequence[str] | None = None,
    radius_m: float | None = None,
    world: int | None = None,
    what_if: WhatIf | None = None,
    attention: Attention | None = None,
    theme: str = "light",
    axes: Axes | None = None,
) -> Figure:
    """Draw a scenario from above in its city frame (x right, y up, metres), the focal agent at the centre.

    Args:
        forecast: futures of some of the scenario's tracks; None draws the scenario alone.
        tracks: ids of the tracks whose predicted and real futures are drawn; by default the focal and the
            scored ones. Those without a forecast or a future are drawn without it.
        radius_m: half the side of the square shown; by default what holds the focal agent's history, future
            and forecasts.
        world: draw this possible future of the whole scene alone, the likeliest (0), the next one (1) …: one
            mode of everyone who is predicted. For forecasts of worlds, see :meth:`Forecast.world`; not
            together with ``what_if``, of which all modes are drawn.
        what_if: also draw what would be predicted for the focal agent if somebody were not there.
        attention: show from which lanes and agents the focal agent's token takes its information; not
            together with ``what_if``.
        theme: ``light`` for paper, ``dark`` for dark screens.
        axes: where to draw, for a picture of several scenes; by default a new figure without a display.
            Caption, legend and colour bar lie outside it, on the figure's own colour: leave room above and
            below. Panels below 4.4 inches get a shorter caption, no legend and no colour bar.

    Returns:
        The figure drawn on. Nothing global in matplotlib is touched, so this is safe while training.

    Raises:
        DataError: forecast or attention are of another scenario, the forecast has no such world,
            ``radius_m`` is not positive, or there is no such theme.
        KeyError: ``tracks`` names a track that is not in the scenario.
    """
    for name, given in (("world", world), ("what_if", what_if)):
        require(given is None or forecast is not None, name, "needs a forecast")
    require(what_if is None or attention is None, "attention", "is not drawn over what_if: one at a time")
    require(what_if is None or world is None, "world", "is not drawn together with what_if: one at a time")
    shown = forecast if forecast is None or world is None else forecast.world(world)
    if what_if is not None and radius_m is None:
        radius_m = max(fit_radius(scenario, one) for one in (shown, what_if.forecast))
    axes, view = open_scene(scenario, shown, radius_m=radius_m, theme=theme, axes=axes)
    rows = shown_agents(scenario, view)
    draw_map(axes, view, scenario.map)
    draw_histories(axes, view, scenario, rows)
    draw_agents(axes, view, scenario, rows)
    futures = with_futures(scenario, tracks)
    draw_truth(axes, view, scenario, futures)
    if shown is not None:
        # A world is one future of everyone who is predicted, judged or not.
        everyone = world is not None and tracks is None
        draw_modes(axes, view, scenario, shown, np.arange(len(scenario.tracks)) if everyone else futures)
    more = [draw_what_if(axes, view, scenario, what_if)] if what_if is not None else []
    if attention is not None:
        more.append(draw_attention(axes, view, scenario, attention, shown))
    draw_scale_bar(axes, view)
    small = 2 * view.radius * view.points_per_metre < SMALL_PANEL
    draw_caption(axes, view, scenario, forecast, world=world, what_if=what_if, small=small)
    if not small:
        draw_legend(axes, view, scenario, rows, shown, more)
    if not small and forecast is not None:
        draw_color_bar(axes, view)
    return figure_of(axes)


def save_scene(figure: Figure, path: str | Path, *, dpi: int = 150) -> None:
    """Write ``figure`` in the format that the suffix of ``path`` names (png, pdf, svg …)."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=dpi)


def open_scene(
    scenario: Scenario,
    forecast: Forecast | None = None,
    *,
    radius_m: float | None = None,
    theme: str = "light",
    axes: Axes | None = None,
) -> tuple[Axes, View]:
    """An empty scene to draw on, and what it shows. Arguments and errors are those of :func:`draw_scene`."""
    other = forecast is not None and forecast.scenario_id != scenario.scenario_id
    require(not other, "forecast", f"is not of scenario {scenario.scenario_id}")
    colors = theme_of(theme)
    axes = _new_axes(colors) if axes is None else axes
    axes.apply_aspect()
    side = float(min(axes.bbox.width, axes.bbox.height)) * 72 / figure_of(axes).dpi
    view = frame(scenario, forecast, radius_m, side, colors)
    style_axes(axes, view)
    return axes, view


def figure_of(axes: Axes) -> Figure:
    """The figure that ``axes`` are on."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes that were removed from their figure"
    return figure


def _new_axes(theme: Theme) -> Axes:
    figure = Figure(figsize=(WIDTH, HEIGHT))
    FigureCanvasAgg(figure)
    return scene_axes(figure, theme)


def scene_axes(figure: Figure, theme: Theme) -> Axes:
    """The place for one scene on a ``figure`` of ``WIDTH`` by ``HEIGHT`` inches."""
    figure.set_facecolor(theme.paper)
    side = WIDTH - 2 * BORDER
    return figure.add_axes((BORDER / WIDTH, BELOW / HEIGHT, side / WIDTH, side / HEIGHT))


def with_futures(scenario: Scenario, tracks: Sequence[str] | None = None) -> NDArray[np.int64]:
    """Rows of the tracks whose futures are drawn, see :func:`draw_scene`. Raises: KeyError."""
    if tracks is None:
        judged = scenario.tracks.category >= TrackCategory.SCORED
        judged[scenario.focal] = True
        return np.flatnonzero(judged)
    return np.array([scenario.tracks.index(name) for name in tracks], np.int64)


def draw_modes(
    axes: Axes,
    view: View,
    scenario: Scenario,
    forecast: Forecast,
    rows: NDArray[np.int64],
    labels: bool = True,
) -> None:
    """What is forecast of those of the tracks ``rows`` that are; the focal one stands out.

    Args:
        labels: write its probabilities beside its modes.
    """
    predicted = forecast.rows(scenario.tracks.track_id[rows])
    focal, told = rows == scenario.focal, predicted >= 0
    draw_other_modes(axes, view, forecast, predicted[told & ~focal])
    for row in predicted[told & focal].tolist():
        draw_bands(axes, view, scenario, forecast, row)
        draw_focal_modes(axes, view, forecast, row)
        if labels:
            draw_probabilities(axes, view, scenario, forecast, row)
