"""Planar geometry: the only place that knows about sines, cosines and angle wrapping.

Every function takes NumPy arrays or torch tensors and returns the same kind, so that featurisation
(NumPy, also onboard) and the model (torch, also exported) share one definition.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    Array = TypeVar("Array", np.ndarray, Tensor)
else:
    Array = TypeVar("Array")


@dataclass(frozen=True)
class Pose(Generic[Array]):
    """Where something is and where it points: ``position [..., 2]`` metres, ``heading [...]`` radians.

    Headings count counter-clockwise from the x axis.
    """

    position: Array
    heading: Array

    def __getitem__(self, index: Any) -> Pose[Array]:
        """The poses at an index, slice or array of indices along the first axis."""
        return Pose(self.position[index], self.heading[index])


def _namespace(array: Any) -> Any:
    """``torch`` for tensors, ``numpy`` otherwise, without importing torch."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else np


def wrap_angle(angle: Array) -> Array:
    """The same angle in [-π, π), in radians; any shape."""
    xp = _namespace(angle)
    wrapped = xp.remainder(angle + np.pi, 2 * np.pi) - np.pi
    # Rounding can turn a remainder just below zero into a full turn.
    return xp.where(wrapped >= np.pi, wrapped - 2 * np.pi, wrapped)


def rotate(vector: Array, angle: Array) -> Array:
    """Turn vectors ``[..., 2]`` counter-clockwise by ``angle`` ``[...]`` (radians, broadcast)."""
    xp = _namespace(vector)
    cos, sin = xp.cos(angle), xp.sin(angle)
    x, y = vector[..., 0], vector[..., 1]
    return xp.stack((x * cos - y * sin, x * sin + y * cos), -1)


def to_local(point: Array, origin: Array, heading: Array) -> Array:
    """Points ``[..., 2]`` in the frame of the pose (``origin`` ``[..., 2]``, ``heading`` ``[...]``).

    Subtract in float64 wherever city coordinates come in: a float32 metre is 0.5 m wide at 1e7 m.
    """
    return rotate(point - origin, -heading)


def to_global(point: Array, origin: Array, heading: Array) -> Array:
    """The inverse of :func:`to_local`."""
    return rotate(point, heading) + origin


def unit_vector(angle: Array) -> Array:
    """``[..., 2]``: (cos, sin) of ``angle`` ``[...]``."""
    xp = _namespace(angle)
    return xp.stack((xp.cos(angle), xp.sin(angle)), -1)


def direction(vector: Array) -> Array:
    """Heading ``[...]`` in [-π, π] of vectors ``[..., 2]``; 0 for the zero vector."""
    return _namespace(vector).arctan2(vector[..., 1], vector[..., 0])


def norm(vector: Array) -> Array:
    """Euclidean length ``[...]`` of ``[..., 2]``."""
    return _namespace(vector).hypot(vector[..., 0], vector[..., 1])


def relative_pose(pose: Pose[Array], frame: Pose[Array]) -> Pose[Array]:
    """``pose`` seen from ``frame``: x ahead, y to the left, heading wrapped to [-π, π)."""
    return Pose(
        to_local(pose.position, frame.position, frame.heading), wrap_angle(pose.heading - frame.heading)
    )
