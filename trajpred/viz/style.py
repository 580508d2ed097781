"""How things look: colours, sizes, line styles and the order in which layers lie on one another."""

from __future__ import annotations

from enum import IntEnum

import matplotlib
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, PowerNorm

from trajpred.lane_map import MARK_TYPES


class Role(IntEnum):
    """What an agent is to the picture; higher roles are drawn over lower ones."""

    OTHER = 0
    SCORED = 1
    EGO = 2
    FOCAL = 3


class Layer(IntEnum):
    """Drawing order, matplotlib's ``zorder``."""

    GROUND = 1
    LANE_TINT = 2
    CROSSING = 3
    CENTERLINE = 4
    MARK = 5
    HISTORY = 6
    OTHER_MODES = 7
    AGENT = 8
    OTHER_TRUTH = 9
    MODES = 10
    TRUTH = 11
    FOCAL_AGENT = 12
    END = 13
    TRUTH_END = 14
    LABEL = 15


#: Okabe and Ito's palette, safe for colour-blind readers; grey for agents nobody asked about.
ROLE_COLORS = {Role.OTHER: "#A9AFB8", Role.SCORED: "#0072B2", Role.EGO: "#009E73", Role.FOCAL: "#D55E00"}
ROLE_EDGES = {Role.OTHER: "#7C838E", Role.SCORED: "#00436A", Role.EGO: "#005E45", Role.FOCAL: "#7A3600"}
ROLE_NAMES = {
    Role.FOCAL: "focal agent",
    Role.EGO: "recording vehicle",
    Role.SCORED: "scored agent",
    Role.OTHER: "other agent",
}

INK, MUTED, HALO = "#23272E", "#667080", "#FFFFFF"
BACKGROUND, FRAME = "#FBFBFA", "#C9CDD3"
DRIVABLE, DRIVABLE_EDGE = "#E9EBEE", "#BFC5CD"
INTERSECTION, BIKE_LANE, BUS_LANE = "#DCE2EA", "#E0E9E1", "#ECE4DA"
CENTERLINE, CENTERLINE_BARE = "#C6CCD5", "#A4ACB8"
CROSSING, CROSSING_BAR = "#D3D8DF", "#FFFFFF"

#: Paint as it is would vanish on paper: white becomes grey, yellow ochre.
PAINT = {"WHITE": "#9BA3AF", "YELLOW": "#DDA51B", "BLUE": "#5B8DC9"}
#: Edges of lanes without paint: just enough to see the lane.
UNPAINTED = "#DADEE4"
#: Dash and gap of a dashed mark, in multiples of the line width.
DASH = (0.0, (6.0, 5.0))
SOLID = (0.0, ())

#: Pale to deep viridis: the likelier, the darker, on paper too. Its yellow end is too faint for lines.
PROBABILITY_COLORS = LinearSegmentedColormap.from_list(
    "trajpred_probability", matplotlib.colormaps["viridis_r"](np.linspace(0.14, 1.0, 64))
)
#: Fixed, so that pictures compare; the square root spreads the low values that six modes share.
PROBABILITY_NORM = PowerNorm(0.5, vmin=0.0, vmax=1.0)
PROBABILITY_TICKS = (0.0, 0.05, 0.2, 0.5, 1.0)


def mark_color(mark: int) -> str:
    """Colour of a lane mark, an index into ``MARK_TYPES``."""
    return PAINT.get(MARK_TYPES[mark].rsplit("_", 1)[-1], UNPAINTED)


def mark_strokes(mark: int) -> tuple[tuple[int, bool], ...]:
    """The lines that make up a lane mark, an index into ``MARK_TYPES``.

    Returns:
        (side, dashed) of each line; side 0 is a single line, -1 the line next to the lane that owns the
        mark, +1 the one away from it. As in av2's renderer, ``SOLID_DASH`` names the near line first.
    """
    pattern = MARK_TYPES[mark].rsplit("_", 1)[0]
    double = {
        "DOUBLE_SOLID": ((-1, False), (1, False)),
        "DOUBLE_DASH": ((-1, True), (1, True)),
        "SOLID_DASH": ((-1, False), (1, True)),
        "DASH_SOLID": ((-1, True), (1, False)),
    }
    return double.get(pattern, ((0, pattern == "DASHED"),))
