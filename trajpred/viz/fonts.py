"""Fonts for names in any script."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from matplotlib.font_manager import FontEntry, FontProperties, findfont, fontManager, get_font

#: A font with a box for every character, which comes with matplotlib.
BOXES = "Last Resort"
#: In place of a character that no installed font has: matplotlib would warn, and draw a box.
UNKNOWN = "?"
#: Weights by name, as font files state them.
WEIGHTS = {"normal": 400, "bold": 700}


@lru_cache(maxsize=1024)
def legible(text: str, weight: str = "normal") -> tuple[str, FontProperties]:
    """Return a text, and an installed font for it: matplotlib's own if that has all characters.

    Of fonts that lack some, the one that has most is chosen, and the others are replaced by question marks.
    """
    characters = {*text, UNKNOWN}
    own: str = findfont(FontProperties(weight=weight))
    best = own
    if not characters <= _characters_of(own):
        files = [own, *_installed(WEIGHTS[weight])]
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
    """Return the characters of a font; none of one that cannot be read, or drawn at any size."""
    with suppress(RuntimeError, OSError):
        font = get_font(file)
        if font.scalable:
            return frozenset(map(chr, font.get_charmap()))
    return frozenset()
