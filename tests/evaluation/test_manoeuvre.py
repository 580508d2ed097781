"""Manoeuvres of futures whose shape is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from trajpred.evaluation.manoeuvre import MANOEUVRES, manoeuvres

STEPS = np.arange(1, 61) / 60


def arc(length: float, turn: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A circular arc of that length (metres) that turns by ``turn`` radians in all; and its headings."""
    angle = turn * STEPS
    z = length / turn * (np.exp(1j * angle) - 1) / 1j if turn else length * STEPS + 0j
    return np.stack((z.real, z.imag), -1), angle


def aside(ahead: float, left: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A smooth step to the left while driving ahead, parallel at the end."""
    x, y = ahead * STEPS, left * (3 * STEPS**2 - 2 * STEPS**3)
    return np.stack((x, y), -1), np.arctan2(left * 6 * STEPS * (1 - STEPS), ahead)


@pytest.mark.parametrize(
    ("expected", "path"),
    [
        ("stationary", arc(1.9, 0)),
        ("straight", arc(2.1, 0)),
        ("straight", arc(60, np.deg2rad(25))),
        ("left turn", arc(30, np.deg2rad(90))),
        ("right turn", arc(30, -np.deg2rad(90))),
        ("U-turn", arc(25, np.deg2rad(170))),
        ("U-turn", arc(25, -np.deg2rad(170))),
        ("lane change", aside(60, 3.5)),
        ("lane change", aside(60, -3.5)),
        ("straight", aside(60, 1.5)),
        ("straight", aside(8, 3.5)),  # too steep for one
    ],
)
def test_what_it_is_called(expected: str, path: tuple[NDArray[np.float64], NDArray[np.float64]]) -> None:
    valid = np.ones((1, 60), bool)
    [found] = manoeuvres(path[0][None], path[1][None], valid)
    assert MANOEUVRES[found] == expected


def test_only_what_is_known_counts() -> None:
    future, heading = arc(30, np.deg2rad(90))
    valid = np.stack((STEPS < 0.2, STEPS < 0))  # 18 degrees of the turn, and nothing at all
    found = manoeuvres(np.stack((future, future)), np.stack((heading, heading)), valid)
    assert [MANOEUVRES[i] for i in found] == ["straight", "stationary"]
