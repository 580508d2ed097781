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
from trajpred.forecast import Forecast
from trajpred.scenario import Scenario, TrackCategory
from trajpred.viz.agent_layer import draw_agents, draw_histories, shown_agents
from trajpred.viz.forecast_layer import draw_focal_modes, draw_other_modes, draw_probabilities, draw_truth
from trajpred.viz.furniture import draw_caption, draw_color_bar, draw_legend, draw_scale_bar, style_axes
from trajpred.viz.map_layer import draw_map
from trajpred.viz.view import View, frame

#: Inches; the scene is the square between the caption above and the legend below.
WIDTH, HEIGHT, BORDER, BELOW = 7.2, 8.1, 0.15, 0.64
#: A picture whose side is shorter than this, in points, is a panel among others.
SMALL_PANEL = 320.0


def draw_scene(
    scenario: Scenario,
    forecast: Forecast | None = None,
    *,
    tracks: Sequence[str] | None = None,
    radius_m: float | None = None,
    axes: Axes | None = None,
) -> Figure:
    """Draw a scenario from above in its city frame (x right, y up, metres), the focal agent at the centre.

    Args:
        forecast: futures of some of the scenario's tracks; None draws the scenario alone.
        tracks: ids of the tracks whose predicted and real futures are drawn; by default the focal and the
            scored ones. Those without a forecast or a future are drawn without it.
        radius_m: half the side of the square shown; by default what holds the focal agent's history, future
            and forecasts.
        axes: where to draw, for a picture of several scenes; by default a new figure without a display.
            Caption, legend and colour bar lie outside it: leave room above and below. Panels below
            4.4 inches get a shorter caption, no legend and no colour bar.

    Returns:
        The figure drawn on. Nothing global in matplotlib is touched, so this is safe while training.

    Raises:
        DataError: the forecast is of another scenario, or ``radius_m`` is not positive.
        KeyError: ``tracks`` names a track that is not in the scenario.
    """
    other = forecast is not None and forecast.scenario_id != scenario.scenario_id
    require(not other, "forecast", f"is not of scenario {scenario.scenario_id}")
    axes = _new_axes() if axes is None else axes
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes that were removed from their figure"
    axes.apply_aspect()
    side = float(min(axes.bbox.width, axes.bbox.height)) * 72 / figure.dpi
    view = frame(scenario, forecast, radius_m, side)
    style_axes(axes, view)
    rows = shown_agents(scenario, view)
    draw_map(axes, view, scenario.map)
    draw_histories(axes, view, scenario, rows)
    draw_agents(axes, view, scenario, rows)
    _draw_futures(axes, view, scenario, forecast, _chosen(scenario, tracks))
    draw_scale_bar(axes, view)
    small = side < SMALL_PANEL
    draw_caption(axes, scenario, forecast, small)
    if not small:
        draw_legend(axes, scenario, rows, forecast)
    if not small and forecast is not None:
        draw_color_bar(axes)
    return figure


def save_scene(figure: Figure, path: str | Path, *, dpi: int = 150) -> None:
    """Write ``figure`` in the format that the suffix of ``path`` names (png, pdf, svg …)."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=dpi, facecolor="white")


def _new_axes() -> Axes:
    figure = Figure(figsize=(WIDTH, HEIGHT), facecolor="white")
    FigureCanvasAgg(figure)
    side = WIDTH - 2 * BORDER
    return figure.add_axes((BORDER / WIDTH, BELOW / HEIGHT, side / WIDTH, side / HEIGHT))


def _chosen(scenario: Scenario, tracks: Sequence[str] | None) -> NDArray[np.int64]:
    """Rows of the tracks whose futures are drawn."""
    if tracks is None:
        judged = scenario.tracks.category >= TrackCategory.SCORED
        judged[scenario.focal] = True
        return np.flatnonzero(judged)
    return np.array([scenario.tracks.index(name) for name in tracks], np.int64)


def _draw_futures(
    axes: Axes, view: View, scenario: Scenario, forecast: Forecast | None, rows: NDArray[np.int64]
) -> None:
    """Truth and forecasts of the tracks ``rows``; the focal one stands out."""
    draw_truth(axes, scenario, rows)
    if forecast is None:
        return
    predicted = forecast.rows(scenario.tracks.track_id[rows])
    focal, told = rows == scenario.focal, predicted >= 0
    draw_other_modes(axes, forecast, predicted[told & ~focal])
    for row in predicted[told & focal].tolist():
        draw_focal_modes(axes, forecast, row)
        draw_probabilities(axes, view, scenario, forecast, row)
