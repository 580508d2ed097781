"""Colours are distinguishable for everybody, and both themes are complete."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from trajpred.viz.style import LIGHT, PAINT, THEMES, Role, Theme

#: Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
VISION = {
    "full": np.eye(3),
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
BOTH = pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))


def linear(color: Any) -> np.ndarray:
    """Convert sRGB to linear RGB."""
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one: Any, other: Any) -> float:
    """Contrast ratio of the Web Content Accessibility Guidelines, 1 to 21."""
    dark, bright = sorted(float(linear(color) @ [0.2126, 0.7152, 0.0722]) for color in (one, other))
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
    for one, other in combinations(Role, 2):
        apart = np.linalg.norm(lab(theme.role[one], vision) - lab(theme.role[other], vision))
        assert apart > 15, (one.name, other.name, apart)


def test_roles_printed_in_grey_differ_in_lightness() -> None:
    for one, other in combinations(Role, 2):
        lightness = [lab(LIGHT.role[role], "full")[0] for role in (one, other)]
        assert abs(lightness[0] - lightness[1]) > 7, (one.name, other.name, lightness)


@BOTH
def test_themes_are_complete_with_contrast(theme: Theme) -> None:
    assert len(theme.role) == len(theme.role_edge) == len(Role) and len(theme.paint) == len(PAINT)
    for ground in (theme.paper, theme.background, theme.ground):
        assert contrast(theme.ink, ground) > 7 and contrast(theme.muted, ground) > 4
    assert all(contrast(theme.role[role], theme.ground) > 1.7 for role in Role)


@BOTH
@pytest.mark.parametrize("vision", VISION)
def test_probabilities_differ_from_each_other_and_from_roles(theme: Theme, vision: str) -> None:
    """From 5 to 50 %, by lightness alone as well; widths and labels add to it."""
    colors = theme.mode_colors(np.array([0.05, 0.1, 0.2, 0.3, 0.5, 1.0]))[:, :3]
    seen, roles = (np.stack([lab(one, vision) for one in many]) for many in (colors, theme.role))
    steps = np.diff(seen, axis=0)
    assert np.linalg.norm(steps, axis=1).min() > 6 and np.abs(steps[:, 0]).min() > 5
    assert np.linalg.norm(seen[:, None] - roles, axis=2).min() > 12
    assert (np.diff([contrast(one, theme.background) for one in colors]) > 0).all(), "likelier: more contrast"
