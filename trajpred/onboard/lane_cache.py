"""The lane segments of the map and their tokens: each lane is encoded once while the vehicle moves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.data.lane_map import LaneMap
from trajpred.errors import DataError, require, within
from trajpred.features.agents import AgentFeatures
from trajpred.features.config import FeatureConfig
from trajpred.features.lane_paths import Routes
from trajpred.features.lanes import LaneLines, LaneShapes, lane_topology, lanes_near, topology_among

#: The lane encoder's inputs, which are also fields of :class:`LaneShapes`.
LANE_INPUTS = ("points", "kind", "is_intersection", "marks")
#: Largest coordinate (m) of a map or a track; beyond it float32 loses the position.
MAX_COORDINATE = 1e8
#: Decimals of a lane's points by which it is recognised: a tenth of a millimetre.
POINT_DIGITS = 5
#: The polylines of a map used by the model.
LINES = ("centerline", "left_boundary", "right_boundary", "crossing_edge1", "crossing_edge2")


class SelectedLanes(NamedTuple):
    """The lane segments and crossings near the agents.

    Attributes:
        row: ``[L]`` rows of the map: lane segments, then crossings.
        token: ``[L, D]``.
        position: ``[L, 2]`` metres from the origin.
        heading: ``[L]`` radians.
        topology: ``[L, L]`` int64, as in the encoder's signature.
    """

    row: NDArray[np.int64]
    token: NDArray[np.float32]
    position: NDArray[np.float32]
    heading: NDArray[np.float32]
    topology: NDArray[np.int64]


class LaneCache:
    """The current map with the tokens of its lanes.

    Lanes are identified by the encoder's inputs, rounded: a lane with the same id and a new shape gets a new
    token, and a new map object with known lanes needs no encoding. Tokens of lanes outside the map are
    dropped.

    Attributes:
        map: the current map.
        routes: the routes along its lanes.
        encoded: number of lanes encoded so far.
    """

    def __init__(self, dim: int, config: FeatureConfig) -> None:
        self.dim = dim
        self.config = config
        self.encoded = 0
        self._keys: list[bytes] = []
        self._tokens = np.zeros((0, dim), np.float32)
        self._has_token = np.zeros(0, np.bool_)
        self.set_map(LaneMap())

    def set_map(self, lane_map: LaneMap) -> None:
        """Replace the map; does nothing if it is the current object.

        Raises: DataError if the map is invalid; the current map stays.
        """
        if lane_map is getattr(self, "map", None):
            return
        try:
            _validate(lane_map)
            visible = lane_map.without(self.config.omit)
            lines = LaneLines.of(visible, self.config.lane_points)
            shapes = LaneShapes.of(visible, lines, np.arange(len(lines.midpoint)))
            topology = lane_topology(visible, np.zeros(len(visible), np.int64))
        except DataError:
            raise
        except (TypeError, AttributeError, IndexError, ValueError) as error:
            raise DataError(f"not a LaneMap ({error})", field="map") from None
        self.map = lane_map
        self.routes = Routes.of(lane_map)
        self._midpoint = lines.midpoint
        self._shapes = shapes
        self._topology = topology
        self._set_keys(_lane_keys(shapes))

    def _set_keys(self, keys: list[bytes]) -> None:
        """Replace the lanes, given by their hashes; lanes that stay keep their tokens."""
        encoded = np.flatnonzero(self._has_token).tolist()
        tokens = {self._keys[row]: self._tokens[row] for row in encoded}
        self._keys = keys
        self._has_token = np.zeros(len(self._keys), np.bool_)
        self._tokens = np.zeros((len(self._keys), self.dim), np.float32)
        for row, key in enumerate(self._keys):
            if key in tokens:
                self._has_token[row] = True
                self._tokens[row] = tokens[key]

    def select(
        self, agents: AgentFeatures, origin: NDArray[np.float64], encode: Callable[..., NDArray[np.float32]]
    ) -> SelectedLanes:
        """Select the lanes near the agents, and encode lanes without a token.

        Args:
            origin: ``[2]`` metres, map frame.
            encode: lane encoder: :data:`LANE_INPUTS` as keyword arguments -> tokens ``[L, dim]``.
        """
        local = self._midpoint - origin
        rows = lanes_near(local, np.zeros(len(local), np.int64), agents, self.config)
        new = rows[~self._has_token[rows]]
        if len(new):
            self._tokens[new] = encode(**self.lane_inputs(new))
            self._has_token[new] = True
            self.encoded += len(new)
        index, kind = topology_among(rows, *self._topology, len(local))
        topology = np.zeros((len(rows), len(rows)), np.int64)
        topology[index[1], index[0]] = kind + 1
        position = local[rows].astype(np.float32)
        return SelectedLanes(rows, self._tokens[rows], position, self._shapes.heading[rows], topology)

    def lane_inputs(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the lane encoder's inputs for ``rows`` of the map, by name."""
        return {name: getattr(self._shapes, name)[rows] for name in LANE_INPUTS}


def _lane_keys(shapes: LaneShapes) -> list[bytes]:
    """Return a hash of each lane's inputs, equal in every map that contains the lane."""
    arrays = []
    for name in LANE_INPUTS:
        values = getattr(shapes, name)
        if name == "points":
            # Their last digits depend on other lanes of the map. The sum has no negative zeros.
            values = values.round(POINT_DIGITS) + np.float32(0)
        arrays.append(np.ascontiguousarray(values))
    keys: list[bytes] = []
    for lane in zip(*arrays, strict=True):
        content = b"".join(bytes(values) for values in lane)
        keys.append(hashlib.blake2b(content, digest_size=16).digest())
    return keys


def _validate(lane_map: LaneMap) -> None:
    """Check everything that reaches a graph, since vehicles' maps pass no reader. Raises: DataError."""
    lane_map.validate()
    require(within(lane_map.is_intersection, 2), "is_intersection", "must be 0 or 1")
    for name in LINES:
        near = bool((np.abs(getattr(lane_map, name).values) <= MAX_COORDINATE).all())
        require(near, name, f"has a coordinate beyond {MAX_COORDINATE:g} m")
