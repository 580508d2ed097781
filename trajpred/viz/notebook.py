"""Scenarios in a notebook, or beside other plots."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from trajpred.forecast import Forecast
from trajpred.scenario import Scenario
from trajpred.viz.scene import HEIGHT, WIDTH, draw_scene, scene_axes
from trajpred.viz.style import theme_of


def plot_scenario(
    scenario: Scenario,
    forecast: Forecast | None = None,
    *,
    ax: Axes | None = None,
    theme: str = "light",
    **options: Any,
) -> Axes:
    """:func:`~trajpred.viz.draw_scene` for pyplot: a new figure of it shows itself, ``plt.show()`` elsewhere.

    Args:
        scenario, forecast, theme, options: as ``draw_scene`` takes them.
        ax: where to draw, its ``axes``; by default on a new pyplot figure.

    Returns:
        The axes drawn on, in the city frame (metres), to draw more on.
    """
    if ax is None:
        # Only here: pyplot keeps its figures in a global list, which drawing files and training must not.
        import matplotlib.pyplot as plt

        ax = scene_axes(plt.figure(figsize=(WIDTH, HEIGHT)), theme_of(theme))
    draw_scene(scenario, forecast, theme=theme, axes=ax, **options)
    return ax
