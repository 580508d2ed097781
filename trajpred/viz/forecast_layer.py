"""What is predicted, and what really happened."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patheffects import Normal, Stroke, withStroke
from numpy.typing import NDArray

from trajpred.forecast import Forecast
from trajpred.object_sizes import TYPICAL_SIZES
from trajpred.scenario import Scenario
from trajpred.viz import style
from trajpred.viz.agent_layer import roles
from trajpred.viz.labels import final_direction, place_labels, same_place, text_size
from trajpred.viz.shapes import Floats, arc_length, place, points_along
from trajpred.viz.style import Layer, Role
from trajpred.viz.view import View, last_seen

BY_PROBABILITY: dict[str, Any] = {"cmap": style.PROBABILITY_COLORS, "norm": style.PROBABILITY_NORM}
LABEL_SIZE = 7.0
#: Modes whose ends lie closer together than this (points) share a label: their markers merge as well.
SAME_END = 3.0
#: ``[25, 2]`` points all over a box of length and width 1.
BODY = np.stack(np.meshgrid(np.linspace(-0.5, 0.5, 5), np.linspace(-0.5, 0.5, 5)), -1).reshape(-1, 2)
#: Labels further than this from their end point (points) get a leader line.
LEADER = 14.0
LEADER_LINE = {"arrowstyle": "-", "lw": 0.5, "color": style.MUTED, "shrinkB": 3}


def draw_focal_modes(axes: Axes, forecast: Forecast, row: int) -> None:
    """The K futures of the forecast's ``row``, coloured by probability, with end markers."""
    lines, probability = _rising(forecast, np.array([row]))
    modes = LineCollection(
        list(lines),
        array=probability,
        linewidths=1.9,
        capstyle="round",
        zorder=Layer.MODES,
        gid="focal-modes",
        **BY_PROBABILITY,
    )
    modes.set_path_effects([Stroke(linewidth=3.3, foreground=style.HALO, alpha=0.9), Normal()])
    axes.add_collection(modes, autolim=False)
    end: dict[str, Any] = {"s": 26, "edgecolors": style.HALO, "linewidths": 0.7, "zorder": Layer.END}
    axes.scatter(lines[:, -1, 0], lines[:, -1, 1], c=probability, **end, **BY_PROBABILITY)


def draw_other_modes(axes: Axes, forecast: Forecast, rows: NDArray[np.int64]) -> None:
    """The K futures of the forecast's ``rows``, the same colours but thin and faint."""
    lines, probability = _rising(forecast, rows)
    faint: dict[str, Any] = {"alpha": 0.5, "zorder": Layer.OTHER_MODES, **BY_PROBABILITY}
    modes = LineCollection(list(lines), array=probability, linewidths=0.8, gid="other-modes", **faint)
    axes.add_collection(modes, autolim=False)
    axes.scatter(lines[:, -1, 0], lines[:, -1, 1], c=probability, s=6, linewidths=0.0, **faint)


def _rising(forecast: Forecast, rows: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """All modes ``[M, F, 2]`` of ``rows`` and their probabilities ``[M]``, rising: the likeliest on top."""
    probability = forecast.probability[rows].ravel()
    order = np.argsort(probability, kind="stable")
    return forecast.trajectory[rows].reshape(-1, *forecast.trajectory.shape[2:])[order], probability[order]


def draw_probabilities(axes: Axes, view: View, scenario: Scenario, forecast: Forecast, row: int) -> None:
    """Write the probability of each mode of the forecast's ``row`` beside its end.

    Modes that end in the same place share a label with their total: six labels on a parked car say nothing.
    """
    order = np.argsort(-forecast.probability[row], kind="stable")
    paper = view.to_paper(forecast.trajectory[row, order])
    leader = same_place(paper[:, -1], within=SAME_END)
    total = np.bincount(leader, forecast.probability[row, order], len(order))
    count = np.bincount(leader, minlength=len(order))
    shown = np.flatnonzero(count)
    texts = [percent(total[i]) + (f", {count[i]} modes" if count[i] > 1 else "") for i in shown.tolist()]
    size = np.array([text_size(text, LABEL_SIZE) for text in texts])
    away = np.array([final_direction(line, shortest=6.0) for line in paper[shown]])
    ends = paper[shown, -1]
    centres = place_labels(ends, away, size, _obstacles(view, scenario, paper))
    for text, centre, end in zip(texts, centres, ends, strict=True):
        distant = float(np.hypot(*(centre - end))) > LEADER + text_size(text, LABEL_SIZE)[0] / 2
        label = axes.annotate(
            text,
            xy=tuple(view.centre + end / view.points_per_metre),
            xytext=tuple(centre - end),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=LABEL_SIZE,
            color=style.INK,
            zorder=Layer.LABEL,
            gid="probability",
            arrowprops=LEADER_LINE if distant else None,
        )
        label.set_path_effects([withStroke(linewidth=2.0, foreground=style.HALO)])


def percent(probability: float) -> str:
    """``probability`` as a short label; never "0%" for what is merely unlikely."""
    return "<1%" if 0 < probability < 0.005 else f"{probability:.0%}"


def _obstacles(view: View, scenario: Scenario, modes: Floats) -> Floats:
    """``[O, 2]`` points on paper that labels should not cover: the focal agent, its modes, its truth."""
    tracks, row, T = scenario.tracks, scenario.focal, scenario.num_observed
    truth = view.to_paper(tracks.position[row, T:][tracks.valid[row, T:]])
    lines = [*modes, truth] if len(truth) else list(modes)
    # Evenly spaced, or labels would slip between the points of fast modes.
    path = [points_along(line, np.arange(0.0, arc_length(line)[-1] + 3.0, 3.0)) for line in lines]
    heading = tracks.heading[row, last_seen(scenario)[row]]
    size = TYPICAL_SIZES[tracks.object_type[row]] * view.points_per_metre
    body = place(BODY, np.zeros((1, 2)), np.array([heading]), size[None])[0]
    # The star at the end of the truth weighs as much as the ends of the modes, which are anchors.
    return np.concatenate((*path, np.repeat(truth[-1:], 6, axis=0), body))


def draw_truth(axes: Axes, scenario: Scenario, rows: NDArray[np.int64]) -> None:
    """The real future of the tracks ``rows``, dashed, with an end marker; nothing where there is none."""
    T, role = scenario.num_observed, roles(scenario)
    for row in rows.tolist():
        path = scenario.tracks.position[row, T:][scenario.tracks.valid[row, T:]]
        if not len(path):
            continue
        focal = row == scenario.focal
        color = style.ROLE_COLORS[Role(role[row])]
        (line,) = axes.plot(
            *path.T,
            color=color,
            linewidth=1.7 if focal else 0.9,
            dashes=(2.6, 1.4),
            dash_capstyle="butt",
            alpha=1.0 if focal else 0.75,
            zorder=Layer.TRUTH if focal else Layer.OTHER_TRUTH,
            gid="focal-truth" if focal else "other-truth",
        )
        if focal:
            line.set_path_effects([withStroke(linewidth=3.0, foreground=style.HALO, alpha=0.8)])
        axes.plot(
            *path[-1],
            marker="*" if focal else "o",
            markersize=9.5 if focal else 3.0,
            color=color,
            markeredgecolor=style.HALO if focal else color,
            markeredgewidth=0.7,
            zorder=Layer.TRUTH_END if focal else Layer.OTHER_TRUTH,
        )
