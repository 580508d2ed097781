"""Overlays on a picture of the focal agent: its attention, or its future without some road users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from trajpred.errors import require
from trajpred.forecast import Attention, Forecast
from trajpred.geometry import arc_length, direction, norm, points_along, unit_vector
from trajpred.scenario import Scenario
from trajpred.viz.agent_layer import agent_outlines
from trajpred.viz.forecast_layer import draw_labels, true_future
from trajpred.viz.map_layer import lane_line
from trajpred.viz.style import Layer
from trajpred.viz.view import View, add_lines, add_polygons, focal_position, percent

#: Senders with less than this fraction of the largest share are omitted.
MIN_STRENGTH = 0.12
#: Number of largest shares written in the picture.
MAX_LABELS = 6
#: Points that labels of shares avoid around the end of a mode, where its probability is written.
CLEAR = np.stack(np.meshgrid(np.linspace(-14, 14, 5), np.linspace(-8, 8, 5)), -1).reshape(-1, 2)
#: Dash and gap of modes without the removed road users (points).
WHAT_IF_DASHES = (0.0, (3.2, 1.5))


class Senders(NamedTuple):
    """The ``M`` visible senders that the focal agent attends to, by rising share."""

    share: np.ndarray  # [M] of the focal agent's attention
    strength: np.ndarray  # [M] relative to the largest share
    track: np.ndarray  # [M] row of the track, -1 for lane segments and crossings
    line: list[np.ndarray]  # [P, 2] each: the middle of the lane, or from the focal agent to the sending one


def draw_attention(
    axes: Axes, view: View, scenario: Scenario, attention: Attention, forecast: Forecast | None
) -> Line2D:
    """Draw the lanes and agents that the focal agent attends to, averaged over layers and heads.

    Width and opacity are proportional to the share. Labels keep clear of ``forecast``.

    Returns: the entry for the legend. Raises: DataError if ``attention`` is of another scenario.
    """
    senders = visible_senders(view, scenario, attention)
    lanes = senders.track < 0
    for chosen, scale, layer, gid in (
        (lanes, 1.0, Layer.HISTORY - 0.5, "attention-lanes"),
        (~lanes, 0.45, Layer.HISTORY, "attention-lines"),
    ):
        lines, strength = [senders.line[row] for row in np.flatnonzero(chosen)], senders.strength[chosen]
        widths = scale * (0.8 + 4.2 * strength)
        add_lines(
            axes, lines, layer, capstyle="butt", gid=gid, colors=_colors(view, strength), linewidths=widths
        )
    strength = senders.strength[~lanes]
    bodies, _ = agent_outlines(view, scenario, senders.track[~lanes])
    look = {"facecolors": "none", "edgecolors": _colors(view, strength), "linewidths": 0.8 + 1.8 * strength}
    add_polygons(axes, bodies, Layer.AGENT + 0.5, gid="attention-agents", **look)
    focal = view.to_paper(focal_position(scenario))
    outlines = [view.to_paper(body) for body in bodies]
    obstacles = np.concatenate((focal[None], *outlines, *_future_points(view, scenario, forecast)))
    _draw_shares(axes, view, senders, outlines, focal, obstacles)
    _draw_totals(axes, view, scenario, attention)
    color = view.theme.attention
    return Line2D([], [], color=color, linewidth=3.5, alpha=0.7, solid_capstyle="butt", label="attention")


def visible_senders(view: View, scenario: Scenario, attention: Attention) -> Senders:
    """Return the senders to the focal agent that touch ``view`` and have a share large enough to draw."""
    same = attention.scenario_id == scenario.scenario_id
    require(same, "attention", f"is not of scenario {scenario.scenario_id}")
    share = attention.shares(scenario.focal_id).astype(np.float64)
    strength, tracks = share / max(float(share.max()), 1e-9), scenario.tracks
    agents, centre = [tracks.index(name) for name in attention.track_id.tolist()], focal_position(scenario)
    track = np.array([*agents, *[-1] * len(attention.lane)], np.int64)
    line = [np.stack((centre, end)) for end in tracks.position[agents, scenario.last_seen[agents]]]
    line += [lane_line(scenario.map, row) for row in attention.lane.tolist()]
    visible = np.array([view.touches(one) for one in line], np.bool_)
    rows = np.flatnonzero(visible & (strength >= MIN_STRENGTH))
    rows = rows[np.argsort(share[rows], kind="stable")]
    return Senders(share[rows], strength[rows], track[rows], [line[row] for row in rows.tolist()])


def _colors(view: View, strength: np.ndarray) -> np.ndarray:
    """Return RGBA ``[M, 4]`` with opacity proportional to ``strength``."""
    colors = np.tile(to_rgba(view.theme.attention), (len(strength), 1))
    colors[:, 3] = 0.12 + 0.7 * strength
    return colors


def _draw_totals(axes: Axes, view: View, scenario: Scenario, attention: Attention) -> None:
    """Write the shares of all agents and of all lanes at the lower right; nothing if both are 0."""
    share = attention.shares(scenario.focal_id).astype(np.float64)
    agents, lanes = (float(part.sum()) for part in np.split(share, [len(attention.track_id)]))
    total = agents + lanes  # rounded shares sum to 1 only approximately
    if not total:
        return
    axes.annotate(
        f"attention: {percent(agents / total)} agents, {percent(lanes / total)} lanes", (1, 0), (-10, 10),
        xycoords="axes fraction", textcoords="offset points", ha="right", fontsize=7.5,
        color=view.theme.attention, zorder=Layer.LABEL, gid="attention-total",
        path_effects=[withStroke(linewidth=2.0, foreground=view.theme.halo)],
    )  # fmt: skip


def _draw_shares(
    axes: Axes,
    view: View,
    senders: Senders,
    outlines: list[np.ndarray],
    focal: np.ndarray,
    obstacles: np.ndarray,
) -> None:
    """Write the largest shares beside their senders, away from the focal agent."""
    rows = range(len(senders.share))[::-1][:MAX_LABELS]
    texts = [percent(float(senders.share[row])) for row in rows]
    agents = np.flatnonzero(senders.track >= 0).tolist()
    outline = dict(zip(agents, outlines, strict=True))
    anchors = [
        _agent_anchor(view, outline[row], focal) if row in outline else _lane_anchor(view, senders.line[row])
        for row in rows
    ]
    points = np.array(anchors).reshape(-1, 2)
    look: dict[str, Any] = {"fontweight": "bold", "color": view.theme.attention, "gid": "attention-share"}
    draw_labels(axes, view, texts, points, direction(points - focal), obstacles, **look)


def _agent_anchor(view: View, outline: np.ndarray, focal: np.ndarray) -> np.ndarray:
    """Return the side of an outline on paper away from the focal agent, or the near one if it is not visible.

    Of the focal agent itself, the right one.
    """
    centre = outline.mean(axis=0)
    ray = unit_vector(direction(centre - focal))
    far, near = centre + np.array([[1.0], [-1.0]]) * ray * float(((outline - centre) @ ray).max())
    return far if view.contains(view.to_city(far)) else near


def _lane_anchor(view: View, line: np.ndarray) -> np.ndarray:
    """Return the visible point on paper nearest to the middle of the lane."""
    # From the middle outwards, to either side.
    offset = np.linspace(0.0, 0.5, 12).repeat(2) * np.tile([1.0, -1.0], 12)
    points = points_along(line, (0.5 + offset) * float(arc_length(line)[-1]))
    inside = view.contains(points, margin=-view.metres(10.0))
    return view.to_paper(points[int(inside.argmax())])


def _future_points(view: View, scenario: Scenario, forecast: Forecast | None) -> list[np.ndarray]:
    """Return points on paper of the focal agent's futures and of the labels at their ends."""
    lines = [true_future(scenario, scenario.focal)]
    if forecast is not None:
        lines += [
            line for modes in forecast.trajectory[forecast.track_id == scenario.focal_id] for line in modes
        ]
    paper = [view.to_paper(line) for line in lines if len(line)]
    return [line[::4] for line in paper] + [line[-1] + CLEAR for line in paper]


@dataclass(frozen=True)
class WhatIf:
    """The ``forecast`` of the same scenario without the tracks ``removed``."""

    removed: tuple[str, ...]
    forecast: Forecast

    @property
    def name(self) -> str:
        """Name for the legend, with long ids truncated and long lists abbreviated."""
        short = [name if len(name) <= 10 else name[:8] for name in self.removed]
        return "without " + (", ".join(short) if len(short) < 3 else f"{short[0]} and {len(short) - 1} more")

    def describe(self, scenario: Scenario, original: Forecast) -> str:
        """Describe how far the focal agent's mean future differs from the ``original`` forecast."""
        shift = mean_shift(original, self.forecast, scenario.focal_id)
        return f"{self.name}: mean future {shift.mean():.2f} m away, {shift[-1]:.2f} m at the end"


def mean_shift(one: Forecast, other: Forecast, track_id: str) -> np.ndarray:
    """Return the distance ``[F]`` (metres) between a track's mean futures in two forecasts.

    The mean weights modes by probability; individual modes have no counterpart in another forecast.

    Raises: DataError if a forecast does not contain the track.
    """
    rows = [(forecast, _forecast_row(forecast, track_id)) for forecast in (one, other)]
    means = [np.tensordot(f.probability[row], f.trajectory[row], axes=1) for f, row in rows]
    return norm(means[1] - means[0])


def _forecast_row(forecast: Forecast, track_id: str) -> int:
    row = int(forecast.rows(np.array([track_id]))[0])
    require(row >= 0, "forecast", f"does not contain track {track_id!r}")
    return row


def draw_what_if(axes: Axes, view: View, scenario: Scenario, what_if: WhatIf) -> Line2D:
    """Draw the focal agent's other modes as dashed lines, and the removed agents as hollow outlines.

    Returns: the entry for the legend.

    Raises: DataError if the forecast lacks the focal track; KeyError for an unknown removed track.
    """
    color = view.theme.what_if
    lines = what_if.forecast.trajectory[_forecast_row(what_if.forecast, scenario.focal_id)]
    # Thinner than the original modes and with open ends, so that both stay visible where they agree.
    look: dict[str, Any] = {"colors": color, "linewidths": 1.1, "linestyles": [WHAT_IF_DASHES]}
    add_lines(axes, lines, Layer.TRUTH, gid="what-if-modes", **look)
    ring: dict[str, Any] = {"facecolors": "none", "edgecolors": color, "linewidths": 1.3, "zorder": Layer.END}
    axes.scatter(lines[:, -1, 0], lines[:, -1, 1], s=38, **ring)
    rows = np.array([scenario.tracks.index(name) for name in what_if.removed], np.int64)
    bodies, _ = agent_outlines(view, scenario, rows[scenario.last_seen[rows] >= 0])
    look = {"facecolors": view.theme.ground, "edgecolors": color, "linestyles": [(0.0, (2.2, 1.1))]}
    add_polygons(axes, bodies, Layer.FOCAL_AGENT, linewidths=1.3, gid="removed", **look)
    return Line2D([], [], color=color, linewidth=1.1, linestyle=WHAT_IF_DASHES, label=what_if.name)
