"""Predicted modes, their uncertainty and probabilities, and the true futures."""

from __future__ import annotations

from typing import Any

import numpy as np
import shapely
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array
from matplotlib.patheffects import withStroke

from trajpred.forecast import Forecast
from trajpred.geometry import arc_length, points_along
from trajpred.scenario import Scenario
from trajpred.viz.agent_layer import agent_outlines, roles
from trajpred.viz.style import PROBABILITY_NORM, Layer, Role
from trajpred.viz.view import View, add_lines, add_polygons, percent, place_labels

#: Font size of labels (points).
LABEL_SIZE = 7.0
#: Line widths (points) of modes with probability 0 and 1, interpolated on the scale of the colours.
FOCAL_WIDTHS, OTHER_WIDTHS, SINGLE_WIDTHS = (1.3, 3.0), (0.6, 1.4), (1.0, 1.9)
#: Width added (points) and opacity of the border that separates modes from each other and from agents.
FOCAL_BORDER, OTHER_BORDER = (1.4, 0.9), (0.9, 0.5)
#: Opacity of other agents' modes relative to the focal agent's, and of a band of probability 1.
OTHER_OPACITY, BAND_OPACITY = 0.5, 0.34
#: Modes whose ends are closer than this (points) share a label: their markers merge as well.
SAME_END = 3.0
#: Labels further than this from their end point (points) get a leader line.
LEADER = 14.0
#: Dash and gap of a true future, in multiples of the line width.
DASHES = (0.0, (2.6, 1.4))
#: A Laplace distribution holds this share within ``BAND`` scales of its centre: P(|x| < w) = 1 - exp(-w / b).
BAND_SHARE = 0.8
BAND = -float(np.log(1 - BAND_SHARE))
#: Steps between the discs that make up the outline of a band.
BAND_STRIDE = 4


def draw_modes(
    axes: Axes, view: View, scenario: Scenario, forecast: Forecast, rows: np.ndarray, labels: bool = True
) -> None:
    """Draw the modes of the predicted tracks among ``rows``; the focal agent's with bands and ``labels``."""
    predicted = forecast.rows(scenario.tracks.track_id[rows])
    focal, known = rows == scenario.focal, predicted >= 0
    _draw_other_modes(axes, view, forecast, predicted[known & ~focal])
    for row in predicted[known & focal].tolist():
        if forecast.scale is not None:
            _draw_bands(axes, view, scenario, forecast, row)
        _draw_focal_modes(axes, view, forecast, row)
        if labels:
            _draw_probabilities(axes, view, scenario, forecast, row)


def _draw_bands(axes: Axes, view: View, scenario: Scenario, forecast: Forecast, row: int) -> None:
    order = np.argsort(forecast.probability[row], kind="stable")
    probability = forecast.probability[row, order]
    colors = view.theme.mode_colors(probability)
    colors[:, 3] = BAND_OPACITY * np.asarray(PROBABILITY_NORM(probability))
    outlines = band_outlines(scenario, forecast, row)
    shades = [outlines[k] for k in order.tolist()]
    add_polygons(axes, shades, Layer.BAND, facecolors=colors, edgecolors="none", gid="bands")


def _draw_focal_modes(axes: Axes, view: View, forecast: Forecast, row: int) -> None:
    """Draw the K modes of the forecast's ``row``, the likeliest on top: stronger, wider, with end markers."""
    order = np.argsort(forecast.probability[row], kind="stable")
    lines, probability = forecast.trajectory[row, order], forecast.probability[row, order]
    colors, widths = view.theme.mode_colors(probability), _line_widths(probability, FOCAL_WIDTHS)
    look = _with_borders(view, colors, widths, FOCAL_BORDER)
    add_lines(axes, np.repeat(lines, 2, axis=0), Layer.MODES, capstyle="round", gid="focal-modes", **look)
    end: dict[str, Any] = {"edgecolors": view.theme.halo, "linewidths": 0.7, "zorder": Layer.END}
    axes.scatter(lines[:, -1, 0], lines[:, -1, 1], s=26, c=to_rgba_array(colors, 1.0), **end)


def _draw_other_modes(axes: Axes, view: View, forecast: Forecast, rows: np.ndarray) -> None:
    """Draw the K modes of the forecast's ``rows`` in the same colours, thin and, for K > 1, faint."""
    order = np.argsort(forecast.probability[rows].ravel(), kind="stable")
    lines = forecast.trajectory[rows].reshape(-1, *forecast.trajectory.shape[2:])[order]
    probability = forecast.probability[rows].ravel()[order]
    single = forecast.trajectory.shape[1] == 1
    colors = view.theme.mode_colors(probability, 1.0 if single else OTHER_OPACITY)
    widths = _line_widths(probability, SINGLE_WIDTHS if single else OTHER_WIDTHS)
    look = _with_borders(view, colors, widths, OTHER_BORDER)
    add_lines(axes, np.repeat(lines, 2, axis=0), Layer.OTHER_MODES, gid="other-modes", **look)
    x, y = lines[:, -1].T
    axes.scatter(x, y, c=colors, s=6, linewidths=0.0, zorder=Layer.OTHER_MODES)


def _with_borders(
    view: View, colors: np.ndarray, widths: np.ndarray, border: tuple[float, float]
) -> dict[str, Any]:
    """Return the look of lines drawn twice: each directly above its border, so that crossings stay clear."""
    added, opacity = border
    edge = np.broadcast_to(to_rgba_array(view.theme.halo, opacity), colors.shape)
    return {
        "colors": np.stack((edge, colors), axis=1).reshape(-1, 4),
        "linewidths": np.stack((widths + added, widths), axis=1).ravel(),
    }


def _line_widths(probability: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    return np.asarray(limits[0] + (limits[1] - limits[0]) * PROBABILITY_NORM(probability), np.float64)


def _draw_probabilities(axes: Axes, view: View, scenario: Scenario, forecast: Forecast, row: int) -> None:
    """Write the probability of each mode beside its end; modes with the same end share a label."""
    order = np.argsort(-forecast.probability[row], kind="stable")
    paper = view.to_paper(forecast.trajectory[row, order])
    first = _first_nearby(paper[:, -1], within=SAME_END)
    total = np.bincount(first, forecast.probability[row, order], len(order))
    count = np.bincount(first, minlength=len(order))
    labelled = np.flatnonzero(count)
    texts = [percent(total[i]) + (f", {count[i]} modes" if count[i] > 1 else "") for i in labelled.tolist()]
    # Estimated, so that no renderer is needed.
    sizes = np.array([(0.62 * len(text), 1.05) for text in texts]) * LABEL_SIZE
    directions, obstacles = forecast.heading[row, order[labelled], -1], _obstacles(view, scenario, paper)
    offsets = place_labels(paper[labelled, -1], directions, sizes, obstacles) - paper[labelled, -1]
    ends = forecast.trajectory[row, order[labelled], -1]
    line = {"arrowstyle": "-", "lw": 0.5, "color": view.theme.muted, "shrinkB": 3}
    for i in np.flatnonzero(np.isfinite(offsets[:, 0])).tolist():
        distant = float(np.hypot(*offsets[i])) > LEADER + sizes[i, 0] / 2
        axes.annotate(
            texts[i], tuple(ends[i]), tuple(offsets[i]), textcoords="offset points",
            ha="center", va="center", fontsize=LABEL_SIZE, color=view.theme.ink, zorder=Layer.LABEL,
            parse_math=False, arrowprops=line if distant else None, gid="probability",
            path_effects=[withStroke(linewidth=2.0, foreground=view.theme.halo)],
        )  # fmt: skip


def _first_nearby(points: np.ndarray, within: float) -> np.ndarray:
    """Return for each of ``points`` ``[M, 2]`` the first one connected to it by gaps below ``within``."""
    near = np.abs(points[:, None] - points).max(axis=-1) < within
    first = near.argmax(axis=1)
    for _ in range(len(points)):
        first = first[first]
    return first


def _obstacles(view: View, scenario: Scenario, modes: np.ndarray) -> np.ndarray:
    """Return points ``[O, 2]`` on paper that labels should not cover: the focal agent, modes and truth."""
    [body], _ = agent_outlines(view, scenario, np.array([scenario.focal]))
    truth = view.to_paper(true_future(scenario, scenario.focal))
    lines = [line for line in (*modes, truth, view.to_paper(body)) if len(line)]
    # Evenly spaced, or labels would slip between the points of fast modes.
    path = [points_along(line, np.arange(0.0, arc_length(line)[-1] + 3.0, 3.0)) for line in lines]
    # The star at the end of the truth weighs as much as the ends of the modes, which are anchors.
    return np.concatenate((*path, np.repeat(truth[-1:], 6, axis=0)))


def draw_truth(axes: Axes, view: View, scenario: Scenario, rows: np.ndarray, ends: bool = True) -> None:
    """Draw the true future of those tracks ``rows`` that have one, dashed, and where it ends."""
    halo = view.theme.halo
    for row in rows[scenario.tracks.valid[rows, scenario.num_observed :].any(axis=1)].tolist():
        path = true_future(scenario, row)
        color, focal = view.theme.role[Role(roles(scenario)[row])], row == scenario.focal
        width = 1.7 if focal else 0.9
        axes.plot(
            *path.T, color=color, linewidth=width, linestyle=DASHES, dash_capstyle="butt",
            alpha=1.0 if focal else 0.75, zorder=Layer.TRUTH if focal else Layer.OTHER_TRUTH,
            gid="focal-truth" if focal else "other-truth",
            path_effects=[withStroke(linewidth=width + 1.3, foreground=halo, alpha=0.8)],
        )  # fmt: skip
        if ends:
            look: dict[str, Any] = {"marker": "*", "s": 9.5**2, "zorder": Layer.TRUTH_END, "edgecolors": halo}
            if not focal:
                look = {"marker": "o", "s": 3.0**2, "zorder": Layer.OTHER_TRUTH, "edgecolors": color}
            axes.scatter(*path[-1], color=color, linewidths=0.7, **look)


def true_future(scenario: Scenario, row: int) -> np.ndarray:
    """Return the valid future positions ``[F, 2]`` of a track."""
    future = slice(scenario.num_observed, None)
    return scenario.tracks.position[row, future][scenario.tracks.valid[row, future]]


def lateral_band(scenario: Scenario, forecast: Forecast) -> np.ndarray:
    """Return half the width ``[B, K, F]`` (metres) of the 80 % band across each mode.

    The Laplace scales lie along the axes of the track's own frame. Across a mode that has turned, their
    mixture is only approximately a Laplace distribution, and the share only approximately 80 %.
    """
    assert forecast.scale is not None
    rows = np.array([scenario.tracks.index(name) for name in forecast.track_id.tolist()], np.int64)
    frame = scenario.tracks.heading[rows, scenario.last_seen[rows]]
    turned = forecast.heading - frame[:, None, None]
    ahead, left = forecast.scale[..., 0], forecast.scale[..., 1]
    return BAND * np.hypot(ahead * np.sin(turned), left * np.cos(turned))


def band_outlines(scenario: Scenario, forecast: Forecast, row: int) -> list[np.ndarray]:
    """Return the outline ``[V, 2]`` of the 80 % band around each mode of the forecast's ``row``, city frame.

    The band is the union of the convex hulls of successive discs, which cannot fold over where a mode turns.
    """
    F = forecast.trajectory.shape[2]
    steps = np.unique(np.append(np.arange(0, F, BAND_STRIDE), F - 1))
    width = lateral_band(scenario, forecast)[row][:, steps]
    discs = shapely.buffer(shapely.points(forecast.trajectory[row][:, steps]), width, quad_segs=4)
    pairs = np.stack((discs[:, :-1], discs[:, 1:]), axis=2) if len(steps) > 1 else discs[..., None]
    hulls = shapely.convex_hull(shapely.multipolygons(pairs))
    return [shapely.get_coordinates(one.exterior) for one in shapely.union_all(hulls, axis=1)]
