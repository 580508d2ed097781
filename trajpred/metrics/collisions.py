"""Collisions of predicted road users: overlapping boxes of typical size.

City frame float64, metres, radians. Sizes: ``A`` agents, ``K`` modes, ``F`` future steps. NaN positions
(unknown steps) never collide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import norm, to_local

#: Boxes are scaled by this before they are compared: typical sizes are too large for half of all road users,
#: and positions err by a decimetre. Of Argoverse 2's true scored futures 2.3 % collide so, at full size 7 %.
BOX_SCALE = 0.9
#: Pairs of boxes compared at once.
_MAX_PAIRS = 1_000_000


@dataclass(frozen=True)
class _Boxes:
    """N oriented boxes.

    Attributes:
        center: ``[N, 2]`` metres.
        heading: ``[N]`` radians.
        half: ``[N, 2]`` metres, half the length and the width.
    """

    center: NDArray[np.float64]
    heading: NDArray[np.float64]
    half: NDArray[np.float64]

    def at(self, rows: NDArray[np.intp]) -> _Boxes:
        return _Boxes(self.center[rows], self.heading[rows], self.half[rows])


def collisions(
    trajectory: NDArray[np.float64],
    heading: NDArray[np.float64],
    size: NDArray[np.float64],
    scene: NDArray[np.int64],
    origin: NDArray[np.float64],
    origin_heading: NDArray[np.float64],
    box_scale: float = BOX_SCALE,
) -> NDArray[np.bool_]:
    """Return whether an agent's oriented box overlaps another's in world k: mode k of all agents of a scene.

    av2's threshold of 1 m between centres passes cars that scrape along each other and rejects people side
    by side. Pairs that already overlap at the last observed pose are ignored: there, the size or the
    recording is wrong.

    Args:
        trajectory: ``[A, K, F, 2]`` metres, all agents of a scene in one frame.
        heading: ``[A, K, F]`` radians.
        size: ``[A, 2]`` (length, width) metres, such as :data:`trajpred.tracks.TYPICAL_SIZES`.
        scene: ``[A]``, agents with the same number share a scene.
        origin, origin_heading: ``[A, 2]`` and ``[A]``, the last observed poses.
        box_scale: factor on ``size``; 1 where sizes are known.
    """
    half = size * (box_scale / 2)
    observed = _Boxes(origin, origin_heading, half)
    first, second = _pairs(scene)
    apart = ~_overlap(observed.at(first), observed.at(second))
    first = first[apart]
    second = second[apart]
    reach = norm(half)
    limit = (reach[first] + reach[second])[:, None, None]
    hit = np.zeros((len(first), trajectory.shape[1]), np.bool_)
    for steps in _chunks(trajectory.shape[2], hit.size):
        position = trajectory[:, :, steps]
        angle = heading[:, :, steps]
        near = norm(position[first] - position[second]) <= limit
        pair, mode, step = np.nonzero(near)
        agent1 = first[pair]
        agent2 = second[pair]
        boxes1 = _Boxes(position[agent1, mode, step], angle[agent1, mode, step], half[agent1])
        boxes2 = _Boxes(position[agent2, mode, step], angle[agent2, mode, step], half[agent2])
        overlaps = _overlap(boxes1, boxes2)
        hit[pair[overlaps], mode[overlaps]] = True
    collided = np.zeros(trajectory.shape[:2], np.bool_)
    np.logical_or.at(collided, first, hit)
    np.logical_or.at(collided, second, hit)
    return collided


def _pairs(scene: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return all pairs of agents of the same scene, each once."""
    order = np.argsort(scene, kind="stable")
    ascending = scene[order]
    rank = np.arange(len(scene))
    # How many agents of its scene follow each one in this order.
    later = np.searchsorted(ascending, ascending, side="right") - 1 - rank
    first = np.repeat(rank, later)
    start = np.repeat(np.cumsum(later) - later, later)
    second = first + 1 + np.arange(len(first)) - start
    return order[first], order[second]


def _chunks(steps: int, pairs: int) -> Iterator[slice]:
    """Split the steps so that arrays over pairs and steps stay bounded."""
    size = max(1, _MAX_PAIRS // max(pairs, 1))
    for start in range(0, steps, size):
        yield slice(start, start + size)


def _overlap(a: _Boxes, b: _Boxes) -> NDArray[np.bool_]:
    """Return whether boxes overlap, pair by pair.

    Separating axes: two rectangles are disjoint if and only if they are so along a side of one of them.
    """
    return _meet_along(a, b) & _meet_along(b, a)


def _meet_along(a: _Boxes, b: _Boxes) -> NDArray[np.bool_]:
    """Return whether the projections on both sides of ``a`` overlap; touching does not count."""
    offset = np.abs(to_local(b.center, a.center, a.heading))
    turn = b.heading - a.heading
    cos = np.abs(np.cos(turn))
    sin = np.abs(np.sin(turn))
    half_length = b.half[:, 0]
    half_width = b.half[:, 1]
    along = cos * half_length + sin * half_width
    across = sin * half_length + cos * half_width
    shadow = np.stack((along, across), -1)
    return np.logical_and.reduce(offset < a.half + shadow, axis=-1)
