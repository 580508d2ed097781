"""From whom the focal agent's token takes its information: lanes coloured, agents ringed and joined to it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.forecast import Attention, Forecast
from trajpred.lane_map import LaneMap
from trajpred.scenario import Scenario
from trajpred.viz.agent_layer import outlines
from trajpred.viz.forecast_layer import percent
from trajpred.viz.labels import place_labels, text_size
from trajpred.viz.shapes import Floats, arc_length, points_along, same_direction
from trajpred.viz.style import Layer
from trajpred.viz.view import View, focal_centre

#: Who gives less than this part of what the strongest gives is not drawn: dozens of hairlines say nothing.
FAINTEST_PART = 0.12
#: So many of the strongest in view get their share in writing.
LABELS = 6
LABEL_SIZE = 7.0
#: Points that labels keep clear of around the end of a mode, where its own label stands.
CLEAR = np.stack(np.meshgrid(np.linspace(-14, 14, 5), np.linspace(-8, 8, 5)), -1).reshape(-1, 2)


class Heard(NamedTuple):
    """Whom the focal agent hears in a view, by rising share.

    Attributes:
        share: ``[M]`` of what its token takes in; strength: ``[M]`` the same, the strongest being 1.
        track: ``[M]`` row of the track, -1 for a lane segment or crossing.
        line: of a lane its centreline, of an agent the straight line from the focal one, ``[P, 2]`` each.
    """

    share: Floats
    strength: Floats
    track: NDArray[np.int64]
    line: list[Floats]


def draw_attention(
    axes: Axes, view: View, scenario: Scenario, attention: Attention, forecast: Forecast | None
) -> Line2D:
    """Draw from whom the focal agent takes its information, averaged over layers and heads.

    Width and opacity are proportional to the share, the strongest one being full. ``forecast`` is what else
    is drawn, so that labels keep clear of it.

    Returns: its line of the legend. Raises: DataError if ``attention`` is of another scenario.
    """
    heard = heard_in(view, scenario, attention)
    lanes = heard.track < 0
    for chosen, layer in ((lanes, Layer.HISTORY - 0.5), (~lanes, Layer.HISTORY)):
        _draw_lines(axes, view, heard, np.flatnonzero(chosen), layer)
    rings, _ = outlines(view, scenario, heard.track[~lanes])
    ringed = PolyCollection(
        rings,
        facecolors="none",
        edgecolors=_colors(view, heard.strength[~lanes]),
        linewidths=0.8 + 1.8 * heard.strength[~lanes],
        zorder=Layer.AGENT + 0.5,
        gid="attention-agents",
    )
    axes.add_collection(ringed, autolim=False)
    taken = [*(view.to_paper(ring) for ring in rings), *_futures(view, scenario, forecast)]
    _draw_shares(axes, view, heard, np.concatenate((np.zeros((1, 2)), *taken)))
    _draw_total(axes, view, *_totals(scenario, attention))
    color = view.theme.attention
    return Line2D([], [], color=color, linewidth=3.5, alpha=0.7, solid_capstyle="butt", label="attention")


def heard_in(view: View, scenario: Scenario, attention: Attention) -> Heard:
    """Whom the focal agent hears, of those that touch ``view`` and give enough to be seen."""
    same = attention.scenario_id == scenario.scenario_id
    require(same, "attention", f"is not of scenario {scenario.scenario_id}")
    share = attention.shares(scenario.focal_id).astype(np.float64)
    strength, tracks = share / max(float(share.max()), 1e-9), scenario.tracks
    agents, centre = [tracks.index(name) for name in attention.track_id.tolist()], focal_centre(scenario)
    track = np.array([*agents, *[-1] * len(attention.lane)], np.int64)
    place = tracks.position[agents, scenario.last_seen[agents]]
    line = [np.stack((centre, end)) for end in place]
    line += [lane_line(scenario.map, row) for row in attention.lane.tolist()]
    seen = np.array([view.touches(one) for one in line], np.bool_)
    rows = np.flatnonzero(seen & (strength >= FAINTEST_PART))
    rows = rows[np.argsort(share[rows], kind="stable")]
    return Heard(share[rows], strength[rows], track[rows], [line[row] for row in rows.tolist()])


def lane_line(lanes: LaneMap, row: int) -> Floats:
    """``[P, 2]`` along the middle of a lane segment, or, counted on, of a crossing."""
    if row < len(lanes):
        return lanes.centerline[row][:, :2]
    one, two = (edge[row - len(lanes)][:, :2] for edge in (lanes.crossing_edge1, lanes.crossing_edge2))
    middle: Floats = (one[[0, -1]] + same_direction(one, two)[[0, -1]]) / 2
    return middle


def _draw_lines(axes: Axes, view: View, heard: Heard, rows: NDArray[np.int64], layer: float) -> None:
    of_lanes = layer < Layer.HISTORY
    lines = LineCollection(
        [heard.line[row] for row in rows.tolist()],
        colors=_colors(view, heard.strength[rows]),
        linewidths=(0.8 + 4.2 * heard.strength[rows]) * (1.0 if of_lanes else 0.45),
        capstyle="butt",
        zorder=layer,
        gid="attention-lanes" if of_lanes else "attention-lines",
    )
    axes.add_collection(lines, autolim=False)


def _colors(view: View, strength: Floats) -> Floats:
    """``[M, 4]``: the stronger, the less see-through."""
    colors = np.tile(to_rgba(view.theme.attention), (len(strength), 1))
    colors[:, 3] = 0.12 + 0.7 * strength
    return colors


def _totals(scenario: Scenario, attention: Attention) -> tuple[float, float]:
    """What the focal agent takes in from all agents, and from all lanes."""
    share = attention.shares(scenario.focal_id).astype(np.float64)
    agents, lanes = np.split(share, [len(attention.track_id)])
    return float(agents.sum()), float(lanes.sum())


def _draw_total(axes: Axes, view: View, agents: float, lanes: float) -> None:
    """Write how much comes from all agents, and from all lanes, at the lower right; nothing if none does."""
    total = agents + lanes  # rounded shares sum to 1 only nearly
    if not total:
        return
    text = axes.annotate(
        f"attention: {percent(agents / total)} agents, {percent(lanes / total)} lanes",
        (1, 0),
        (-10, 10),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        fontsize=7.5,
        color=view.theme.attention,
        zorder=Layer.LABEL,
        gid="attention-total",
    )
    text.set_path_effects([withStroke(linewidth=2.0, foreground=view.theme.halo)])


def _draw_shares(axes: Axes, view: View, heard: Heard, obstacles: Floats) -> None:
    """Write the share of the strongest beside them."""
    rows = np.arange(len(heard.share))[::-1][:LABELS].tolist()
    texts = [percent(float(heard.share[row])) for row in rows]
    anchors = np.array([_anchor(view, heard.line[row], heard.track[row] >= 0) for row in rows]).reshape(-1, 2)
    size = np.array([text_size(text, 1.15 * LABEL_SIZE) for text in texts]).reshape(-1, 2)
    away = np.arctan2(anchors[:, 1], anchors[:, 0])  # outwards from the focal agent
    centres = place_labels(anchors, away, size, obstacles)
    for text, anchor, centre in zip(texts, anchors, centres, strict=True):
        label = axes.annotate(
            text,
            xy=tuple(view.centre + anchor / view.points_per_metre),
            xytext=tuple(centre - anchor),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=LABEL_SIZE,
            fontweight="bold",
            color=view.theme.attention,
            zorder=Layer.LABEL,
            gid="attention-share",
        )
        label.set_path_effects([withStroke(linewidth=2.0, foreground=view.theme.halo)])


def _anchor(view: View, line: Floats, agent: bool) -> Floats:
    """Where on paper a share belongs: at the agent, or at the point in view nearest to the lane's middle."""
    if agent:
        return view.to_paper(line[-1])
    length = float(arc_length(line)[-1])
    # From the middle outwards, to either side.
    away = np.linspace(0.0, 0.5, 12).repeat(2) * np.tile([1.0, -1.0], 12)
    points = points_along(line, (0.5 + away) * length)
    inside = view.holds(points, margin=-view.metres(10.0))
    return view.to_paper(points[int(inside.argmax())])


def _futures(view: View, scenario: Scenario, forecast: Forecast | None) -> list[Floats]:
    """Points on paper that shares should not cover: the focal agent's futures and their labels."""
    now, row = scenario.num_observed, scenario.focal
    lines = [scenario.tracks.position[row, now:][scenario.tracks.valid[row, now:]]]
    if forecast is not None:
        lines += [
            mode for modes in forecast.trajectory[forecast.track_id == scenario.focal_id] for mode in modes
        ]
    paper = [view.to_paper(line) for line in lines if len(line)]
    return [line[::4] for line in paper] + [line[-1] + CLEAR for line in paper]
