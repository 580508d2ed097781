"""The palette of a GIF: exact where it can be, near elsewhere, and the same for every picture."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from trajpred.viz.palette import COLORS, Palette


def seen(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB")).astype(int)


@pytest.fixture
def noise() -> np.ndarray:
    """Thousands of colours on a large grey ground, and one red pixel."""
    picture = np.full((80, 100, 3), 230, np.uint8)
    picture[:40] = np.random.default_rng(0).integers(100, 256, (40, 100, 3))
    picture[60, 50] = (200, 0, 0)
    return picture


def test_few_colours_are_exact() -> None:
    ramp = np.arange(240, dtype=np.uint8)
    picture = np.stack((ramp, ramp[::-1], ramp // 2), axis=-1)[None]
    palette = Palette([picture])
    assert len(palette.colors) == 240 and (seen(palette.apply(picture)) == picture).all()


def test_of_many_each_gets_the_nearest(noise: np.ndarray) -> None:
    palette = Palette([noise])
    assert palette.colors.shape == (COLORS, 3)
    far = np.linalg.norm(noise.reshape(-1, 1, 3).astype(int) - palette.colors.astype(int), axis=-1).min(
        axis=1
    )
    assert np.allclose(np.linalg.norm(seen(palette.apply(noise)) - noise, axis=-1).ravel(), far)


def test_the_ground_and_a_single_odd_pixel_are_kept(noise: np.ndarray) -> None:
    drawn = seen(Palette([noise]).apply(noise))
    assert (drawn[70] == 230).all() and drawn[60, 50].tolist() == [200, 0, 0]


def test_a_colour_does_not_change_with_the_picture_it_is_in(noise: np.ndarray) -> None:
    palette = Palette([noise])
    one = palette.apply(noise)
    other = palette.apply(noise[::-1].copy())
    assert (seen(one)[::-1] == seen(other)).all()
