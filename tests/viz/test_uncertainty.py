"""The band around a mode holds the share it says, and nothing folds over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import shapely
from trajpred.viz.uncertainty import across, bands

from tests.viz.test_scene import FUTURE, artist, forecast, scenario
from trajpred.forecast import Forecast
from trajpred.scenario import Scenario
from trajpred.viz import draw_scene


def told(scene: Scenario, ahead: float = 0.5, left: float = 0.2) -> Forecast:
    """The same Laplace scales at every step."""
    plain = forecast(scene)
    return replace(plain, scale=np.broadcast_to([ahead, left], plain.trajectory.shape))


def test_half_of_the_width_is_ln_5_scales() -> None:
    """P(|x| < w) = 1 - exp(-w / b) of a Laplace distribution with scale b, across a mode straight ahead."""
    scene = scenario()
    some = told(scene)
    straight = replace(some, heading=np.zeros_like(some.heading) + scene.tracks.heading[0, 19])
    width = across(scene, straight)[0]
    np.testing.assert_allclose(1 - np.exp(-width / 0.2), 0.8)
    np.testing.assert_allclose(width, np.log(5) * 0.2)


def test_a_band_lies_around_its_mode() -> None:
    scene = scenario()
    some = told(scene, ahead=0.4, left=0.4)
    for path, outline in zip(some.trajectory[0], bands(scene, some, 0), strict=True):
        band, line = shapely.Polygon(outline), shapely.LineString(path)
        assert band.is_valid and band.contains(line)
        # The same scale in every direction: the band is the line, thickened.
        exact = line.buffer(np.log(5) * 0.4)
        assert band.symmetric_difference(exact).area < 0.03 * exact.area


def test_a_mode_that_turns_round_has_a_plain_band() -> None:
    scene = scenario()
    some = told(scene, 1.5, 1.5)
    angle = np.linspace(0, 1.5 * np.pi, FUTURE)
    turn = some.trajectory[0, 0, 0] + np.stack((np.sin(angle), 1 - np.cos(angle)), -1)
    tight = replace(some, trajectory=np.broadcast_to(turn, some.trajectory.shape))
    for outline in bands(scene, tight, 0):
        assert shapely.Polygon(outline).is_valid


@pytest.mark.parametrize("steps", [1, 2])
def test_few_steps(steps: int) -> None:
    scene = scenario()
    some = told(scene)
    assert some.scale is not None
    short = replace(
        some,
        trajectory=some.trajectory[:, :, :steps],
        heading=some.heading[:, :, :steps],
        speed=some.speed[:, :, :steps],
        scale=some.scale[:, :, :steps],
    )
    draw_scene(scene, short).canvas.draw()


def test_the_picture_shows_the_bands_of_the_focal_agent() -> None:
    scene = scenario()
    some = told(scene)
    shades = artist(draw_scene(scene, some), "bands")
    order = np.argsort(some.probability[0], kind="stable")
    for shade, k in zip(shades.get_paths(), order.tolist(), strict=True):
        np.testing.assert_allclose(shade.vertices[: len(bands(scene, some, 0)[k])], bands(scene, some, 0)[k])
    opacity = shades.get_facecolors()[:, 3]
    assert (np.diff(opacity) >= 0).all() and opacity[-1] < 0.3
    bare = draw_scene(scene, forecast(scene)).axes[0]
    assert not bare.findobj(lambda part: part.get_gid() == "bands")
