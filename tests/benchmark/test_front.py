"""Error against time: the best are those that nothing surpasses, and the command measures and draws them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import run
from trajpred.benchmark.front import Point, best, draw_front
from trajpred.evaluation import Interval, evaluate
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore


def test_the_best_are_not_surpassed_in_both_respects() -> None:
    """Against the definition, pair by pair."""
    random = np.random.default_rng(0)
    points = [
        Point(str(i), *values, Interval(error, 0, 0))
        for i, (*values, error) in enumerate(random.random((40, 2)))
    ]
    truth = {
        p.name for p in points if not any(q.cpu_ms < p.cpu_ms and q.error.mean < p.error.mean for q in points)
    }
    found = best(points)
    assert {p.name for p in found} == truth and 1 < len(found) < 40
    assert [p.cpu_ms for p in found] == sorted(p.cpu_ms for p in found)


def test_every_predictor_is_named_and_the_best_are_connected() -> None:
    points = [
        Point("quick", 1.0, Interval(3.0, 2.5, 3.5)),
        Point("slow and worse", 20.0, Interval(4.0, 3.0, 5.0)),
        Point("slow " + 200 * "w", 10.0, Interval(1.0, 0.9, 1.1)),
    ]
    figure = draw_front(points, "minFDE6")
    [axes], [legend] = figure.axes, figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert [name[:8] for name in names] == ["quick", "slow www", "slow and"]
    assert axes.lines[0].get_xydata().tolist() == [[1.0, 3.0], [10.0, 1.0]]
    figure.draw_without_rendering()
    assert axes.bbox.width > 0.4 * figure.bbox.width and legend.get_window_extent().x1 <= figure.bbox.width


@pytest.mark.parametrize(("low", "scale"), [(0.5, "log"), (0.0, "linear")])
def test_errors_are_on_a_logarithmic_scale_unless_an_interval_reaches_zero(low: float, scale: str) -> None:
    points = [Point("a", 1, Interval(2, low, 3)), Point("b", 2, Interval(1, 0.9, 1.1))]
    [axes] = draw_front(points, "MR6").axes
    bottom, top = axes.get_ylim()
    assert axes.get_yscale() == scale and bottom <= low and top > 3


def test_measures_and_draws(store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["constant_velocity", "lane_following"]
    out = tmp_path / "front.svg"
    words = [word for name in names for word in ("--checkpoint", name)]
    assert run("benchmark", "front", *words, "--store", store_path, "--out", out) == 0
    printed = capsys.readouterr().out
    for name in names:
        found = evaluate(load_predictor(name), ScenarioStore(store_path, "val"), progress=False)
        assert f"minFDE6 {found.metrics['focal']['minFDE6']:.2f}" in printed
    assert out.read_text().endswith("</svg>\n")
    assert run("benchmark", "front", "--checkpoint", names[0], "--metric", "minXDE", "--out", out) == 2
