"""The two themes: what they must have in common, and that colours can be told apart, by everyone."""

from __future__ import annotations

from dataclasses import fields
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from tests.viz.test_scene import artist, forecast, lane_map, scenario
from trajpred.errors import DataError
from trajpred.lane_map import MARK_TYPES
from trajpred.viz import draw_scene
from trajpred.viz.style import LIGHT, PAINT, PROBABILITY_NORM, THEMES, Role, Theme, mark_strokes

#: Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
SIGHT = {
    "full": np.eye(3),
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
BOTH = pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))


def linear(color: Any) -> np.ndarray:
    """sRGB as a display emits it."""
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def luminance(color: Any) -> float:
    return float(linear(color) @ [0.2126, 0.7152, 0.0722])


def contrast(one: Any, other: Any) -> float:
    """As the Web Content Accessibility Guidelines have it, 1 to 21."""
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def lab(color: Any, sight: str) -> np.ndarray:
    """CIE L*a*b* of what somebody sees."""
    seen = np.clip(np.array(SIGHT[sight]) @ linear(color), 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    f = np.cbrt(to_xyz @ seen / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@BOTH
@pytest.mark.parametrize("sight", SIGHT)
def test_roles_can_be_told_apart(theme: Theme, sight: str) -> None:
    """A difference of 2.3 is just noticeable side by side; small boxes far apart need several times that."""
    for one, other in combinations(Role, 2):
        apart = np.linalg.norm(lab(theme.role[one], sight) - lab(theme.role[other], sight))
        assert apart > 15, (one.name, other.name, apart)


def test_roles_printed_in_grey_differ_in_lightness() -> None:
    for one, other in combinations(Role, 2):
        lightness = [lab(LIGHT.role[role], "full")[0] for role in (one, other)]
        assert abs(lightness[0] - lightness[1]) > 7, (one.name, other.name, lightness)


@BOTH
def test_text_and_lines_stand_out(theme: Theme) -> None:
    for ground in (theme.paper, theme.background, theme.ground):
        assert contrast(theme.ink, ground) > 7 and contrast(theme.muted, ground) > 4
    for role in Role:
        assert contrast(theme.role[role], theme.ground) > 1.7


@BOTH
def test_colours_follow_probability_away_from_the_background(theme: Theme) -> None:
    name = next(name for name, found in THEMES.items() if found is theme)
    scene = scenario()
    told = forecast(scene)
    colors = artist(draw_scene(scene, told, theme=name), "focal-modes").get_colors()
    rising = np.sort(told.probability[0])
    np.testing.assert_allclose(colors, theme.probability(PROBABILITY_NORM(rising)))
    steps = np.array([contrast(color[:3], theme.background) for color in colors])
    distinct = np.diff(rising) > 0
    assert (np.diff(steps)[distinct] > 0).all() and (np.diff(colors[:, 3])[distinct] > 0).all()


def test_a_theme_colours_the_whole_picture() -> None:
    """Nothing light is left in a dark picture but lines, text and road users."""
    scene = scenario(map=lane_map())
    figure = draw_scene(scene, forecast(scene), theme="dark")
    figure.set_dpi(60)
    figure.canvas.draw()
    bright = np.asarray(figure.canvas.buffer_rgba())[..., :3].mean(axis=-1) > 128
    assert 0.001 < bright.mean() < 0.06
    with pytest.raises(DataError, match=r"'theme': must be light or dark, is 'sepia'"):
        draw_scene(scene, theme="sepia")


@BOTH
def test_a_theme_is_complete(theme: Theme) -> None:
    assert set(theme.role) == set(theme.role_edge) == set(Role) and set(theme.paint) == set(PAINT)
    for field in fields(theme):
        value = getattr(theme, field.name)
        if isinstance(value, str):
            to_rgb(value)


@pytest.mark.parametrize(
    ("name", "strokes"),
    [("SOLID_WHITE", ((0, False),)), ("DASHED_YELLOW", ((0, True),)), ("NONE", ((0, False),)),
     ("SOLID_DASH_WHITE", ((-1, False), (1, True))), ("DOUBLE_DASH_WHITE", ((-1, True), (1, True)))],
)  # fmt: skip
def test_mark_strokes(name: str, strokes: tuple[tuple[int, bool], ...]) -> None:
    assert mark_strokes(MARK_TYPES.index(name)) == strokes
