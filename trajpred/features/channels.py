"""Every feature channel that a model reads: its name, its unit, and its sign under reflection. NumPy only.

To add a feature, add its channel here and its value where the array is filled
(:mod:`~trajpred.features.agents`, :mod:`~trajpred.features.lanes`, :mod:`~trajpred.features.relations`);
encoder sizes and signatures follow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import POSE_SCALE
from trajpred.lane_map import LANE_TYPES

#: Positions are divided by this length (m), so that most features lie within a few units.
LENGTH_SCALE = 10.0
#: Speeds are divided by this speed (m/s), for the same reason.
SPEED_SCALE = 10.0
#: Centres (m) of the Gaussian kernels of an edge's length.
DISTANCES = (0.0, 2.0, 5.0, 10.0, 18.0, 30.0, 50.0, 80.0)


@dataclass(frozen=True)
class Channel:
    """One number of a feature vector.

    Attributes:
        name: unique in its vector; a name with ``left`` exchanges places with its ``right`` counterpart when
            the scene is reflected.
        unit: the value 1 stands for this; empty for dimensionless values.
        sign: factor of the value when the scene is reflected (y becomes -y).
    """

    name: str
    unit: str = ""
    sign: int = 1


@dataclass(frozen=True)
class Channels:
    """The channels of an array's last axis, in order.

    Example:
        >>> len(HISTORY), HISTORY.index("valid")
        (7, 6)
    """

    channels: tuple[Channel, ...]

    def __len__(self) -> int:
        return len(self.channels)

    def __add__(self, other: Channels) -> Channels:
        return Channels(self.channels + other.channels)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.channels)

    def index(self, name: str) -> int:
        """Return the position of a channel on the last axis."""
        return self.names.index(name)

    def describe(self) -> str:
        """Return the names and units, separated by commas."""
        texts: list[str] = []
        for channel in self.channels:
            unit = f" ({channel.unit})" if channel.unit else ""
            texts.append(channel.name + unit)
        return ", ".join(texts)

    @cached_property
    def _sign(self) -> NDArray[np.int64]:
        return np.array([channel.sign for channel in self.channels])

    def reflect(self, values: NDArray[Any], chosen: NDArray[np.bool_]) -> NDArray[Any]:
        """Reflect the ``chosen`` ``[N]`` rows of ``values`` ``[N, ..., C]`` about the x axis."""
        rows = chosen.reshape(-1, *[1] * (values.ndim - 1))
        reflected = values[..., other_side(self.names)] * self._sign.astype(values.dtype)
        return np.where(rows, reflected, values)


def other_side(names: Sequence[str]) -> NDArray[np.int64]:
    """Return for each name the index of its counterpart on the other side, or its own if it has no side."""
    swap = {"left": "right", "right": "left"}
    counterparts: list[int] = []
    for name in names:
        counterpart = re.sub("left|right", lambda side: swap[side[0]], name)
        counterparts.append(names.index(counterpart))
    return np.array(counterparts)


def _vector(x: str, y: str, unit: str = "") -> Channels:
    return Channels((Channel(x, unit), Channel(y, unit, sign=-1)))


_LENGTH = f"{LENGTH_SCALE:g} m"

#: A position, displacement or velocity in metres or m/s, unscaled.
PLANE = _vector("x", "y")
#: State of an agent in a frame.
STATE = (
    _vector("x", "y", _LENGTH)
    + _vector("vx", "vy", f"{SPEED_SCALE:g} m/s")
    + _vector("heading_cos", "heading_sin")
)
#: ``AgentFeatures.history``: state at every observed step in the agent's frame, and whether it was observed.
HISTORY = STATE + Channels((Channel("valid"),))
#: Where :data:`HISTORY` holds 1 for observed steps and 0 for others.
VALID = HISTORY.index("valid")
#: ``LaneFeatures.points``: position, direction, and the boundaries relative to the position; lane's frame.
LANE_POINT = (
    _vector("x", "y", _LENGTH)
    + _vector("direction_x", "direction_y")
    + _vector("left_x", "left_y", "m")
    + _vector("right_x", "right_y", "m")
)
#: Where :data:`LANE_POINT` holds the boundaries; zeros where they are unknown.
BOUNDARIES = slice(LANE_POINT.index("left_x"), len(LANE_POINT))
#: ``LaneFeatures.marks``: index of the mark type of each boundary (av2 names marks from the lane outwards).
LANE_MARKS = Channels((Channel("left"), Channel("right")))
#: ``LaneFeatures.kind`` indexes this tuple: a pedestrian crossing is one more kind of lane segment.
LANE_KINDS = (*LANE_TYPES, "CROSSING")
#: ``LaneFeatures.topology_kind`` indexes this tuple: what the sender is to the receiver.
TOPOLOGY = ("successor", "predecessor", "left", "right")
#: Leading channels of edge features: the sender's pose relative to the receiver; the edge kind follows.
EDGE_POSE = (
    Channels(tuple(Channel(f"distance_{metres:g}") for metres in DISTANCES))
    + _vector("x", "y", f"{POSE_SCALE:g} m")
    + _vector("bearing_cos", "bearing_sin")
    + _vector("heading_cos", "heading_sin")
)


def edge_channels(kinds: Sequence[str]) -> Channels:
    """Return the channels of edge features whose one-hot part has these kinds."""
    return EDGE_POSE + Channels(tuple(Channel(kind) for kind in kinds))
