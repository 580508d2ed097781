"""Results of one recipe with more and more scenes -> a power law, its picture, and a prediction.

``python tools/scaling.py --help`` explains it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import cyclopts
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.evaluation import Evaluation, read_results
from trajpred.evaluation.report import markdown
from trajpred.evaluation.table import Interval, numbers
from trajpred.viz.scene import save_scene
from trajpred.viz.style import LIGHT, Role, style_axes

#: The error to fit.
METRIC = "minFDE6"
#: Bootstrap samples of the validation scenes.
RESAMPLES = 2_000
#: The groups of agents, and their colours.
ROLES = {"focal": Role.FOCAL, "moving": Role.SCORED}


class Law(NamedTuple):
    """The error of a group of agents against the number of training scenes N: error = factor · N^-exponent.

    Attributes:
        errors: error of each result in metres, with 95 % bounds.
        exponent: exponent, with 95 % bounds.
        predicted: the error at ``at`` training scenes ``[P]``: the law's, and its 95 % bounds, ``[3, P]``.
        at: ``[P]``, from the fewest scenes of a result to the requested number.
    """

    errors: list[Interval]
    exponent: Interval
    predicted: NDArray[np.float64]
    at: NDArray[np.float64]


def training_scenes(result: Evaluation) -> int:
    """Return the number of scenes of an epoch, accurate to one batch. Raises: DataError if it is unknown."""
    steps = result.training.get("steps", 0)
    batch = result.training.get("batch_size", 0)
    epochs = result.training.get("epoch", 0)
    if not steps or not batch or not epochs:
        raise DataError(f"the result of {result.predictor} does not say how many scenes it was trained on")
    return round(steps * batch / epochs)


def fit(results: Sequence[Evaluation], scenes: int, group: str = "moving") -> Law:
    """Fit the power law by least squares of the logarithms; intervals by bootstrap over validation scenes.

    Intervals show how well these results determine a power law, not whether it holds beyond them.

    Raises: DataError if there are fewer than three numbers of scenes, results of different scenes, or fewer
        ``scenes`` than a result has.
    """
    size = np.array([training_scenes(result) for result in results], np.float64)
    require(len(set(size)) >= 3, "results", "must cover at least three numbers of training scenes")
    rows = [result.rows(group) for result in results]
    for other in rows:
        same = other.select(["scenario_id", "ids"]) == rows[0].select(["scenario_id", "ids"])
        require(same, "results", "must cover the same agents in the same validation scenes")
    require(scenes >= size.max(), "scenes", f"must be at least those of the results, {size.max():,.0f}")
    count = rows[0]["count"].to_numpy()
    total = np.stack([numbers(other, METRIC) for other in rows]) * count
    random = np.random.default_rng(0)
    drawn = random.multinomial(len(count), np.full(len(count), 1 / len(count)), size=RESAMPLES)
    times = np.concatenate((np.ones((1, len(count))), drawn))  # the first is the sample itself
    error = (times @ total.T) / (times @ count)[:, None]  # [1 + RESAMPLES, R]
    exponent, logarithm = np.polyfit(np.log(size), np.log(error).T, 1)
    at = np.geomspace(size.min(), scenes, 60)
    curve = np.exp(logarithm[:, None] + exponent[:, None] * np.log(at))
    return Law(
        errors=[_interval(of_result) for of_result in error.T],
        exponent=_interval(-exponent),
        predicted=np.array(_interval(curve)),
        at=at,
    )


def _interval(values: NDArray[np.float64]) -> Interval:
    """Return the first of ``values`` with the 95 % bounds of the others."""
    low, high = np.quantile(values[1:], (0.025, 0.975), axis=0)
    return Interval(values[0], low, high)


def draw(results: Sequence[Evaluation], laws: Mapping[str, Law]) -> Figure:
    """Draw the errors over the training scenes, both logarithmic, with the laws and their intervals."""
    figure = Figure(figsize=(8, 4.4), layout="constrained", facecolor=LIGHT.paper)
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log")
    size = [training_scenes(result) for result in results]
    for group, law in laws.items():
        color = LIGHT.role[ROLES[group]]
        predicted, low, high = law.predicted
        axes.fill_between(law.at, low, high, color=color, alpha=0.15, linewidth=0)
        axes.plot(law.at, predicted, color=color, linewidth=1.2, linestyle="--")
        mean, lower, upper = np.array(law.errors).T
        bars = np.abs(np.stack((lower, upper)) - mean)
        label = f"{group} agents: {METRIC} falls as N$^{{-{law.exponent.mean:.2f}}}$"
        axes.errorbar(size, mean, bars, color=color, fmt="o", markersize=5, capsize=3, label=label)
        axes.annotate(
            f"{predicted[-1]:.2f} m at {law.at[-1]:,.0f}",
            xy=(law.at[-1], predicted[-1]),
            xytext=(-4, 14),
            textcoords="offset points",
            ha="right",
            color=color,
            fontsize=8.5,
        )
    style_axes(axes, LIGHT)
    ticks = [0.8, 1.0, 1.2, 1.5, 2.0]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("training scenes N", fontsize=8.5, color=LIGHT.muted)
    axes.set_title(f"Validation {METRIC} (m)", loc="left", fontsize=10, color=LIGHT.ink, fontweight="bold")
    axes.legend(frameon=False, fontsize=8.5, labelcolor=LIGHT.ink)
    return figure


def table(results: Sequence[Evaluation], laws: Mapping[str, Law]) -> str:
    """Format the errors by number of training scenes, and the power laws' predictions for more scenes."""
    head = ["training scenes", "steps", *(f"{group} {METRIC}" for group in laws)]
    rows: list[list[str]] = []
    for i, result in enumerate(results):
        errors = [_text(law.errors[i]) for law in laws.values()]
        rows.append([f"{training_scenes(result):,}", f"{result.training.get('steps', 0):,}", *errors])
    first_law = next(iter(laws.values()))
    predicted = [_text(law.predicted[:, -1]) for law in laws.values()]
    rows.append([f"{first_law.at[-1]:,.0f}", "power law", *predicted])
    exponents = [_text(law.exponent) for law in laws.values()]
    rows.append(["exponent", "", *exponents])
    return markdown(head, rows)


def _text(interval: Sequence[float] | NDArray[np.float64]) -> str:
    mean, low, high = interval
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def main(*results: Path, scenes: int = 205_942, out: Path | None = None) -> None:
    """Fit how a recipe's error falls with training scenes, and print a prediction for more scenes.

    Example: python tools/scaling.py runs/scaling_*/version_0/evaluation.json --out scaling.png

    Args:
        results: JSON files of runs that differ in --data.hold_out, as written by train and evaluate.
        scenes: Number of training scenes to predict the error for.
        out: Picture to write.
    """
    try:
        trained: list[Evaluation] = []
        for path in results:
            trained += [result for result in read_results(path) if result.training]
        trained.sort(key=training_scenes)
        laws = {group: fit(trained, scenes, group) for group in ROLES}
        print(table(trained, laws))
        if out is not None:
            save_scene(draw(trained, laws), out, dpi=110)
            print(f"wrote {out}")
    except (DataError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    cyclopts.run(main)
