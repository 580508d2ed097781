"""The colours of the canvas, light and dark, by name: those of the pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from trajpred.viz.style import PAINT, THEMES, Theme

#: Steps from the probability 0 to 1 on the scale of ``style.PROBABILITY_NORM``.
RAMP = 32


def themes() -> dict[str, dict[str, Any]]:
    """``light`` and ``dark``, the same names in both."""
    return {name: _colors(theme) for name, theme in THEMES.items()}


def _colors(theme: Theme) -> dict[str, Any]:
    return {
        "background": theme.background,
        "ink": theme.ink,
        "muted": theme.muted,
        "halo": theme.halo,
        "ground": theme.ground,
        "ground_edge": theme.ground_edge,
        "tint": list(theme.tints),
        "paint": [theme.unpainted, *(theme.paint[name] for name in PAINT)],
        "centerline": theme.centerline,
        "centerline_bare": theme.centerline_bare,
        "crossing": theme.crossing,
        "bar": theme.crossing_bar,
        "role": {role.name: color for role, color in theme.role.items()},
        "role_edge": {role.name: color for role, color in theme.role_edge.items()},
        "nose": theme.nose,
        "attention": theme.attention,
        "ramp": [to_hex(color) for color in theme.probability(np.linspace(0, 1, RAMP))],
    }
