"""The numbers above a picture are av2's, and fit its width."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from av2.datasets.motion_forecasting.eval.metrics import (
    compute_ade,
    compute_brier_fde,
    compute_fde,
    compute_is_missed_prediction,
    compute_world_fde,
)
from trajpred.viz.caption import errors, judge

from tests.viz.test_scene import OBSERVED, artist, forecast, scenario
from trajpred.forecast import Forecast
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.viz import draw_scene


def truth_of(scene: Scenario, name: str) -> np.ndarray:
    return scene.tracks.position[scene.tracks.index(name), OBSERVED:]


def marginal(scene: Scenario, names: tuple[str, ...]) -> Forecast:
    """Everyone with probabilities of their own."""
    told = forecast(scene, names)
    mixed = [np.roll(p, i) for i, p in enumerate(told.probability)]
    return replace(told, probability=np.stack(mixed))


def test_focal_metrics_are_those_of_av2() -> None:
    scene = scenario()
    told = forecast(scene)
    modes, truth = told.trajectory[0], truth_of(scene, "car")
    ade, fde = compute_ade(modes, truth), compute_fde(modes, truth)
    brier = compute_brier_fde(modes, truth, told.probability[0])[fde.argmin()]
    missed = compute_is_missed_prediction(modes, truth).all()
    text = artist(draw_scene(scene, told), "metrics").get_text()
    verdict = "miss (> 2 m)" if missed else "hit (≤ 2 m)"
    expected = f"minADE {ade.min():.2f} m · minFDE {fde.min():.2f} m · brier-minFDE {brier:.2f} m · {verdict}"
    assert text.split("   |   ")[0] == expected


def test_scored_metrics_are_the_mean_over_the_scored() -> None:
    """The pedestrian is scored like the focal car, the bus is not."""
    scene = scenario()
    told = marginal(scene, ("bus", "walker", "car"))
    modes = {name: told.trajectory[row] for row, name in enumerate(("bus", "walker", "car"))}
    fde = [compute_fde(modes[name], truth_of(scene, name)).min() for name in ("car", "walker")]
    missed = sum(error > 2 for error in fde)
    text = artist(draw_scene(scene, told), "metrics").get_text()
    assert text.endswith(f"   |   2 scored: minFDE {np.mean(fde):.2f} m, {missed} missed")
    alone = artist(draw_scene(scene, forecast(scene, ("car",))), "metrics").get_text()
    assert "scored" not in alone


def test_world_metrics_are_those_of_av2() -> None:
    scene = scenario()
    told = forecast(scene, ("car", "walker"))
    truth = np.stack([truth_of(scene, name) for name in ("car", "walker")])
    world = compute_world_fde(told.trajectory, truth)
    assert judge(scene, told).endswith(f"2 scored: avgMinFDE {world.min():.2f} m")
    second = int(np.argsort(-told.probability[0], kind="stable")[1])
    fde = compute_fde(told.trajectory[0], truth[0])[second]
    ade = compute_ade(told.trajectory[0], truth[0])[second]
    text = judge(scene, told, world=1)
    assert text.startswith(f"ADE {ade:.2f} m · FDE {fde:.2f} m · ")
    assert f"2 scored: FDE {world[second]:.2f} m, " in text


def test_minimum_ade_need_not_be_that_of_the_best_end() -> None:
    scene = Scenario.from_arrays(np.zeros((1, 6, 2)), num_observed=2)
    modes = np.zeros((1, 2, 4, 2))
    modes[0, 0, :, 0] = [9, 9, 9, 1]  # Ends well, ADE 7.
    modes[0, 1, :, 0] = [0, 0, 0, 3]  # Ends worse, ADE 0.75.
    told = Forecast.from_trajectories(
        scene.scenario_id, np.array(["0"]), modes, np.full((1, 2), 0.5),
        origin=np.zeros((1, 2)), origin_heading=np.zeros(1), step_s=0.1,
    )  # fmt: skip
    found = errors(scene, told, np.array([0]))
    assert [found[name].item() for name in ("minADE", "minFDE", "MR")] == [0.75, 1.0, 0.0]


def test_no_metrics_without_a_future() -> None:
    scene = scenario(OBSERVED)
    assert judge(scene, forecast(scene)) == "" and judge(scenario(), None) == ""
    figure = draw_scene(scene, forecast(scene))
    assert artist(figure, "told").get_text() == "2.0 s observed, 3.0 s predicted, 6 modes"
    assert not figure.axes[0].findobj(lambda part: part.get_gid() == "metrics")


def test_a_truth_shorter_than_the_forecast_is_judged_as_far_as_it_goes() -> None:
    scene, told = scenario(OBSERVED + 7), forecast(scenario())
    fde = compute_fde(told.trajectory[0, :, :7], scene.tracks.position[0, OBSERVED:])
    assert f"minFDE {fde.min():.2f} m" in judge(scene, told)


@pytest.mark.parametrize("world", [None, 0])
def test_the_longest_caption_fits(world: int | None) -> None:
    """100 scored tracks of the longest type, a long city, errors of three digits."""
    t = np.arange(50)[:, None] * 0.1
    position = np.arange(100.0)[:, None, None] * [0, 3.0] + t * [20.0, 0.0]
    kind = max(OBJECT_TYPES, key=len)
    scene = Scenario.from_arrays(
        position, num_observed=20, object_type=kind, scenario_id="0" * 36, city="washington-dc"
    )
    row = np.arange(100)
    told = Forecast.from_trajectories(
        scene.scenario_id, scene.tracks.track_id, np.full((100, 6, 30, 2), 700.0), np.full((100, 6), 1 / 6),
        origin=position[row, 19], origin_heading=np.zeros(100), step_s=0.1,
    )  # fmt: skip
    if world is None:
        mixed = told.probability + np.linspace(-0.01, 0.01, 100)[:, None] * [1, -1, 0, 0, 0, 0]
        told = replace(told, probability=mixed)
    figure = draw_scene(scene, told, world=world)
    figure.canvas.draw()
    edge = figure.axes[0].get_window_extent().x1
    for gid in ("caption", "told", "metrics"):
        assert artist(figure, gid).get_window_extent().x1 <= edge, gid
