"""Metrics in the caption are av2's; caption, legend and scale bar fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from av2.datasets.motion_forecasting.eval.metrics import (
    compute_ade,
    compute_brier_fde,
    compute_fde,
    compute_is_missed_prediction,
    compute_world_fde,
)

from tests.viz.scenes import OBSERVED, artists, make_forecast, make_scenario, marginal, text
from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.viz import draw_scene
from trajpred.viz.caption import describe_metrics


def truth_of(scene: Scenario, name: str) -> np.ndarray:
    return scene.tracks.position[scene.tracks.index(name), OBSERVED:]


def test_focal_metrics_and_means_over_the_scored_tracks_are_those_of_av2() -> None:
    """The pedestrian is scored like the focal car, the bus is not; a seventh mode counts nowhere."""
    scene = make_scenario()
    names = ("bus", "walker", "car")
    forecast = marginal(make_forecast(scene, names))
    modes, truth = forecast.trajectory[2], truth_of(scene, "car")
    ade, fde = compute_ade(modes, truth), compute_fde(modes, truth)
    brier = compute_brier_fde(modes, truth, forecast.probability[2])[fde.argmin()]
    missed = compute_is_missed_prediction(modes, truth).all()
    ends = [compute_fde(forecast.trajectory[row], truth_of(scene, names[row])).min() for row in (1, 2)]
    result = "miss (> 2 m)" if missed else "hit (≤ 2 m)"
    expected = f"minADE {ade.min():.2f} m · minFDE {fde.min():.2f} m · brier-minFDE {brier:.2f} m · {result}"
    expected += f"   |   2 scored: minFDE {np.mean(ends):.2f} m, {sum(end > 2 for end in ends)} missed"
    assert describe_metrics(scene, forecast) == expected
    true = np.stack([truth_of(scene, name) for name in names])[:, None]
    trajectory = np.concatenate((forecast.trajectory, true), axis=1)
    probability = np.concatenate((forecast.probability, np.zeros((3, 1))), axis=1)
    seven = replace(forecast, trajectory=trajectory, probability=probability)
    assert describe_metrics(scene, seven) == expected


def test_world_metrics_are_those_of_av2() -> None:
    scene = make_scenario()
    forecast = make_forecast(scene)
    truth = np.stack([truth_of(scene, name) for name in ("car", "walker")])
    world = compute_world_fde(forecast.trajectory, truth)
    assert describe_metrics(scene, forecast).endswith(f"2 scored: avgMinFDE {world.min():.2f} m")
    second = int(np.argsort(-forecast.probability[0], kind="stable")[1])
    errors = (compute_ade(forecast.trajectory[0], truth[0]), compute_fde(forecast.trajectory[0], truth[0]))
    found = describe_metrics(scene, forecast, joint_mode=1)
    assert found.startswith(f"ADE {errors[0][second]:.2f} m · FDE {errors[1][second]:.2f} m · ")
    assert f"2 scored: FDE {world[second]:.2f} m, " in found


def test_missing_and_short_futures() -> None:
    scene, short = make_scenario(OBSERVED), make_scenario(OBSERVED + 7)
    assert describe_metrics(scene, make_forecast(scene)) == ""
    figure = draw_scene(scene, make_forecast(scene))
    assert text(figure, "subtitle") == "2.0 s observed, 3.0 s predicted, 6 modes"
    assert not artists(figure, "metrics")
    forecast = make_forecast(make_scenario())
    fde = compute_fde(forecast.trajectory[0, :, :7], short.tracks.position[0, OBSERVED:])
    assert f"minFDE {fde.min():.2f} m" in describe_metrics(short, forecast)


def test_the_longest_caption_fits() -> None:
    """100 scored tracks of the type with the longest name, errors of three digits."""
    t = np.arange(50)[:, None] * 0.1
    position = np.arange(100.0)[:, None, None] * [0, 3.0] + t * [20.0, 0.0]
    scene = Scenario.from_arrays(
        position, num_observed=20, object_type=max(OBJECT_TYPES, key=len),
        scenario_id="0" * 36, city="washington-dc",
    )  # fmt: skip
    forecast = Forecast.from_trajectories(
        scene.scenario_id, scene.tracks.track_id, np.full((100, 6, 30, 2), 700.0), np.full((100, 6), 1 / 6),
        origin=position[:, 19], origin_heading=np.zeros(100), step_s=0.1,
    )  # fmt: skip
    mixed = forecast.probability + np.linspace(-0.01, 0.01, 100)[:, None] * [1, -1, 0, 0, 0, 0]
    figure = draw_scene(scene, replace(forecast, probability=mixed), tracks=["0"])
    figure.set_dpi(40)
    edge = figure.axes[0].get_window_extent().x1
    for gid in ("title", "subtitle", "metrics"):
        [line] = artists(figure, gid)
        assert line.get_window_extent().x1 <= edge, gid
