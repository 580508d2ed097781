"""Colours, line styles and drawing order of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import matplotlib
import numpy as np
from matplotlib.colors import Colormap, LinearSegmentedColormap, PowerNorm

from trajpred.errors import require
from trajpred.lane_map import MARK_TYPES


class Role(IntEnum):
    """Role of an agent in the picture; higher roles are drawn above lower ones."""

    OTHER = 0
    SCORED = 1
    EGO = 2
    FOCAL = 3


class Layer(IntEnum):
    """Drawing order (matplotlib's ``zorder``)."""

    GROUND = 1
    LANE_TINT = 2
    CROSSING = 3
    CENTERLINE = 4
    MARK = 5
    BAND = 6
    HISTORY = 7
    OTHER_MODES = 8
    AGENT = 9
    OTHER_TRUTH = 10
    MODES = 11
    TRUTH = 12
    FOCAL_AGENT = 13
    END = 14
    TRUTH_END = 15
    LABEL = 16


ROLE_NAMES = {
    Role.FOCAL: "focal agent",
    Role.EGO: "recording vehicle",
    Role.SCORED: "scored agent",
    Role.OTHER: "other agent",
}
#: Colours of road paint, see :attr:`Theme.paint`.
PAINT = ("WHITE", "YELLOW", "BLUE")
#: Lane types whose area is tinted.
TINTS = ("BUS", "BIKE", "INTERSECTION")
#: Dash and gap of a dashed mark, in multiples of the line width.
DASH = (0.0, (6.0, 5.0))
SOLID = (0.0, ())

#: Fixed, so that pictures are comparable; the square root spreads the low values typical of six modes.
PROBABILITY_NORM = PowerNorm(0.5, vmin=0.0, vmax=1.0)
PROBABILITY_TICKS = (0.0, 0.05, 0.2, 0.5, 1.0)
#: Opacity of a mode of probability 0; one of probability 1 is opaque.
MIN_OPACITY = 0.65


@dataclass(frozen=True)
class Theme:
    """The colours of a picture, for paper or for dark screens.

    Attributes:
        paper: around the scene; background: of the scene off the road; frame: border of the scene.
        ink, muted: strong and weak text and lines; halo: outline that separates them from the background.
        nose: heading mark on an agent.
        ground, ground_edge: drivable area.
        intersection, bike_lane, bus_lane: tints of lanes.
        centerline, centerline_bare: in maps with and without lane boundaries.
        crossing, crossing_bar: a pedestrian crossing and its painted bars.
        paint: by the name in ``PAINT``; unpainted: lane boundaries without paint.
        role, role_edge: fill and outline of an agent.
        what_if: the forecast without some road users.
        probability: on the scale of ``PROBABILITY_NORM``; likelier has more contrast with the background.
        attention: attention shares; never in the same picture as ``what_if``.
    """

    paper: str
    background: str
    frame: str
    ink: str
    muted: str
    halo: str
    nose: str
    ground: str
    ground_edge: str
    intersection: str
    bike_lane: str
    bus_lane: str
    centerline: str
    centerline_bare: str
    crossing: str
    crossing_bar: str
    paint: Mapping[str, str]
    unpainted: str
    role: Mapping[Role, str]
    role_edge: Mapping[Role, str]
    what_if: str
    probability: Colormap
    attention: str

    @property
    def tints(self) -> tuple[str, ...]:
        """Colours of ``TINTS``."""
        return self.bus_lane, self.bike_lane, self.intersection

    def mark_color(self, mark: int) -> str:
        """Return the colour of a lane mark, an index into ``MARK_TYPES``."""
        return self.paint.get(paint_of(mark), self.unpainted)

    def mode_colors(self, probability: np.ndarray, opacity: float = 1.0) -> np.ndarray:
        """Return RGBA ``[M, 4]`` for modes of ``probability`` ``[M]``; alpha is multiplied by ``opacity``."""
        colors = self.probability(PROBABILITY_NORM(probability))
        return np.asarray(colors * np.array([1.0, 1.0, 1.0, opacity]), np.float64)


def _ramp(name: str, colors: np.ndarray) -> Colormap:
    """Return a colour map through ``colors`` ``[N, 4]`` with rising opacity."""
    colors[:, 3] = np.linspace(MIN_OPACITY, 1.0, len(colors))
    return LinearSegmentedColormap.from_list(name, colors)


_VIRIDIS = matplotlib.colormaps["viridis"]
#: For paper. Roles use Okabe and Ito's palette, safe for colour-blind readers, with a darker green so that
#: they also differ in lightness. Road paint is darkened: white to grey, yellow to ochre.
LIGHT = Theme(
    paper="#FFFFFF",
    background="#FBFBFA",
    frame="#C9CDD3",
    ink="#23272E",
    muted="#667080",
    halo="#FFFFFF",
    nose="#FFFFFF",
    ground="#E9EBEE",
    ground_edge="#BFC5CD",
    intersection="#DCE2EA",
    bike_lane="#E0E9E1",
    bus_lane="#ECE4DA",
    centerline="#C6CCD5",
    centerline_bare="#A4ACB8",
    crossing="#D3D8DF",
    crossing_bar="#FFFFFF",
    paint={"WHITE": "#9BA3AF", "YELLOW": "#DDA51B", "BLUE": "#5B8DC9"},
    unpainted="#DADEE4",
    role={Role.OTHER: "#A9AFB8", Role.SCORED: "#0072B2", Role.EGO: "#005C44", Role.FOCAL: "#D55E00"},
    role_edge={Role.OTHER: "#7C838E", Role.SCORED: "#00436A", Role.EGO: "#003427", Role.FOCAL: "#7A3600"},
    what_if="#C2187A",
    # Likelier is darker. The yellow end of viridis is too pale for lines.
    probability=_ramp("trajpred_light", _VIRIDIS(np.linspace(0.86, 0.0, 64))),
    attention="#C2187A",
)
#: For dark screens: the same hues, lighter; likelier is brighter.
DARK = Theme(
    paper="#0F1215",
    background="#14171B",
    frame="#39414B",
    ink="#E8EBEF",
    muted="#9AA4B1",
    halo="#14171B",
    nose="#14171B",
    ground="#22272E",
    ground_edge="#454D58",
    intersection="#29313C",
    bike_lane="#253029",
    bus_lane="#332C25",
    centerline="#3A424D",
    centerline_bare="#566070",
    crossing="#303741",
    crossing_bar="#4A535F",
    paint={"WHITE": "#7C8693", "YELLOW": "#B98A1F", "BLUE": "#4F7FB3"},
    unpainted="#343B45",
    role={Role.OTHER: "#78818D", Role.SCORED: "#4FA8E0", Role.EGO: "#9DEBD4", Role.FOCAL: "#F0823A"},
    role_edge={Role.OTHER: "#A3ABB6", Role.SCORED: "#A8D6F5", Role.EGO: "#D5F7EE", Role.FOCAL: "#FFD0AE"},
    what_if="#FF7AC3",
    probability=_ramp("trajpred_dark", _VIRIDIS(np.linspace(0.3, 1.0, 64))),
    attention="#FF7AC3",
)
THEMES = {"light": LIGHT, "dark": DARK}


def get_theme(name: str) -> Theme:
    """Return a theme by name. Raises: DataError listing the known names."""
    require(name in THEMES, "theme", f"must be {' or '.join(THEMES)}, is {name!r}")
    return THEMES[name]


def paint_of(mark: int) -> str:
    """Return the paint of a lane mark (an index into ``MARK_TYPES``); not in ``PAINT`` if unpainted."""
    return MARK_TYPES[mark].rsplit("_", 1)[-1]


def mark_strokes(mark: int) -> tuple[tuple[int, bool], ...]:
    """Return the lines that make up a lane mark, an index into ``MARK_TYPES``.

    Returns:
        (side, dashed) of each line: side 0 is a single line, -1 the line next to the lane that owns the mark,
        +1 the line away from it. As in av2's renderer, ``SOLID_DASH`` names the near line first.
    """
    pattern = MARK_TYPES[mark].rsplit("_", 1)[0]
    double = {
        "DOUBLE_SOLID": ((-1, False), (1, False)),
        "DOUBLE_DASH": ((-1, True), (1, True)),
        "SOLID_DASH": ((-1, False), (1, True)),
        "DASH_SOLID": ((-1, True), (1, False)),
    }
    return double.get(pattern, ((0, pattern == "DASHED"),))
