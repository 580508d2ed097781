"""The colours of the canvas, light and dark, by name. Light ones are those of the pictures."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_hex

from trajpred.viz import style
from trajpred.viz.style import Role

#: Steps from the probability 0 to 1 on the scale of ``style.PROBABILITY_NORM``.
RAMP = 32


def themes() -> dict[str, dict[str, Any]]:
    """``light`` and ``dark``, the same names in both."""
    return {"light": _light(), "dark": _dark()}


def _light() -> dict[str, Any]:
    return {
        "background": style.BACKGROUND,
        "ink": style.INK,
        "muted": style.MUTED,
        "halo": style.HALO,
        "ground": style.DRIVABLE,
        "ground_edge": style.DRIVABLE_EDGE,
        "tint": [style.BUS_LANE, style.BIKE_LANE, style.INTERSECTION],
        "paint": [style.UNPAINTED, *style.PAINT.values()],
        "centerline": style.CENTERLINE,
        "centerline_bare": style.CENTERLINE_BARE,
        "crossing": style.CROSSING,
        "bar": style.CROSSING_BAR,
        "role": {role.name: style.ROLE_COLORS[role] for role in Role},
        "role_edge": {role.name: style.ROLE_EDGES[role] for role in Role},
        "nose": style.HALO,
        "ramp": [to_hex(c) for c in style.PROBABILITY_COLORS(np.linspace(0, 1, RAMP))],
    }


def _dark() -> dict[str, Any]:
    """Okabe and Ito's hues a little lighter, and viridis turned round: the likelier, the brighter."""
    viridis = matplotlib.colormaps["viridis"](np.linspace(0.3, 1.0, RAMP))
    role = {Role.OTHER: "#78818D", Role.SCORED: "#4FA8E0", Role.EGO: "#2CC196", Role.FOCAL: "#F0823A"}
    edge = {Role.OTHER: "#A3ABB6", Role.SCORED: "#A8D6F5", Role.EGO: "#98E5CF", Role.FOCAL: "#FFD0AE"}
    return {
        "background": "#14171B",
        "ink": "#E8EBEF",
        "muted": "#9AA4B1",
        "halo": "#14171B",
        "ground": "#22272E",
        "ground_edge": "#454D58",
        "tint": ["#332C25", "#253029", "#29313C"],
        "paint": ["#343B45", "#7C8693", "#B98A1F", "#4F7FB3"],
        "centerline": "#3A424D",
        "centerline_bare": "#566070",
        "crossing": "#303741",
        "bar": "#4A535F",
        "role": {kind.name: color for kind, color in role.items()},
        "role_edge": {kind.name: color for kind, color in edge.items()},
        "nose": "#14171B",
        "ramp": [to_hex(c) for c in viridis],
    }
