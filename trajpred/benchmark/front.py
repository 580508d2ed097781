"""Error against CPU time of several predictors, measured in one run: which are worth their time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, NullLocator

from trajpred.benchmark.timing import use_threads
from trajpred.errors import require
from trajpred.evaluation import Interval, bootstrap, evaluate
from trajpred.forecast import Forecast
from trajpred.metrics import metric_of
from trajpred.predictors import Predictor, load_predictor
from trajpred.scenario import Scenario
from trajpred.store import ScenarioStore
from trajpred.viz.style import LIGHT, Role


class Point(NamedTuple):
    """One predictor: median CPU time per scene, one scene at a time, and the focal agents' mean error."""

    name: str
    cpu_ms: float
    error: Interval


@use_threads()
def front(
    checkpoints: Sequence[str | Path], store: ScenarioStore, metric: str, limit: int | None
) -> list[Point]:
    """Evaluate predictors on one thread, scene by scene as on a vehicle, features included.

    Args:
        checkpoints: what ``load_predictor`` takes: weights, bundles, baselines.
        metric: of the focal agents, with its interval over scenarios.
        limit: number of scenarios.

    Raises: DataError as :func:`~trajpred.evaluation.evaluate`.
    """
    points = []
    for checkpoint in checkpoints:
        timed = _Timed(load_predictor(checkpoint))
        result = evaluate(timed, store, batch_size=1, limit=limit)
        errors = [value for value in result.focal(metric).values() if value == value]
        points.append(Point(timed.name, float(np.median(timed.cpu_ms)), bootstrap(errors)))
    return points


class _Timed:
    """A predictor that records its CPU time per scene, in this process."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor, self.name, self.training = predictor, predictor.name, predictor.training
        self.cpu_ms: list[float] = []

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        start = time.process_time()
        forecasts = self.predictor(scenarios)
        self.cpu_ms.append(1e3 * (time.process_time() - start) / len(scenarios))
        return forecasts


def best(points: Sequence[Point]) -> list[Point]:
    """Return those that no other surpasses in both respects, fastest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda one: (one.cpu_ms, one.error.mean)):
        if not kept or point.error.mean < kept[-1].error.mean:
            kept.append(point)
    return kept


def draw_front(points: Sequence[Point], metric: str) -> Figure:
    """Draw error with its 95 % interval against time; a line connects the :func:`best`."""
    require(len(points) > 0, "checkpoints", "must not be empty")
    theme, unit = LIGHT, metric_of(metric).unit
    figure = Figure(figsize=(7.2, 4.6), layout="constrained", facecolor=theme.paper)
    axes = figure.subplots()
    front_line = best(points)
    color, times = theme.role[Role.FOCAL], [point.cpu_ms for point in points]
    middle = (min(times) * max(times)) ** 0.5
    axes.plot([p.cpu_ms for p in front_line], [p.error.mean for p in front_line], color=color, linewidth=1.8)
    for point in points:
        tone = color if point in front_line else theme.role_edge[Role.OTHER]
        bounds = [[point.error.mean - point.error.low], [point.error.high - point.error.mean]]
        look: dict[str, Any] = {"fmt": "o", "markersize": 6, "elinewidth": 1.2, "capsize": 3, "color": tone}
        axes.errorbar(point.cpu_ms, point.error.mean, yerr=bounds, **look)
        # Labels of the best lie below them and the others' above, all towards the middle.
        side, height = (1 if point.cpu_ms < middle else -1), (-1 if point in front_line else 1)
        axes.annotate(
            point.name, (point.cpu_ms, point.error.mean), (9 * side, 9 * height), textcoords="offset points",
            ha="left" if side > 0 else "right", va="center", fontsize=9, color=theme.ink,
            path_effects=[withStroke(linewidth=3, foreground=theme.background)],
        )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("CPU time of a scene, one thread (ms)", fontsize=9, color=theme.muted)
    axes.set_ylabel(f"{metric} ({unit})" if unit else metric, fontsize=9, color=theme.muted)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_facecolor(theme.background)
    axes.tick_params(colors=theme.muted, labelsize=8.5, length=3)
    axes.grid(axis="y", color=theme.ground, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
