"""Planar geometry: angles, frames, poses and polylines; the eigenvectors of a graph.

The functions take NumPy arrays or torch tensors and return the same type, so that featurisation (NumPy, also
onboard) and the model (torch, also exported) share one definition; functions of polylines and graphs are
NumPy only.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    Array = TypeVar("Array", np.ndarray, Tensor)
else:
    Array = TypeVar("Array")

#: Metres per unit of the relative positions that a model reads.
POSE_SCALE = 30.0


@dataclass(frozen=True)
class Pose(Generic[Array]):
    """Positions ``[..., 2]`` in metres and headings ``[...]`` in radians, counter-clockwise from the x axis.

    Example:
        >>> car = Pose(np.array([1.0, 0.0]), np.array(0.0))
        >>> pedestrian = Pose(np.array([1.0, 2.0]), np.array(3.0))
        >>> relative_pose(pedestrian, car).position.tolist()
        [0.0, 2.0]
    """

    position: Array
    heading: Array

    def __getitem__(self, index: Any) -> Pose[Array]:
        """Select poses along the first axis."""
        return Pose(self.position[index], self.heading[index])

    @cached_property
    def scaled(self) -> Array:
        """``[..., 4]``: position in units of :data:`POSE_SCALE`, cosine and sine of the heading."""
        ahead = unit_vector(self.heading)
        return namespace(ahead).concatenate((self.position / POSE_SCALE, ahead), -1)

    @cached_property
    def place(self) -> Array:
        """``[..., 4]``: the position as in :attr:`scaled`, then zeros."""
        xp = namespace(self.position)
        return xp.concatenate((self.position, xp.zeros_like(self.position)), -1) / POSE_SCALE

    @cached_property
    def rows(self) -> Array:
        """``[4, ...]``: x, y, cosine and sine of the heading."""
        xp = namespace(self.heading)
        return xp.moveaxis(xp.concatenate((self.position, unit_vector(self.heading)), -1), -1, 0)

    @cached_property
    def turn(self) -> Array:
        """Matrices ``[..., 2, 2]`` that rotate row vectors into the frames of the poses."""
        xp = namespace(self.heading)
        cos = xp.cos(self.heading)
        sin = xp.sin(self.heading)
        return xp.stack((cos, -sin, sin, cos), -1).reshape(*cos.shape, 2, 2)


def namespace(array: Any) -> Any:
    """Return ``torch`` for tensors and ``numpy`` otherwise, without importing torch."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch
    return np


def wrap_angle(angle: Array) -> Array:
    """Wrap angles of any shape to [-π, π), in radians."""
    xp = namespace(angle)
    wrapped = xp.remainder(angle + np.pi, 2 * np.pi) - np.pi
    # The remainder of a tiny negative number rounds to a full turn.
    return xp.where(wrapped >= np.pi, wrapped - 2 * np.pi, wrapped)


def rotate(vector: Array, angle: Array) -> Array:
    """Rotate vectors ``[..., 2]`` counter-clockwise by ``angle`` ``[...]`` (radians, broadcast)."""
    xp = namespace(vector)
    cos = xp.cos(angle)
    sin = xp.sin(angle)
    x = vector[..., 0]
    y = vector[..., 1]
    return xp.stack((x * cos - y * sin, x * sin + y * cos), -1)


def to_local(point: Array, origin: Array, heading: Array) -> Array:
    """Transform points ``[..., 2]`` into the frame at ``origin`` ``[..., 2]`` with ``heading`` ``[...]``.

    Pass city coordinates as float64: float32 resolves only 1 m at a distance of 1e7 m.
    """
    return rotate(point - origin, -heading)


def to_global(point: Array, origin: Array, heading: Array) -> Array:
    """Transform points out of a frame: the inverse of :func:`to_local`."""
    return rotate(point, heading) + origin


def unit_vector(angle: Array) -> Array:
    """Return (cos, sin) ``[..., 2]`` of ``angle`` ``[...]``."""
    xp = namespace(angle)
    return xp.stack((xp.cos(angle), xp.sin(angle)), -1)


def direction(vector: Array) -> Array:
    """Compute the heading ``[...]`` in [-π, π] of vectors ``[..., 2]``; 0 for the zero vector."""
    return namespace(vector).arctan2(vector[..., 1], vector[..., 0])


def norm(vector: Array) -> Array:
    """Compute the Euclidean length ``[...]`` of vectors ``[..., 2]``."""
    return namespace(vector).hypot(vector[..., 0], vector[..., 1])


def relative_pose(pose: Pose[Array], frame: Pose[Array]) -> Pose[Array]:
    """Express ``pose`` in ``frame``: x ahead, y to the left, heading wrapped to [-π, π)."""
    position = to_local(pose.position, frame.position, frame.heading)
    return Pose(position, wrap_angle(pose.heading - frame.heading))


def last_step(valid: Array) -> Array:
    """Return the index ``[A]`` of the last valid step in ``[A, T]``; 0 without any."""
    return valid.cumsum(1).argmax(1)  # the first of equal counts


def arc_length(line: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance ``[P]`` along ``line`` ``[P, 2]`` from its start to each of its points."""
    segment = norm(np.diff(line, axis=0))
    return np.concatenate((np.zeros(1), np.cumsum(segment)))


def points_along(line: NDArray[np.float64], distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the points ``[M, 2]`` of ``line`` ``[P, 2]`` at ``distance`` ``[M]`` from its start."""
    length = arc_length(line)
    x = np.interp(distance, length, line[:, 0])
    y = np.interp(distance, length, line[:, 1])
    return np.stack((x, y), -1)


def cut_line(line: NDArray[np.float64], parts: int) -> list[NDArray[np.float64]]:
    """Cut a polyline ``[points, 2]`` into ``parts`` parts of equal length."""
    if parts == 1:
        return [line]
    arc = arc_length(line)
    cuts = np.linspace(0, arc[-1], parts + 1)
    ends = points_along(line, cuts)
    pieces: list[NDArray[np.float64]] = []
    for number in range(parts):
        inside = (arc > cuts[number] + 1e-6) & (arc < cuts[number + 1] - 1e-6)
        first = ends[[number]]
        last = ends[[number + 1]]
        pieces.append(np.concatenate((first, line[inside], last)))
    return pieces


def normalized_laplacian(adjacency: NDArray[np.float64 | np.bool_]) -> NDArray[np.float64]:
    r"""Build the symmetric Laplacian of a graph, ``[n, n]``.

    .. math:: L = I - D^{-1/2} A D^{-1/2}, \quad D = \mathrm{diag}(\max(1, \text{in-degree}))

    ``adjacency``: ``[n, n]`` number of edges; a directed edge counts in both directions, self loops are kept.
    """
    either = np.maximum(adjacency, adjacency.T).astype(np.float64)
    scale = np.maximum(either.sum(-1), 1) ** -0.5
    return np.eye(len(either)) - scale[:, None] * either * scale


def laplacian_eigenvectors(adjacency: NDArray[np.float64 | np.bool_], k: int) -> NDArray[np.float64]:
    """Compute the eigenvectors of eigenvalues 1 to ``k`` in ascending order, without the first: ``[n, k]``.

    Signs and the basis of a repeated eigenvalue are arbitrary, but reproducible on one machine. Columns from
    n - 1 on are 0.
    """
    vectors = np.linalg.eigh(normalized_laplacian(adjacency)).eigenvectors[:, 1 : k + 1]
    return np.pad(vectors, ((0, 0), (0, k - vectors.shape[1])))
