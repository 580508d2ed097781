"""Error against CPU time of several predictors, measured in one run: which are worth their time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import NDArray

from trajpred.benchmark.timing import time_ms, use_threads
from trajpred.errors import require
from trajpred.evaluation import Interval, bootstrap, evaluate
from trajpred.metrics import columns, metric_of
from trajpred.predictors import Predictor, load_predictor
from trajpred.store import ScenarioStore
from trajpred.viz.style import LIGHT, Role, style_axes

#: Scenes on which CPU time is measured.
TIMED = 100
#: Width of a letter and largest distance of two lines of names, as shares of the picture.
LETTER, PITCH = 0.0125, 0.055


class Point(NamedTuple):
    """One predictor: median CPU time of a scene, and the focal agents' mean error."""

    name: str
    cpu_ms: float
    error: Interval


@use_threads()
def front(
    predictors: Sequence[str | Path | Predictor], store: ScenarioStore, metric: str, limit: int | None = None
) -> list[Point]:
    """Evaluate predictors, and measure them on one thread, one scene at a time, features included.

    The predictors take turns in every scene, so that a moment in which the machine is slow hits all of them.

    Args:
        predictors: what ``load_predictor`` takes (weights, bundles, baselines), or a predictor of your own.
        metric: of the focal agents, with its interval over scenarios.
        limit: number of scenarios to evaluate.

    Raises: DataError as :func:`~trajpred.evaluation.evaluate`.
    """
    known = columns("breakdown")  # what evaluations have of each scenario
    require(metric in known, "metric", f"must be one of {', '.join(known)}, is {metric}")
    loaded = [one if isinstance(one, Predictor) else load_predictor(one) for one in predictors]
    results = [evaluate(predictor, store, limit=limit) for predictor in loaded]
    rows = np.linspace(0, len(store) - 1, min(TIMED, len(store))).astype(int)
    scenes = [store[0], *(store[int(row)] for row in rows)]  # the first call of each is not counted
    cpu = np.empty((len(scenes), len(loaded)))
    for turn, scene in enumerate(scenes):
        for index in np.roll(range(len(loaded)), turn):
            cpu[turn, index] = time_ms(partial(loaded[index], [scene]))[0]
    errors = [[x for x in result.by_scenario(metric).values() if x == x] for result in results]
    return [
        Point(one.name, float(median), bootstrap(values))
        for one, median, values in zip(loaded, np.median(cpu[1:], axis=0), errors, strict=True)
    ]


def best(points: Sequence[Point]) -> list[Point]:
    """Return those that no other surpasses in both respects, fastest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda one: (one.cpu_ms, one.error.mean)):
        if not kept or point.error.mean < kept[-1].error.mean:
            kept.append(point)
    return kept


def draw_front(points: Sequence[Point], metric: str) -> Figure:
    """Draw error with its 95 % interval against time; a line connects the :func:`best`.

    Both scales are logarithmic; that of errors is linear if an interval reaches 0, as a miss rate may.
    """
    require(len(points) > 0, "checkpoints", "must not be empty")
    theme, unit = LIGHT, metric_of(metric).unit
    figure = Figure(figsize=(7.2, 4.6), layout="constrained", facecolor=theme.paper)
    axes = figure.subplots()
    axes.set_xscale("log")
    front_line, color = best(points), theme.role[Role.FOCAL]
    axes.plot([p.cpu_ms for p in front_line], [p.error.mean for p in front_line], color=color, linewidth=1.8)
    for point, height in zip(points, place_names(axes, points), strict=True):
        tone = color if point in front_line else theme.role_edge[Role.OTHER]
        bounds = [[point.error.mean - point.error.low], [point.error.high - point.error.mean]]
        look: dict[str, Any] = {"fmt": "o", "markersize": 6, "elinewidth": 1.2, "capsize": 3, "color": tone}
        axes.errorbar(point.cpu_ms, point.error.mean, yerr=bounds, **look)
        axes.plot([point.cpu_ms] * 2, [point.error.high, height], color=tone, linewidth=0.6)
        axes.annotate(
            point.name, (point.cpu_ms, height), (3, 0), textcoords="offset points", va="center", fontsize=9,
            color=theme.ink, path_effects=[withStroke(linewidth=3, foreground=theme.background)],
        )  # fmt: skip
    times = [point.cpu_ms for point in points]
    # The names to the right of the points need room; the longest may take most of the picture.
    room = [1 - min(LETTER * len(point.name), 0.8) for point in points]
    wide = max(math.log(time / min(times)) / share for time, share in zip(times, room, strict=True))
    axes.set_xlim(min(times) * 0.7, min(times) * math.exp(max(wide, 1.0)) * 1.2)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("CPU time of a scene, one thread (ms)", fontsize=9, color=theme.muted)
    axes.set_ylabel(f"{metric} ({unit})" if unit else metric, fontsize=9, color=theme.muted)
    axes.xaxis.set_major_formatter("{x:g}")
    style_axes(axes, theme)
    return figure


def place_names(axes: Axes, points: Sequence[Point]) -> NDArray[np.float64]:
    """Choose scale and limits of the error axis; return the height ``[N]`` of each point's name.

    A name is above its point's interval and the names of all points to its right. It begins above its point
    and runs to the right, so that names and the lines to them do not cross.
    """
    low = min(point.error.low for point in points)
    if low > 0:
        axes.set_yscale("log", subs=[])
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axes.yaxis.set_major_formatter("{x:g}")
    scale = axes.yaxis.get_transform()
    bottom = float(scale.transform(low * 0.9))
    slowest_first = np.argsort([-point.cpu_ms for point in points], kind="stable")
    high = scale.transform(np.array([point.error.high for point in points])[slowest_first])
    # The axis has room above every interval for the names of its point and of the faster ones.
    above = np.arange(len(points), 0, -1)
    pitch = min(PITCH, 0.8 / len(points))
    extent = ((high - bottom) / (1 - pitch * (above + 0.5))).max()
    first = np.maximum.accumulate(high + above * pitch * extent)
    heights = np.empty(len(points))
    heights[slowest_first] = first - (above - 1) * pitch * extent
    inverse = scale.inverted()
    axes.set_ylim(*inverse.transform(np.array([bottom, bottom + extent])))
    return inverse.transform(heights)
