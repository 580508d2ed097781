"""Colours are distinguishable for everybody, both themes are complete, and names in any script are drawn."""

from __future__ import annotations

import logging
import re
import warnings
from io import BytesIO
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.font_manager import FontProperties, findfont, get_font

from tests.conftest import ROOT
from trajpred import Scenario
from trajpred.viz import draw_scene
from trajpred.viz.page import SCRIPTS, page_colors
from trajpred.viz.style import LIGHT, PAINT, THEMES, UNKNOWN, Role, Theme, legible

STATIC = ROOT / "trajpred" / "viz" / "page" / "static"
#: Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
VISION = {
    "full": np.eye(3),
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
#: A sign that matplotlib's STIX fonts have and its default font lacks.
RARE = "\N{EQUALS SIGN ABOVE PLUS SIGN}"
#: No font has it: it is for private use.
NOBODYS = "\U00100000"
BOTH = pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))


def linear(color: Any) -> np.ndarray:
    """Convert sRGB to linear RGB."""
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def luminance(color: Any) -> float:
    return float(linear(color) @ [0.2126, 0.7152, 0.0722])


def contrast(first: Any, second: Any) -> float:
    """Contrast ratio of the Web Content Accessibility Guidelines, 1 to 21."""
    dark, bright = sorted((luminance(first), luminance(second)))
    return (bright + 0.05) / (dark + 0.05)


def lab(color: Any, vision: str) -> np.ndarray:
    """CIE L*a*b* of a colour as perceived."""
    seen = np.clip(np.array(VISION[vision]) @ linear(color), 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    f = np.cbrt(to_xyz @ seen / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@BOTH
@pytest.mark.parametrize("vision", VISION)
def test_roles_are_distinguishable(theme: Theme, vision: str) -> None:
    """A difference of 2.3 is just noticeable side by side; small boxes far apart need several times that."""
    for first, second in combinations(Role, 2):
        apart = np.linalg.norm(lab(theme.role[first], vision) - lab(theme.role[second], vision))
        assert apart > 15, (first.name, second.name, apart)


def test_roles_printed_in_grey_differ_in_lightness() -> None:
    for first, second in combinations(Role, 2):
        apart = lab(LIGHT.role[first], "full")[0] - lab(LIGHT.role[second], "full")[0]
        assert abs(apart) > 7, (first.name, second.name, apart)


@BOTH
def test_themes_are_complete_with_contrast(theme: Theme) -> None:
    assert len(theme.role) == len(Role)
    assert len(theme.role_edge) == len(Role)
    assert len(theme.paint) == len(PAINT)
    for ground in (theme.paper, theme.background, theme.ground):
        assert contrast(theme.ink, ground) > 7
        assert contrast(theme.muted, ground) > 4
    for color in theme.role:
        assert contrast(color, theme.ground) > 1.7


@BOTH
@pytest.mark.parametrize("vision", VISION)
def test_probabilities_differ_from_each_other_and_from_roles(theme: Theme, vision: str) -> None:
    """From 5 to 50 %, by lightness alone as well; widths and labels add to it."""
    colors = theme.mode_colors(np.array([0.05, 0.1, 0.2, 0.3, 0.5, 1.0]))[:, :3]
    modes = np.stack([lab(color, vision) for color in colors])
    roles = np.stack([lab(color, vision) for color in theme.role])
    steps = np.diff(modes, axis=0)
    assert np.linalg.norm(steps, axis=1).min() > 6
    assert np.abs(steps[:, 0]).min() > 5
    assert np.linalg.norm(modes[:, None] - roles, axis=2).min() > 12
    contrasts = [contrast(color, theme.background) for color in colors]
    assert contrasts == sorted(contrasts), "likelier: more contrast"
    assert len(set(contrasts)) == len(contrasts)


def test_a_theme_names_the_colours_that_the_script_uses() -> None:
    used = set(re.findall(r"colors\.(\w+)", "".join((STATIC / name).read_text() for name in SCRIPTS)))
    assert used - {"text", "leader"} <= page_colors(LIGHT).keys()


def test_a_font_that_has_all_characters_is_chosen() -> None:
    own = findfont(FontProperties())
    assert ord(RARE) not in get_font(own).get_charmap()
    assert legible("scene 7 · ≤")[1].get_file() == own
    text, font = legible(f"a {RARE}")
    assert text == f"a {RARE}"
    assert ord(RARE) in get_font(font.get_file()).get_charmap()
    assert legible(f"a {NOBODYS}")[0] == f"a {UNKNOWN}"


@pytest.mark.parametrize("name", ["雨の交差点 7", f"{RARE} 7", "ไทย 雨 한국"])
def test_a_scene_of_any_name_is_drawn_without_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    ahead = np.zeros((1, 30, 2)) + np.arange(30)[:, None]
    scenario = Scenario.from_arrays(ahead, num_observed=20, scenario_id=name)
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        for suffix in ("png", "svg"):
            draw_scene(scenario).savefig(BytesIO(), format=suffix)
    assert not caplog.records
