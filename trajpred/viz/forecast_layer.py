"""What is predicted, and what really happened."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba_array
from matplotlib.patheffects import AbstractPathEffect, Normal, withStroke
from numpy.typing import NDArray

from trajpred.forecast import Forecast
from trajpred.scenario import TYPICAL_SIZES, Scenario
from trajpred.viz.agent_layer import roles
from trajpred.viz.labels import final_direction, percent, place_labels, same_place, text_size
from trajpred.viz.shapes import Floats, arc_length, place, points_along
from trajpred.viz.style import PROBABILITY_NORM, Layer, Role
from trajpred.viz.uncertainty import bands
from trajpred.viz.view import View

LABEL_SIZE = 7.0
#: Line width in points of a mode of probability 0 and of 1, between them on the scale of the colours.
FOCAL_WIDTH, OTHER_WIDTH, ALONE_WIDTH = (1.3, 3.0), (0.6, 1.4), (1.0, 1.9)
#: Width of the rim that sets the modes of the focal agent off from each other, points on both sides together.
RIM = 1.4
#: Opacity of other agents' modes, beside that of the focal agent's; and of a band of probability 1.
OTHERS, BANDS = 0.5, 0.34
#: Modes whose ends lie closer together than this (points) share a label: their markers merge as well.
SAME_END = 3.0
#: ``[25, 2]`` points all over a box of length and width 1.
BODY = np.stack(np.meshgrid(np.linspace(-0.5, 0.5, 5), np.linspace(-0.5, 0.5, 5)), -1).reshape(-1, 2)
#: Labels further than this from their end point (points) get a leader line.
LEADER = 14.0
#: Dash and gap of a real future, in multiples of the line width.
DASHES = (0.0, (2.6, 1.4))


class TruthLook(NamedTuple):
    """How real futures are drawn: width and size of the end marker in points."""

    gid: str
    width: float
    opacity: float
    marker: str
    size: float
    layer: Layer
    end: Layer


FOCAL_TRUTH = TruthLook("focal-truth", 1.7, 1.0, "*", 9.5, Layer.TRUTH, Layer.TRUTH_END)
OTHER_TRUTH = TruthLook("other-truth", 0.9, 0.75, "o", 3.0, Layer.OTHER_TRUTH, Layer.OTHER_TRUTH)


class Rim(AbstractPathEffect):
    """A rim of one width around lines of any width."""

    def __init__(self, color: str) -> None:
        super().__init__()
        self.color = color

    def draw_path(self, renderer: Any, gc: Any, tpath: Any, affine: Any, rgbFace: Any = None) -> None:
        wider = renderer.new_gc()
        wider.copy_properties(gc)
        wider.set_linewidth(gc.get_linewidth() + renderer.points_to_pixels(RIM))
        wider.set_alpha(0.9)
        wider.set_foreground(self.color)
        renderer.draw_path(wider, tpath, affine, rgbFace)
        wider.restore()


def draw_bands(axes: Axes, view: View, scenario: Scenario, forecast: Forecast, row: int) -> None:
    """Where 80 % lie to either side of each mode of the forecast's ``row``, if it tells scales."""
    if forecast.scale is None:
        return
    order, probability = _rising(forecast.probability[row]), np.sort(forecast.probability[row])
    colors = view.theme.mode_colors(probability)
    colors[:, 3] = BANDS * np.asarray(PROBABILITY_NORM(probability))
    outlines = bands(scenario, forecast, row)
    shades = PolyCollection(
        [outlines[k] for k in order.tolist()],
        facecolors=colors,
        edgecolors="none",
        zorder=Layer.BAND,
        gid="bands",
    )
    axes.add_collection(shades, autolim=False)


def draw_focal_modes(axes: Axes, view: View, forecast: Forecast, row: int) -> None:
    """The K futures of the forecast's ``row``, with end markers; the likelier, the stronger and wider."""
    order = _rising(forecast.probability[row])
    lines, probability = forecast.trajectory[row, order], forecast.probability[row, order]
    modes = LineCollection(
        list(lines),
        colors=view.theme.mode_colors(probability),
        linewidths=_widths(probability, FOCAL_WIDTH),
        capstyle="round",
        zorder=Layer.MODES,
        gid="focal-modes",
    )
    modes.set_path_effects([Rim(view.theme.halo), Normal()])
    axes.add_collection(modes, autolim=False)
    colors = to_rgba_array(view.theme.mode_colors(probability), 1.0)
    end: dict[str, Any] = {"edgecolors": view.theme.halo, "linewidths": 0.7, "zorder": Layer.END}
    axes.scatter(lines[:, -1, 0], lines[:, -1, 1], s=26, c=colors, **end)


def draw_other_modes(axes: Axes, view: View, forecast: Forecast, rows: NDArray[np.int64]) -> None:
    """The K futures of the forecast's ``rows``, the same colours but thin and, where K > 1, faint."""
    order = _rising(forecast.probability[rows].ravel())
    lines = forecast.trajectory[rows].reshape(-1, *forecast.trajectory.shape[2:])[order]
    probability = forecast.probability[rows].ravel()[order]
    alone = forecast.trajectory.shape[1] == 1
    colors = view.theme.mode_colors(probability, 1.0 if alone else OTHERS)
    width = _widths(probability, ALONE_WIDTH if alone else OTHER_WIDTH)
    look: dict[str, Any] = {"zorder": Layer.OTHER_MODES}
    axes.add_collection(
        LineCollection(list(lines), colors=colors, linewidths=width, gid="other-modes", **look), autolim=False
    )
    axes.scatter(lines[:, -1, 0], lines[:, -1, 1], c=colors, s=6, linewidths=0.0, **look)


def _rising(probability: Floats) -> NDArray[np.int64]:
    """The order in which modes are drawn: the likeliest on top."""
    return np.argsort(probability, kind="stable")


def _widths(probability: Floats, ends: tuple[float, float]) -> Floats:
    """Line widths ``[M]`` in points of modes of ``probability`` ``[M]``."""
    return np.asarray(ends[0] + (ends[1] - ends[0]) * PROBABILITY_NORM(probability), np.float64)


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
    line: dict[str, Any] = {"arrowstyle": "-", "lw": 0.5, "color": view.theme.muted, "shrinkB": 3}
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
            color=view.theme.ink,
            zorder=Layer.LABEL,
            gid="probability",
            arrowprops=line if distant else None,
        )
        label.set_path_effects([withStroke(linewidth=2.0, foreground=view.theme.halo)])


def _obstacles(view: View, scenario: Scenario, modes: Floats) -> Floats:
    """``[O, 2]`` points on paper that labels should not cover: the focal agent, its modes, its truth."""
    tracks, row, T = scenario.tracks, scenario.focal, scenario.num_observed
    truth = view.to_paper(tracks.position[row, T:][tracks.valid[row, T:]])
    lines = [*modes, truth] if len(truth) else list(modes)
    # Evenly spaced, or labels would slip between the points of fast modes.
    path = [points_along(line, np.arange(0.0, arc_length(line)[-1] + 3.0, 3.0)) for line in lines]
    heading = tracks.heading[row, scenario.last_seen[row]]
    size = TYPICAL_SIZES[tracks.object_type[row]] * view.points_per_metre
    body = place(BODY, np.zeros((1, 2)), np.array([heading]), size[None])[0]
    # The star at the end of the truth weighs as much as the ends of the modes, which are anchors.
    return np.concatenate((*path, np.repeat(truth[-1:], 6, axis=0), body))


def draw_truth(
    axes: Axes, view: View, scenario: Scenario, rows: NDArray[np.int64], ends: bool = True
) -> None:
    """The real future of the tracks ``rows``, dashed; nothing where there is none.

    Args:
        ends: mark where each ends.
    """
    valid = scenario.tracks.valid[:, scenario.num_observed :]
    rows = rows[valid[rows].any(axis=1)]
    focal = rows == scenario.focal
    for chosen, look in ((rows[~focal], OTHER_TRUTH), (rows[focal], FOCAL_TRUTH)):
        if len(chosen):
            _draw_paths(axes, view, scenario, chosen, look, ends)


def _draw_paths(
    axes: Axes, view: View, scenario: Scenario, rows: NDArray[np.int64], look: TruthLook, ends: bool
) -> None:
    """The futures of the tracks ``rows``, each of which has one."""
    now, tracks = scenario.num_observed, scenario.tracks
    paths = [tracks.position[row, now:][tracks.valid[row, now:]] for row in rows.tolist()]
    colors = [view.theme.role[Role(role)] for role in roles(scenario)[rows].tolist()]
    lines = LineCollection(
        paths,
        colors=colors,
        linewidths=look.width,
        linestyles=[DASHES],
        capstyle="butt",
        alpha=look.opacity,
        zorder=look.layer,
        gid=look.gid,
    )
    rim = withStroke(linewidth=look.width + 1.3, foreground=view.theme.halo, alpha=0.8)
    lines.set_path_effects([rim] if look is FOCAL_TRUTH else [])
    axes.add_collection(lines, autolim=False)
    if ends:
        last = np.stack([path[-1] for path in paths])
        edges: Any = view.theme.halo if look is FOCAL_TRUTH else colors
        mark: dict[str, Any] = {"marker": look.marker, "s": look.size**2, "linewidths": 0.7}
        axes.scatter(last[:, 0], last[:, 1], c=colors, edgecolors=edges, zorder=look.end, **mark)
