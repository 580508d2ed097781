"""Error against CPU time of several predictors, measured in one run: which are worth their time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from trajpred.benchmark.timing import time_ms, use_threads
from trajpred.errors import require
from trajpred.evaluation import Interval, bootstrap, evaluate
from trajpred.metrics import columns, metric_of
from trajpred.predictors import Predictor, load_predictor
from trajpred.store import ScenarioStore
from trajpred.viz.style import LIGHT, style_axes

#: Scenes on which CPU time is measured.
TIMED = 100
#: Letters of a line of the legend.
LETTERS = 28


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

    Both scales are logarithmic; that of errors is linear if an interval reaches 0, as a miss rate may. The
    legend names the predictors, fastest first.
    """
    require(len(points) > 0, "checkpoints", "must not be empty")
    theme, unit, front_line = LIGHT, metric_of(metric).unit, best(points)
    figure = Figure(figsize=(7.2, 4.6), layout="constrained", facecolor=theme.paper)
    axes = figure.subplots()
    axes.plot([p.cpu_ms for p in front_line], [p.error.mean for p in front_line], color=theme.muted, zorder=1)
    for point in sorted(points, key=lambda one: one.cpu_ms):
        bounds = [[point.error.mean - point.error.low], [point.error.high - point.error.mean]]
        look: dict[str, Any] = {"fmt": "o", "markersize": 6, "elinewidth": 1.2, "capsize": 3}
        axes.errorbar(point.cpu_ms, point.error.mean, yerr=bounds, label=fill(point.name, LETTERS), **look)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    if min(point.error.low for point in points) > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("CPU time of a scene, one thread (ms)", fontsize=9, color=theme.muted)
    axes.set_ylabel(f"{metric} ({unit})" if unit else metric, fontsize=9, color=theme.muted)
    style_axes(axes, theme)
    figure.legend(loc="outside right upper", fontsize=9, labelcolor=theme.ink, frameon=False)
    return figure
