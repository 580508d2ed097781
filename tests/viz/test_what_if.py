"""What if: who is removed is gone and nothing else changes; both futures are drawn and compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from trajpred.viz.what_if import WhatIf, mean_moved

from tests.viz.test_scene import artist, forecast, scenario, vertices
from trajpred.errors import DataError
from trajpred.predictors import load_predictor
from trajpred.predictors.perturbed import road_users, without
from trajpred.scenario import OBJECT_TYPES, Scenario, equal
from trajpred.viz import draw_scene


@pytest.fixture
def crowded(sample_scenarios: list[Scenario]) -> Scenario:
    return max(sample_scenarios, key=lambda one: len(one.tracks))


def test_who_is_removed_is_gone_and_nothing_else(crowded: Scenario) -> None:
    tracks = crowded.tracks
    gone = [str(name) for name in tracks.track_id[[3, 7]] if name != crowded.focal_id]
    left = without(crowded, gone).validate()
    assert left.tracks.track_id.tolist() == [name for name in tracks.track_id if name not in gone]
    rows = [tracks.index(name) for name in left.tracks.track_id]
    for name in ("position", "heading", "velocity", "valid", "object_type", "category"):
        assert np.array_equal(getattr(left.tracks, name), getattr(tracks, name)[rows]), name
    assert left.map is crowded.map and equal(without(crowded, []), crowded)


def test_the_focal_track_and_strangers_are_not_removed(crowded: Scenario) -> None:
    with pytest.raises(DataError, match="is the focal one"):
        without(crowded, [crowded.focal_id])
    with pytest.raises(DataError, match=f"'nobody' is not in scenario {crowded.scenario_id}"):
        without(crowded, ["AV", "nobody"])


def test_the_nearest_is_a_road_user_seen_now() -> None:
    """At the last observed step the bus is 4.5 m from the car, the walker 6.3 m, the AV 15.9 m."""
    scene = scenario()
    assert road_users(scene, ["nearest", "AV"]) == ["bus", "AV"]
    assert road_users(without(scene, ["bus", "walker"]), ["nearest"]) == ["AV"]
    left = without(scene, ["AV", "walker", "bus"])
    with pytest.raises(DataError, match="nobody is near"):  # the cyclist was lost before
        road_users(left, ["nearest"])
    cone = replace(scene.tracks, object_type=scene.tracks.object_type.copy())
    cone.object_type[scene.tracks.index("bus")] = OBJECT_TYPES.index("construction")
    assert road_users(replace(scene, tracks=cone), ["nearest"]) == ["walker"]


def test_mean_futures_are_weighted_by_probability() -> None:
    scene = scenario()
    seen = forecast(scene)
    moved = replace(seen, trajectory=seen.trajectory.copy())
    moved.trajectory[0, 1] += [3.0, 4.0]  # the mode of 30 %, by 5 m
    assert mean_moved(seen, moved, "car") == pytest.approx(np.full(30, 0.3 * 5.0))
    assert mean_moved(seen, moved, "walker") == pytest.approx(np.zeros(30))
    # Modes have no order.
    shuffled = replace(moved, trajectory=moved.trajectory[:, ::-1], probability=moved.probability[:, ::-1])
    assert mean_moved(seen, shuffled, "car") == pytest.approx(np.full(30, 1.5))
    with pytest.raises(DataError, match="'bus'"):
        mean_moved(seen, moved, "bus")


def test_a_model_without_a_neighbour_says_something_else_and_a_steady_one_the_same(crowded: Scenario) -> None:
    [nearest] = road_users(crowded, ["nearest"])
    scenes = [crowded, without(crowded, [nearest])]
    for name, least, most in (("argoverse2-demo", 0.001, 50.0), ("constant_velocity", 0.0, 0.0)):
        seen, unseen = load_predictor(name)(scenes)
        assert least <= mean_moved(seen, unseen, crowded.focal_id).max() <= most
        assert nearest in seen.track_id and nearest not in unseen.track_id


def test_both_futures_are_drawn_and_told() -> None:
    scene = scenario()
    seen, unseen = forecast(scene), forecast(scene, ("car",))
    unseen = replace(unseen, trajectory=unseen.trajectory + np.array([0.0, 2.0]))
    figure = draw_scene(scene, seen, what_if=WhatIf(("bus",), unseen))
    assert np.allclose(vertices(figure, "what-if-modes"), unseen.trajectory[0])
    assert len(vertices(figure, "focal-modes")) == 6
    [hollow] = artist(figure, "removed").get_paths()
    row = scene.tracks.index("bus")
    assert np.allclose(hollow.vertices[:4].mean(axis=0), scene.tracks.position[row, scene.num_observed - 1])
    assert "without bus" in [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert any("without bus: mean future 2.00 m away, 2.00 m at the end" in text for text in texts)
    figure.set_dpi(40)
    figure.canvas.draw()


def test_the_picture_holds_both_futures() -> None:
    scene = scenario()
    seen, far = forecast(scene), forecast(scene)
    far = replace(far, trajectory=far.trajectory + np.array([60.0, 0.0]))
    low, high = draw_scene(scene, seen, what_if=WhatIf(("bus",), far)).axes[0].get_xlim()
    assert low < far.trajectory[..., 0].min() and far.trajectory[0, ..., 0].max() < high


def test_a_what_if_without_a_forecast_is_refused() -> None:
    scene = scenario()
    with pytest.raises(DataError, match="what_if"):
        draw_scene(scene, what_if=WhatIf(("bus",), forecast(scene)))
    one = replace(forecast(scene), trajectory=forecast(scene).trajectory[:, :1], probability=np.ones((2, 1)))
    with pytest.raises(DataError, match="not drawn together with what_if"):
        draw_scene(scene, one, what_if=WhatIf(("bus",), one), world=0)
    with pytest.raises(DataError, match="'car'"):
        draw_scene(scene, forecast(scene), what_if=WhatIf(("bus",), forecast(scene, ("walker",))))


def test_long_names_are_cut_and_many_are_counted() -> None:
    some = forecast(scenario())
    assert WhatIf(("AV", "3c56fbc4-6d70-4367-8df7"), some).name == "without AV, 3c56fbc4"
    assert WhatIf(("3c56fbc4-6d70-4367-8df7", "1", "2"), some).name == "without 3c56fbc4 and 2 more"
