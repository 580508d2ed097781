"""Many futures of an agent -> K: weighted clustering of where they end. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require

Futures = tuple[NDArray[np.float64], NDArray[np.float64]]


def merge_modes(
    trajectory: NDArray[np.float64], probability: NDArray[np.float64], modes: int = 6, rounds: int = 10
) -> Futures:
    """Weighted k-means (Lloyd 1982) on the end points of each agent's modes.

    The most probable mode is the first centre; the next ones are where probability times the squared
    distance to the centres so far is largest. A cluster becomes the mean of its members by probability at
    every step, and their summed probability.

    Args:
        trajectory: ``[A, M, F, 2]`` metres, M ≥ ``modes``; probability: ``[A, M]``.
        modes: K.
        rounds: of assignment at most.

    Returns:
        ``[A, K, F, 2]`` and ``[A, K]``; rows of ``probability`` keep their sum.
    """
    A, M = probability.shape
    require(modes <= M, "modes", f"{M} futures cannot be merged to {modes}")
    end = trajectory[:, :, -1]
    centre = _spread(end, probability, modes)
    owner = np.full((A, M), -1)
    for _ in range(rounds):
        before, owner = owner, _distance(end, centre).argmin(2)
        if np.array_equal(before, owner):
            break
        share = _share(owner, probability, modes)
        # A cluster that lost its members stays where it was.
        centre = np.where((share.sum(2) > 0)[..., None], share @ end, centre)
    share = _share(owner, probability, modes)
    paths = (share @ trajectory.reshape(A, M, -1)).reshape(A, modes, *trajectory.shape[2:])
    empty = share.sum(2) == 0
    nearest = np.take_along_axis(trajectory, _distance(centre, end).argmin(2)[..., None, None], axis=1)
    weight = (np.eye(modes)[owner] * probability[..., None]).sum(1)
    return np.where(empty[..., None, None], nearest, paths), weight


def _spread(end: NDArray[np.float64], probability: NDArray[np.float64], modes: int) -> NDArray[np.float64]:
    """First centres ``[A, K, 2]``, far apart and probable."""
    chosen = [probability.argmax(1)]
    distance = np.full(probability.shape, np.inf)
    for _ in range(modes - 1):
        latest = np.take_along_axis(end, chosen[-1][:, None, None], axis=1)
        distance = np.minimum(distance, np.square(end - latest).sum(-1))
        chosen.append((probability * distance).argmax(1))
    return np.take_along_axis(end, np.stack(chosen, 1)[..., None], axis=1)


def _distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[A, M, 2]``, ``[A, K, 2]`` -> squared metres ``[A, M, K]``."""
    return np.square(a[:, :, None] - b[:, None]).sum(-1)


def _share(owner: NDArray[np.int64], probability: NDArray[np.float64], modes: int) -> NDArray[np.float64]:
    """``[A, K, M]``: each mode's part of each cluster; rows sum to 1, or to 0 where it is empty."""
    weight = np.swapaxes(np.eye(modes)[owner], 1, 2) * np.maximum(probability, 1e-9)[:, None]
    return weight / np.maximum(weight.sum(2, keepdims=True), 1e-12)
