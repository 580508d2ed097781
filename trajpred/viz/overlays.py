"""Overlays on a picture of the focal agent: its attention, or its future without some road users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from trajpred.data.forecast import Attention, Forecast
from trajpred.data.geometry import norm
from trajpred.data.scenario import Scenario
from trajpred.errors import require
from trajpred.viz.agent_layer import agent_outlines
from trajpred.viz.map_layer import lane_line
from trajpred.viz.style import PROBABILITY_NORM, Layer
from trajpred.viz.view import View, add_lines, add_polygons, focal_position, percent

#: Senders with less than this fraction of the largest share are omitted.
MIN_STRENGTH = 0.12
#: Width (points) of modes without the removed road users: wider than the original modes with borders.
RIBBON_WIDTH = 6.5
#: Opacity of such a mode at probability 0; at probability 1 it is opaque.
WEAKEST_RIBBON = 0.15
#: Dash and gap of the outlines of removed road users (points).
REMOVED_DASHES = (0.0, (2.2, 1.1))
#: Line width of these outlines (points).
REMOVED_WIDTH = 1.6


def draw_attention(axes: Axes, view: View, scenario: Scenario, attention: Attention) -> Line2D:
    """Draw the lanes and agents that the focal agent attends to, averaged over layers and heads.

    Width and opacity are proportional to the share.

    Returns: the entry for the legend. Raises: DataError if ``attention`` is from another scenario.
    """
    same = attention.scenario_id == scenario.scenario_id
    require(same, "attention", f"is not of scenario {scenario.scenario_id}")
    share = attention.shares(scenario.focal_id).astype(np.float64)
    strength = share / max(float(share.max()), 1e-9)
    A = len(attention.track_id)
    senders = scenario.tracks.indices(attention.track_id)
    lines = _attention_lines(scenario, attention, senders)
    in_view = [view.touches(line) for line in lines]
    drawn = (strength >= MIN_STRENGTH) & in_view
    rows = np.argsort(strength, kind="stable")  # the largest share on top
    agents = rows[drawn[rows] & (rows < A)]
    lanes = rows[drawn[rows] & (rows >= A)]
    add_lines(
        axes,
        [lines[row] for row in lanes.tolist()],
        Layer.HISTORY - 0.5,
        capstyle="butt",
        gid="attention-lanes",
        colors=_colors(view, strength[lanes]),
        linewidths=0.8 + 4.2 * strength[lanes],
    )
    add_lines(
        axes,
        [lines[row] for row in agents.tolist()],
        Layer.HISTORY,
        capstyle="butt",
        gid="attention-lines",
        colors=_colors(view, strength[agents]),
        linewidths=0.45 * (0.8 + 4.2 * strength[agents]),
    )
    bodies, _ = agent_outlines(view, scenario, senders[agents])
    add_polygons(
        axes,
        bodies,
        Layer.AGENT + 0.5,
        facecolors="none",
        gid="attention-agents",
        edgecolors=_colors(view, strength[agents]),
        linewidths=0.8 + 1.8 * strength[agents],
    )
    _draw_totals(axes, view, float(share[:A].sum()), float(share[A:].sum()))
    color = view.theme.attention
    return Line2D([], [], color=color, linewidth=3.5, alpha=0.7, solid_capstyle="butt", label="attention")


def _attention_lines(scenario: Scenario, attention: Attention, senders: np.ndarray) -> list[np.ndarray]:
    """Return a line for each sender: from the focal agent to agents, and the middle lines of lanes."""
    start = focal_position(scenario)
    ends = scenario.tracks.position[senders, scenario.last_seen[senders]]
    to_agents = [np.stack((start, end)) for end in ends]
    lanes = [lane_line(scenario.map, row) for row in attention.lane.tolist()]
    return to_agents + lanes


def _colors(view: View, strength: np.ndarray) -> np.ndarray:
    """Return RGBA ``[M, 4]`` with opacity proportional to ``strength``."""
    return to_rgba_array([view.theme.attention] * len(strength), 0.12 + 0.7 * strength)


def _draw_totals(axes: Axes, view: View, agents: float, lanes: float) -> None:
    """Write the shares of all agents and of all lanes at the lower right; nothing if both are 0."""
    total = agents + lanes  # rounded shares sum to 1 only approximately
    if not total:
        return
    axes.annotate(
        f"attention: {percent(agents / total)} agents, {percent(lanes / total)} lanes",
        xy=(1, 0),
        xytext=(-10, 10),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        fontsize=7.5,
        color=view.theme.attention,
        zorder=Layer.LABEL,
        gid="attention-total",
        path_effects=[withStroke(linewidth=2.0, foreground=view.theme.halo)],
    )


@dataclass(frozen=True)
class WhatIf:
    """The ``forecast`` of a scenario without the tracks ``removed``."""

    removed: tuple[str, ...]
    forecast: Forecast

    @property
    def name(self) -> str:
        """Name for the caption, with long ids truncated and long lists abbreviated."""
        short = [name if len(name) <= 10 else name[:8] for name in self.removed]
        if len(short) > 2:
            return f"without {short[0]} and {len(short) - 1} more"
        return f"without {', '.join(short)}"

    def describe(self, scenario: Scenario, original: Forecast) -> str:
        """Describe how far the focal agent's mean future differs from the ``original`` forecast."""
        shift = mean_shift(original, self.forecast, scenario.focal_id)
        return f"{self.name}: mean future {shift.mean():.2f} m away, {shift[-1]:.2f} m at the end"


def mean_shift(original: Forecast, changed: Forecast, track_id: str) -> np.ndarray:
    """Return the distance ``[F]`` (metres) between a track's mean futures in two forecasts.

    The mean weights modes by probability; individual modes have no counterpart in another forecast.

    Raises: DataError if a forecast does not contain the track.
    """
    return norm(_mean_future(changed, track_id) - _mean_future(original, track_id))


def _mean_future(forecast: Forecast, track_id: str) -> np.ndarray:
    """Return the mean ``[F, 2]`` of a track's modes, weighted by probability."""
    row = _forecast_row(forecast, track_id)
    return np.tensordot(forecast.probability[row], forecast.trajectory[row], axes=1)


def _forecast_row(forecast: Forecast, track_id: str) -> int:
    row = int(forecast.rows(np.array([track_id]))[0])
    require(row >= 0, "forecast", f"does not contain track {track_id!r}")
    return row


def draw_what_if(axes: Axes, view: View, scenario: Scenario, what_if: WhatIf) -> list[Line2D]:
    """Draw the focal agent's modes without the removed agents as ribbons, and the outlines of these agents.

    Where both forecasts agree, the original mode lies on a ribbon.

    Returns: entries for the legend.

    Raises: DataError if the forecast lacks the focal track; KeyError for an unknown removed track.
    """
    color = view.theme.what_if
    row = _forecast_row(what_if.forecast, scenario.focal_id)
    probability = what_if.forecast.probability[row]
    order = np.argsort(probability, kind="stable")
    lines = what_if.forecast.trajectory[row, order]
    strength = np.asarray(PROBABILITY_NORM(probability[order]), np.float64)
    ribbons = to_rgba_array([color] * len(lines), WEAKEST_RIBBON + (1 - WEAKEST_RIBBON) * strength)
    add_lines(
        axes,
        lines,
        Layer.MODES - 0.5,
        colors=ribbons,
        linewidths=RIBBON_WIDTH,
        capstyle="round",
        gid="what-if-modes",
    )
    axes.scatter(
        lines[:, -1, 0],
        lines[:, -1, 1],
        s=70,
        facecolors="none",
        edgecolors=color,
        linewidths=1.3,
        zorder=Layer.END,
    )
    removed_rows = scenario.tracks.indices(what_if.removed)
    visible_rows = removed_rows[scenario.last_seen[removed_rows] >= 0]
    bodies, _ = agent_outlines(view, scenario, visible_rows)
    add_polygons(
        axes,
        bodies,
        Layer.FOCAL_AGENT,
        facecolors=view.theme.ground,  # covers the agent
        edgecolors=color,
        linestyles=[REMOVED_DASHES],
        linewidths=REMOVED_WIDTH,
        gid="removed",
    )
    without = "without it" if len(what_if.removed) == 1 else "without them"
    dashed: dict[str, Any] = {"linestyle": REMOVED_DASHES, "linewidth": REMOVED_WIDTH}
    return [
        Line2D([], [], color=color, label="removed road user", **dashed),
        Line2D([], [], color=color, linewidth=RIBBON_WIDTH, alpha=0.5, label=f"future {without}"),
    ]
