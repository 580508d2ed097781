"""Lane segments and their tokens, kept while the vehicle moves: per lane the work is done once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, require, within
from trajpred.graph.agents import AgentFeatures
from trajpred.graph.config import FeatureConfig
from trajpred.graph.lanes import (
    LaneLines,
    LaneShapes,
    lane_topology,
    lanes_near,
    topology_among,
)
from trajpred.lane_map import LaneMap

#: What the lane encoder looks at, by the names of its inputs.
LOOKS = ("points", "kind", "is_intersection", "marks")
#: No map has coordinates (m) beyond this; float32 would lose what lies there.
FARTHEST = 1e8
#: The lines of a map that the model sees.
LINES = ("centerline", "left_boundary", "right_boundary", "crossing_edge1", "crossing_edge2")


class SelectedLanes(NamedTuple):
    """The lane segments and crossings near the agents.

    Attributes:
        row: ``[L]`` lane segments and, counted on, crossings of the map.
        token: ``[L, D]``; position: ``[L, 2]`` metres from the origin; heading: ``[L]`` radians.
        topology: ``[L, L]`` int64, as the encoder takes it.
    """

    row: NDArray[np.int64]
    token: NDArray[np.float32]
    position: NDArray[np.float32]
    heading: NDArray[np.float32]
    topology: NDArray[np.int64]


class LaneCache:
    """The map as the model sees it.

    A lane is told by what the encoder looks at: one whose id stays and whose shape changes gets a new token,
    and a new map of known lanes costs no encoding. Tokens of lanes that left the map are forgotten.

    Args:
        encode: ``points``, ``kind``, ``is_intersection``, ``marks`` by name -> tokens ``[L, dim]``.
    """

    def __init__(self, encode: Callable[..., NDArray[np.float32]], dim: int, config: FeatureConfig) -> None:
        self.encode, self.dim, self.config = encode, dim, config
        self.encoded = 0  #: lanes encoded so far
        self._token: dict[bytes, NDArray[np.float32]] = {}
        self.set_map(LaneMap())

    def set_map(self, lane_map: LaneMap) -> None:
        """Look at another map, or at the same one changed; nothing to do if it is the one at hand.

        Raises: DataError if it cannot be right; the map before stays.
        """
        if lane_map is getattr(self, "map", None):
            return
        try:
            _validate(lane_map)
            lines = LaneLines.of(lane_map, self.config.lane_points)
            shapes = LaneShapes.of(lane_map, lines, np.arange(len(lines.midpoint)))
            related = lane_topology(lane_map, np.zeros(len(lane_map), np.int64))
        except DataError:
            raise
        except (TypeError, AttributeError, IndexError, ValueError) as error:
            raise DataError(f"is no LaneMap ({error})", field="map") from None
        self._midpoint, self._shapes, self._related = lines.midpoint, shapes, related
        self._keys = _keys(shapes)
        self._token = {key: self._token[key] for key in self._keys if key in self._token}
        self._tokens = np.zeros((len(self._keys), self.dim), np.float32)
        self._known = np.array([key in self._token for key in self._keys], np.bool_)
        for row in np.flatnonzero(self._known):
            self._tokens[row] = self._token[self._keys[row]]
        self.map = lane_map

    def near(self, agents: AgentFeatures, origin: NDArray[np.float64]) -> SelectedLanes:
        """Those near enough to an agent; ``origin`` ``[2]`` metres, the frame of the map."""
        local = self._midpoint - origin
        keep = lanes_near(local, np.zeros(len(local), np.int64), agents, self.config)
        self._encode(keep[~self._known[keep]])
        index, kind = topology_among(keep, *self._related, len(local))
        topology = np.zeros((len(keep), len(keep)), np.int64)
        topology[index[1], index[0]] = kind + 1
        position = local[keep].astype(np.float32)
        return SelectedLanes(keep, self._tokens[keep], position, self._shapes.heading[keep], topology)

    def looks(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """What the encoder looks at of these ``rows`` of the map, by the names of its inputs."""
        return {name: getattr(self._shapes, name)[rows] for name in LOOKS}

    def _encode(self, rows: NDArray[np.int64]) -> None:
        if not len(rows):
            return
        tokens = self.encode(**self.looks(rows))
        self._tokens[rows], self._known[rows] = tokens, True
        self._token.update(zip((self._keys[row] for row in rows.tolist()), tokens, strict=True))
        self.encoded += len(rows)


def _validate(lane_map: LaneMap) -> None:
    """No source has looked at a vehicle's map: bounds on all that reaches a graph. Raises: DataError."""
    lane_map.validate()
    require(within(lane_map.is_intersection, 2), "is_intersection", "must be 0 or 1")
    for name in LINES:
        near = bool((np.abs(getattr(lane_map, name).values) <= FARTHEST).all())
        require(near, name, f"has a coordinate beyond {FARTHEST:g} m")


def _keys(shapes: LaneShapes) -> list[bytes]:
    """A hash of what the encoder looks at, of every lane."""
    looks = [np.ascontiguousarray(getattr(shapes, name)) for name in LOOKS]
    each = zip(*looks, strict=True)
    return [hashlib.blake2b(b"".join(map(bytes, look)), digest_size=16).digest() for look in each]
