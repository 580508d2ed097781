"""Few colours for many pictures: the palette of a GIF."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

#: How many: one of a GIF's 256 is left for "as before".
COLORS = 255
#: A colour weighs as the area that it covers to this power: the road counts, and so does a thin line on it.
AREA_POWER = 0.25
#: Not yet looked up.
UNKNOWN = 255


class Palette:
    """The :data:`COLORS` colours that serve some pictures best; every colour has its nearest one for good.

    Args:
        pictures: ``[H, W, 3]`` uint8 each.

    Attributes:
        colors: ``[C, 3]`` uint8.
    """

    def __init__(self, pictures: Sequence[NDArray[np.uint8]]) -> None:
        every = np.concatenate([_codes(one).ravel() for one in pictures])
        codes, area = np.unique(every, return_counts=True)
        self.colors = _spread(_colors(codes), area.astype(np.float64) ** AREA_POWER, COLORS)
        self._nearest = np.full(1 << 24, UNKNOWN, np.uint8)

    def apply(self, picture: NDArray[np.uint8]) -> Image.Image:
        """``picture`` ``[H, W, 3]`` in these colours."""
        codes = _codes(picture)
        new = np.unique(codes[self._nearest[codes] == UNKNOWN])
        self._nearest[new] = self._look_up(_colors(new))
        image = Image.fromarray(self._nearest[codes])
        image.putpalette(self.colors.tobytes())
        return image

    def _look_up(self, colors: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Index of the nearest colour here to each of ``colors`` ``[M, 3]``."""
        a, b = colors.astype(np.float32), self.colors.astype(np.float32)
        # |a - b|² less |a|², which is the same for all b.
        return np.asarray(((b**2).sum(1) - 2 * a @ b.T).argmin(axis=1), np.uint8)


def _spread(colors: NDArray[np.uint8], weight: NDArray[np.float64], number: int) -> NDArray[np.uint8]:
    """At most ``number`` of ``colors`` ``[M, 3]``, one by one whichever is worst served by those before."""
    points = colors.astype(np.float32)
    chosen = [int(weight.argmax())]
    far = np.full(len(points), np.inf)
    while len(chosen) < number:
        far = np.minimum(far, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        worst = int((far * weight).argmax())
        if not far[worst]:
            break
        chosen.append(worst)
    return colors[chosen]


def _codes(picture: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Each colour ``[..., 3]`` as one number."""
    red, green, blue = (picture[..., i].astype(np.uint32) for i in range(3))
    return np.asarray(red << 16 | green << 8 | blue, np.uint32)


def _colors(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """The reverse of :func:`_codes`."""
    return np.stack([codes >> shift & 255 for shift in (16, 8, 0)], axis=-1).astype(np.uint8)
