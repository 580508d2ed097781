"""Colours, line styles, fonts and drawing order of pictures."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, PowerNorm, to_rgba_array
from matplotlib.font_manager import FontEntry, FontProperties, findfont, fontManager, get_font

from trajpred.data.lane_map import MARK_TYPES
from trajpred.errors import require


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
    AGENT = 8
    OTHER_MODES = 9
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

#: Colour scale, fixed to make pictures comparable; the square root spreads the low values typical of six
#: modes.
PROBABILITY_NORM = PowerNorm(0.5, vmin=0.0, vmax=1.0)
PROBABILITY_TICKS = (0.0, 0.05, 0.2, 0.5, 1.0)
#: Opacity of a mode at probability 0; at probability 1 it is opaque.
MIN_OPACITY = 0.65


@dataclass(frozen=True)
class Theme:
    """The colours of a picture, for paper or for dark screens."""

    paper: str  # around the scene
    background: str  # of the scene off the road
    frame: str
    ink: str  # strong text and lines
    muted: str
    halo: str  # separates text and lines from the background
    nose: str  # heading mark on an agent
    ground: str  # drivable area
    ground_edge: str
    tints: tuple[str, ...]  # of TINTS
    strong_tints: tuple[str, ...]  # of a map alone
    centerline: str
    centerline_bare: str  # in maps without lane boundaries
    crossing: str
    crossing_bar: str
    paint: tuple[str, ...]  # of PAINT
    unpainted: str  # lane boundaries without paint
    role: tuple[str, ...]  # of Role, as is role_edge
    role_edge: tuple[str, ...]
    partners: tuple[str, ...]  # futures of road users that meet the focal agent
    what_if: str  # the forecast without some road users
    attention: str  # never in the same picture as what_if
    probability: Colormap  # on the scale of PROBABILITY_NORM; likelier means more contrast

    @property
    def for_map(self) -> Theme:
        """The theme for a map alone, with more contrast: in other pictures the road is background."""
        return replace(
            self,
            ground=self.ground_edge,
            ground_edge=self.muted,
            tints=self.strong_tints,
            centerline=self.muted,
            centerline_bare=self.ink,
            crossing=self.muted,
            crossing_bar=self.background,
            paint=(self.ink, *self.paint[1:]),
            unpainted=self.muted,
        )

    def mark_color(self, mark: int) -> str:
        """Return the colour of a lane mark, an index into ``MARK_TYPES``."""
        paint = paint_of(mark)
        if paint not in PAINT:
            return self.unpainted
        return self.paint[PAINT.index(paint)]

    def mode_colors(self, probability: np.ndarray, opacity: float = 1.0) -> np.ndarray:
        """Return RGBA ``[M, 4]`` for modes of ``probability`` ``[M]``; alpha is multiplied by ``opacity``."""
        colors = self.probability(PROBABILITY_NORM(probability))
        return np.asarray(colors * np.array([1.0, 1.0, 1.0, opacity]), np.float64)


def _ramp(*colors: str) -> Colormap:
    """Return a colour map through ``colors`` with rising opacity."""
    rgba = to_rgba_array(colors)
    rgba[:, 3] = np.linspace(MIN_OPACITY, 1.0, len(rgba))
    return LinearSegmentedColormap.from_list("trajpred", rgba)


# The themes have the same hues. Roles use Okabe and Ito's palette, safe for colour-blind readers, with a
# darker green so that they also differ in lightness. Hues and lightnesses of probabilities were searched for
# the largest distances from each other and from the roles, in all kinds of vision.

#: For paper; road paint is darkened: white to grey, yellow to ochre.
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
    tints=("#ECE4DA", "#E0E9E1", "#DCE2EA"),
    strong_tints=("#E3BE8E", "#A5D3AC", "#9DBBE0"),
    centerline="#C6CCD5",
    centerline_bare="#A4ACB8",
    crossing="#D3D8DF",
    crossing_bar="#FFFFFF",
    paint=("#9BA3AF", "#DDA51B", "#5B8DC9"),
    unpainted="#DADEE4",
    role=("#A9AFB8", "#0072B2", "#005C44", "#D55E00"),
    role_edge=("#7C838E", "#00436A", "#003427", "#7A3600"),
    partners=("#009E73", "#C2187A", "#1E90D2", "#B58900"),
    what_if="#C2187A",
    attention="#C2187A",
    # Likelier is darker.
    probability=_ramp("#EDB1FD", "#D38DF5", "#B167EE", "#8544E7", "#5A37B8", "#342889", "#111756"),
)
#: For dark screens; lighter.
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
    tints=("#332C25", "#253029", "#29313C"),
    strong_tints=("#6B4E2E", "#2F5E3C", "#34507A"),
    centerline="#3A424D",
    centerline_bare="#566070",
    crossing="#303741",
    crossing_bar="#4A535F",
    paint=("#7C8693", "#B98A1F", "#4F7FB3"),
    unpainted="#343B45",
    role=("#78818D", "#2F8FD0", "#9DEBD4", "#F0823A"),
    role_edge=("#A3ABB6", "#A8D6F5", "#D5F7EE", "#FFD0AE"),
    partners=("#2CC99A", "#FF7AC3", "#6CBBF2", "#E3C04B"),
    what_if="#FF7AC3",
    attention="#FF7AC3",
    # Likelier is brighter.
    probability=_ramp("#3E417A", "#5554B0", "#7266E7", "#9C7EFD", "#C09DFE", "#DDBEFD", "#F2E2FE"),
)
THEMES = {"light": LIGHT, "dark": DARK}


def get_theme(name: str) -> Theme:
    """Return a theme by name. Raises: DataError that lists the known names."""
    require(name in THEMES, "theme", f"must be {' or '.join(THEMES)}, is {name!r}")
    return THEMES[name]


def style_axes(axes: Axes, theme: Theme) -> None:
    """Style the axes of a chart: quiet ticks, horizontal grid lines, no box."""
    axes.set_facecolor(theme.background)
    axes.tick_params(colors=theme.muted, labelsize=8.5, length=3)
    axes.grid(axis="y", color=theme.ground, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(theme.frame)


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


# ----------------------------------------------------------------------------------------------- fonts

#: matplotlib's font with a box for every character.
BOXES = "Last Resort"
#: Replacement for characters missing in all installed fonts: matplotlib would warn and draw a box.
UNKNOWN = "?"
#: Weights by name, as font files state them.
WEIGHTS = {"normal": 400, "bold": 700}


@lru_cache(maxsize=1024)
def legible(text: str, weight: str = "normal") -> tuple[str, FontProperties]:
    """Return a text and an installed font for it, matplotlib's own if that has all characters.

    If all fonts lack some characters, the one with most is chosen, and the rest become question marks.
    """
    characters = {*text, UNKNOWN}
    default: str = findfont(FontProperties(weight=weight))
    best = default
    if not characters <= _characters_of(default):
        files = [default, *_installed(WEIGHTS[weight])]
        best = max(files, key=lambda file: len(characters & _characters_of(file)))
    for character in characters - _characters_of(best):
        text = text.replace(character, UNKNOWN)
    return text, FontProperties(fname=best)


def _installed(weight: int) -> list[str]:
    """List the files of installed fonts, upright ones of this weight and without serifs first."""

    def place(font: FontEntry) -> tuple[bool, bool, bool, str]:
        return font.style != "normal", font.weight != weight, "Sans" not in font.name, font.fname

    fonts = [font for font in fontManager.ttflist if not font.name.startswith(BOXES)]
    return [font.fname for font in sorted(fonts, key=place)]


@lru_cache(maxsize=4096)
def _characters_of(file: str) -> frozenset[str]:
    """Return the characters of a font; none if it cannot be read or scaled."""
    with suppress(RuntimeError, OSError):
        font = get_font(file)
        if font.scalable:
            return frozenset(map(chr, font.get_charmap()))
    return frozenset()
