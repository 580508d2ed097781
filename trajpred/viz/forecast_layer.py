"""Draw futures: the modes of a forecast, and the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import shapely
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array
from matplotlib.patheffects import withStroke

from trajpred.data.forecast import Forecast
from trajpred.data.geometry import arc_length, norm, points_along, unit_vector
from trajpred.data.scenario import Scenario
from trajpred.features.agents import last_poses
from trajpred.viz.agent_layer import DRAWN_SIZES, agent_outlines, is_lost, roles
from trajpred.viz.labels import boxes_of, boxes_on, place_labels, text_size
from trajpred.viz.style import PROBABILITY_NORM, Layer, Role
from trajpred.viz.view import View, add_lines, add_polygons, percent

#: Font size of labels (points).
LABEL_SIZE = 7.0
#: Line widths (points) of the focal agent's modes with probability 0 and 1, interpolated on the scale of the
#: colours.
FOCAL_WIDTHS = (1.3, 3.0)
#: Line widths of other agents' modes.
OTHER_WIDTHS = (0.6, 1.4)
#: Line widths if every agent has one mode: for agents that do not meet the focal agent, and those that do.
SINGLE_WIDTHS = (1.1, 2.0)
#: Colour, as a probability, for the only mode of an agent that does not meet the focal agent.
QUIET = 0.03
#: Futures meet where they come within this distance (metres) …
MEETING_M = 4.0
#: … within this time (seconds).
MEETING_S = 2.0
#: Width added (points) and opacity of the border that separates the focal agent's modes from each other and
#: from agents.
FOCAL_BORDER = (1.4, 0.9)
#: Border of other agents' modes.
OTHER_BORDER = (0.9, 0.5)
#: Opacity of other agents' modes relative to the focal agent's.
OTHER_OPACITY = 0.5
#: Opacity of other agents' modes beside the focal agent's attention.
FADED = 0.15
#: Dot and gap between an agent that was last seen earlier and its future, in multiples of the line width.
LINK_DOTS = (0.0, (1.0, 1.6))
#: Opacity of a band with probability 1.
BAND_OPACITY = 0.34
#: Modes whose ends are closer than this (points) share a label, since their markers merge as well.
SAME_END = 3.0
#: Half the side of the star at the end of the truth (points).
STAR_HALF = 5.0
#: A Laplace distribution holds this share within ``BAND`` scales of its centre: P(|x| < w) = 1 - exp(-w / b).
BAND_SHARE = 0.8
BAND = -float(np.log(1 - BAND_SHARE))
#: Margin around a band (metres), so that its parts join.
SEAM_M = 0.02
#: Length of a band's rounded end beyond its mode, relative to its half width; number of points.
CAP, CAP_POINTS = 0.35, 13


def draw_modes(
    axes: Axes,
    view: View,
    scenario: Scenario,
    forecast: Forecast,
    rows: np.ndarray,
    *,
    labels: bool = True,
    steps: int | None = None,
    focus: bool = False,
) -> None:
    """Draw the modes of the predicted tracks among ``rows``; the focal agent's with bands and ``labels``.

    Several modes are coloured by probability. For a single mode, such as a joint mode, all have one
    probability: the focal agent and those it meets have their own colours, and the others are pale. Futures
    shorter than their road user have no label, and are drawn only for the focal agent.

    Args:
        steps: draw only this many steps of the futures.
        focus: omit bands and fade other agents' modes, to highlight other drawings of the focal agent.
    """
    predicted = forecast.rows(scenario.tracks.track_id[rows])
    is_focal = rows == scenario.focal
    is_predicted = predicted >= 0
    others = predicted[is_predicted & ~is_focal]
    has_several = forecast.probability.shape[1] > 1
    shown = forecast if steps is None else forecast.first(steps)
    short = is_short(scenario, forecast)
    _draw_links(axes, view, scenario, shown, rows[is_predicted])
    if has_several:
        _draw_other_modes(axes, view, shown, others, short, FADED if focus else OTHER_OPACITY)
    else:
        others = others[~short[others, 0]]
        meeting = meeting_rows(scenario, forecast, others)[: len(view.theme.partners)]
        _draw_single_modes(axes, view, shown, others, meeting)
    for row in predicted[is_predicted & is_focal].tolist():
        if forecast.scale is not None and not focus:
            _draw_bands(axes, view, scenario, shown, row)
        _draw_focal_modes(axes, view, shown, row)
        if labels and has_several:
            _draw_probabilities(axes, view, scenario, shown, row, short[row])


def color_values(forecast: Forecast) -> np.ndarray:
    """Return the probabilities ``[B, K]`` shown by colours: 1 if there is nothing to distinguish."""
    if forecast.probability.shape[1] > 1:
        return forecast.probability
    return np.ones_like(forecast.probability)


def meeting_rows(scenario: Scenario, forecast: Forecast, rows: np.ndarray) -> np.ndarray:
    """Return which of the forecast's ``rows`` meet the focal agent with their only mode, nearest first.

    Two moving road users meet where they pass within :data:`MEETING_M` of one place, at most
    :data:`MEETING_S` apart. Empty if the focal agent is not predicted.
    """
    [focal] = forecast.rows(np.array([scenario.focal_id]))
    if focal < 0:
        return rows[:0]
    path = forecast.trajectory[:, 0]
    F = path.shape[1]
    later = np.abs(np.arange(F)[:, None] - np.arange(F)) * scenario.step_s
    distance = norm(path[rows][:, :, None] - path[focal])
    nearest = np.where(later <= MEETING_S, distance, np.inf).min(axis=(1, 2))
    moves = norm(path[rows, -1] - path[rows, 0]) > MEETING_M / 2
    order = np.argsort(nearest, kind="stable")
    return rows[order[(nearest <= MEETING_M)[order] & moves[order]]]


def _draw_links(axes: Axes, view: View, scenario: Scenario, forecast: Forecast, rows: np.ndarray) -> None:
    """Connect those of ``rows`` that were last seen earlier to the start of their likeliest mode."""
    lost = rows[is_lost(scenario)[rows]]
    agent = forecast.rows(scenario.tracks.track_id[lost])
    likeliest = forecast.probability[agent].argmax(axis=1)
    starts = last_poses(scenario, lost).position
    ends = forecast.trajectory[agent, likeliest, 0]
    links = np.stack((starts, ends), axis=1)
    look: dict[str, Any] = {"colors": view.theme.muted, "linewidths": 0.9, "linestyles": [LINK_DOTS]}
    add_lines(axes, links, Layer.OTHER_MODES, gid="links", **look)


def _draw_bands(axes: Axes, view: View, scenario: Scenario, forecast: Forecast, row: int) -> None:
    order = np.argsort(forecast.probability[row], kind="stable")
    probability = color_values(forecast)[row, order]
    colors = view.theme.mode_colors(probability)
    colors[:, 3] = BAND_OPACITY * np.asarray(PROBABILITY_NORM(probability))
    outlines = band_outlines(scenario, forecast, row)
    sorted_outlines = [outlines[mode] for mode in order.tolist()]
    add_polygons(axes, sorted_outlines, Layer.BAND, facecolors=colors, edgecolors="none", gid="bands")


def _draw_focal_modes(axes: Axes, view: View, forecast: Forecast, row: int) -> None:
    """Draw the K modes of the forecast's ``row``, the likeliest on top: stronger, wider, with end markers."""
    order = np.argsort(forecast.probability[row], kind="stable")
    lines = forecast.trajectory[row, order]
    probability = color_values(forecast)[row, order]
    colors = view.theme.mode_colors(probability)
    widths = _line_widths(probability, FOCAL_WIDTHS)
    look = _with_borders(view, colors, widths, FOCAL_BORDER)
    add_lines(axes, np.repeat(lines, 2, axis=0), Layer.MODES, capstyle="round", gid="focal-modes", **look)
    axes.scatter(
        lines[:, -1, 0],
        lines[:, -1, 1],
        s=26,
        c=to_rgba_array(colors, 1.0),
        edgecolors=view.theme.halo,
        linewidths=0.7,
        zorder=Layer.END,
    )


def _draw_other_modes(
    axes: Axes, view: View, forecast: Forecast, rows: np.ndarray, short: np.ndarray, opacity: float
) -> None:
    """Draw the K modes of the forecast's ``rows`` in these colours, thin and faint; omit ``short`` ones."""
    probability = forecast.probability[rows][~short[rows]]
    order = np.argsort(probability, kind="stable")
    lines = forecast.trajectory[rows][~short[rows]][order]
    probability = probability[order]
    colors = view.theme.mode_colors(probability, opacity)
    widths = _line_widths(probability, OTHER_WIDTHS)
    _draw_thin(axes, view, lines, colors, widths)


def _draw_single_modes(
    axes: Axes, view: View, forecast: Forecast, rows: np.ndarray, meeting: np.ndarray
) -> None:
    """Draw the only mode of each of ``rows``: in colour for those ``meeting`` the focal agent, else pale."""
    quiet = np.setdiff1d(rows, meeting)
    theme = view.theme
    partners = to_rgba_array(list(theme.partners[: len(meeting)])).reshape(-1, 4)  # [0, 4] if none meets it
    colors = np.concatenate((theme.mode_colors(np.full(len(quiet), QUIET)), partners))
    widths = np.repeat(SINGLE_WIDTHS, (len(quiet), len(meeting)))
    _draw_thin(axes, view, forecast.trajectory[[*quiet, *meeting], 0], colors, widths)


def _draw_thin(axes: Axes, view: View, lines: np.ndarray, colors: np.ndarray, widths: np.ndarray) -> None:
    """Draw modes of other agents with borders and small end markers."""
    look = _with_borders(view, colors, widths, OTHER_BORDER)
    add_lines(axes, np.repeat(lines, 2, axis=0), Layer.OTHER_MODES, gid="other-modes", **look)
    x, y = lines[:, -1].T
    axes.scatter(x, y, c=colors, s=6 * widths, linewidths=0.0, zorder=Layer.OTHER_MODES)


def _with_borders(
    view: View, colors: np.ndarray, widths: np.ndarray, border: tuple[float, float]
) -> dict[str, Any]:
    """Return the look of lines drawn twice, each directly above its border, so that crossings stay clear."""
    added, opacity = border
    edge = np.broadcast_to(to_rgba_array(view.theme.halo, opacity), colors.shape)
    return {
        "colors": np.stack((edge, colors), axis=1).reshape(-1, 4),
        "linewidths": np.stack((widths + added, widths), axis=1).ravel(),
    }


def _line_widths(probability: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    thinnest, widest = limits
    return np.asarray(thinnest + (widest - thinnest) * PROBABILITY_NORM(probability), np.float64)


def _draw_probabilities(
    axes: Axes, view: View, scenario: Scenario, forecast: Forecast, row: int, short: np.ndarray
) -> None:
    """Write each mode's probability beside its end; modes with nearly equal ends share a label.

    ``short`` modes ``[K]`` have no label: it would lie on the agent.
    """
    order = np.argsort(-forecast.probability[row], kind="stable")
    paper = view.to_paper(forecast.trajectory[row, order])
    first = _first_nearby(paper[:, -1], within=SAME_END)
    total = np.bincount(first, forecast.probability[row, order], len(order))
    count = np.bincount(first, minlength=len(order))
    labelled = np.flatnonzero((count > 0) & ~short[order])
    texts: list[str] = []
    for mode in labelled.tolist():
        text = percent(total[mode])
        if count[mode] > 1:
            text += f", {count[mode]} modes"
        texts.append(text)
    sizes = np.array([text_size(text, LABEL_SIZE) for text in texts]).reshape(-1, 2)
    directions = forecast.heading[row, order[labelled], -1]
    anchors = paper[labelled, -1]
    points, blocked = _obstacles(view, scenario, paper)
    blocked = np.concatenate((blocked, boxes_on(axes, view)))
    window = view.radius * view.points_per_metre
    centres, leaders = place_labels(anchors, directions, sizes, points, blocked, window)
    offsets = centres - anchors
    ends = forecast.trajectory[row, order[labelled], -1]
    line = {"arrowstyle": "-", "lw": 0.5, "color": view.theme.muted, "shrinkA": 0, "shrinkB": 2.5}
    for label in np.flatnonzero(np.isfinite(centres[:, 0])).tolist():
        axes.annotate(
            texts[label],
            xy=tuple(ends[label]),
            xytext=tuple(offsets[label]),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=LABEL_SIZE,
            color=view.theme.ink,
            zorder=Layer.LABEL,
            parse_math=False,
            arrowprops=line if leaders[label] else None,
            gid="probability",
            path_effects=[withStroke(linewidth=2.0, foreground=view.theme.halo)],
        )


def _first_nearby(points: np.ndarray, within: float) -> np.ndarray:
    """Return, for each of ``points`` ``[M, 2]``, the first point connected to it by gaps below ``within``."""
    near = np.abs(points[:, None] - points).max(axis=-1) < within
    first = near.argmax(axis=1)
    for _ in range(len(points)):
        first = first[first]
    return first


def _obstacles(view: View, scenario: Scenario, modes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return points ``[O, 2]`` of modes and truth, and boxes ``[2, 4]`` of the focal agent and the star."""
    [body], _ = agent_outlines(view, scenario, np.array([scenario.focal]))
    truth = view.to_paper(true_future(scenario, scenario.focal))
    points: list[np.ndarray] = [np.zeros((0, 2))]
    for line in (*modes, truth):
        if len(line):
            # Evenly spaced, or labels would fit between the points of fast modes.
            distances = np.arange(0.0, arc_length(line)[-1] + 3.0, 3.0)
            points.append(points_along(line, distances))
    corners = np.array([[-STAR_HALF], [STAR_HALF]])
    stars = [end + corners for end in truth[-1:]]
    return np.concatenate(points), boxes_of([view.to_paper(body), *stars])


def is_short(scenario: Scenario, forecast: Forecast) -> np.ndarray:
    """Return whether each mode ``[B, K]`` ends within the length of its road user, which thus stays."""
    rows = scenario.tracks.indices(forecast.track_id)
    start = last_poses(scenario, rows).position[:, None, None]
    length = scenario.tracks.box(DRAWN_SIZES)[rows, 0]
    reach = norm(forecast.trajectory - start).max(axis=-1)
    return reach < length[:, None]


def lateral_band(scenario: Scenario, forecast: Forecast) -> np.ndarray:
    """Return half the width ``[B, K, F]`` (metres) of the 80 % band across each mode.

    The Laplace scales are along the axes of the track's frame at its last observed pose; ``scenario`` is as
    observed when the forecast was made. Across a mode that has turned, the deviation is a weighted sum of
    both, whose distribution is only approximately Laplace, and the share is only approximately 80 %.
    """
    assert forecast.scale is not None
    rows = scenario.tracks.indices(forecast.track_id)
    turn = forecast.heading - last_poses(scenario, rows).heading[:, None, None]
    scale_ahead = forecast.scale[..., 0]
    scale_left = forecast.scale[..., 1]
    return BAND * np.hypot(scale_ahead * np.sin(turn), scale_left * np.cos(turn))


def band_outlines(scenario: Scenario, forecast: Forecast, row: int) -> list[np.ndarray]:
    """Return the outline ``[V, 2]`` of the 80 % band around each mode of the forecast's ``row``, city frame.

    The band is the union of the areas between successive cross-sections, with a rounded end: it follows its
    mode's curve and cannot fold over in turns.
    """
    width = lateral_band(scenario, forecast)[row][..., None]
    ahead = width * unit_vector(forecast.heading[row])  # [K, F, 2]
    left = ahead[..., ::-1] * np.array([-1.0, 1.0])
    path = forecast.trajectory[row]
    sections = np.stack((path + left, path - left), axis=2)
    between = np.concatenate((sections[:, :-1], sections[:, 1:]), axis=2)
    turn = np.linspace(0, np.pi, CAP_POINTS)[:, None]
    ends = path[:, -1:] + np.cos(turn) * left[:, -1:] + CAP * np.sin(turn) * ahead[:, -1:]
    areas = shapely.convex_hull(shapely.multipoints(between))
    caps = shapely.convex_hull(shapely.multipoints(ends))
    parts = np.concatenate((areas, caps[:, None]), axis=1)
    bands = shapely.buffer(shapely.union_all(parts, axis=1), SEAM_M, quad_segs=2)
    return [shapely.get_coordinates(band.exterior) for band in bands]


#: Dash and gap of a true future, in multiples of the line width.
DASHES = (0.0, (2.6, 1.4))


#: Line styles for true futures: the focal agent's, and others'.
FOCAL_TRUTH: dict[str, Any] = {"linewidth": 1.7, "alpha": 1.0, "zorder": Layer.TRUTH, "gid": "focal-truth"}
OTHER_TRUTH: dict[str, Any] = {
    "linewidth": 0.9,
    "alpha": 0.75,
    "zorder": Layer.OTHER_TRUTH,
    "gid": "other-truth",
}
#: Style of their ends.
FOCAL_END: dict[str, Any] = {"marker": "*", "s": 9.5**2, "zorder": Layer.TRUTH_END}
OTHER_END: dict[str, Any] = {"marker": "o", "s": 3.0**2, "zorder": Layer.OTHER_TRUTH}


def draw_truth(axes: Axes, view: View, scenario: Scenario, rows: np.ndarray, ends: bool = True) -> None:
    """Draw the true futures of the tracks ``rows`` that have one, dashed, with their ends."""
    halo = view.theme.halo
    role = roles(scenario)
    has_future = scenario.tracks.valid[rows, scenario.num_observed :].any(axis=1)
    for row in rows[has_future].tolist():
        color = view.theme.role[Role(role[row])]
        line = OTHER_TRUTH
        end = OTHER_END
        edge = color
        if row == scenario.focal:
            line = FOCAL_TRUTH
            end = FOCAL_END
            edge = halo
        around = withStroke(linewidth=line["linewidth"] + 1.3, foreground=halo, alpha=0.8)
        x, y = true_future(scenario, row).T
        axes.plot(x, y, color=color, linestyle=DASHES, dash_capstyle="butt", path_effects=[around], **line)
        if ends:
            axes.scatter(x[-1], y[-1], color=color, edgecolors=edge, linewidths=0.7, **end)


def true_future(scenario: Scenario, row: int) -> np.ndarray:
    """Return the valid future positions ``[F, 2]`` of a track."""
    future = slice(scenario.num_observed, None)
    return scenario.tracks.position[row, future][scenario.tracks.valid[row, future]]
