"""Channels of the features, which parts of a scenario become tokens, and which tokens are connected.

The configuration is saved with every checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.geometry import POSE_SCALE
from trajpred.data.lane_map import LANE_TYPES, MAP_ATTRIBUTES, REACH_M
from trajpred.errors import quoted, require

#: Positions are divided by this length (m), so that most features lie within a few units.
LENGTH_SCALE = 10.0
#: Speeds are divided by this speed (m/s), for the same reason.
SPEED_SCALE = 10.0
#: Centres (m) of the Gaussian kernels for an edge's length.
DISTANCES = (0.0, 2.0, 5.0, 10.0, 18.0, 30.0, 50.0, 80.0)


@dataclass(frozen=True)
class Channel:
    """One number of a feature vector.

    Attributes:
        name: unique in its vector; when the scene is reflected, a name with ``left`` trades places with its
            ``right`` counterpart.
        unit: what the value 1 means; empty for dimensionless values.
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

    def reflect(self, values: NDArray[Any], chosen: NDArray[np.bool_]) -> NDArray[Any]:
        """Reflect the ``chosen`` ``[N]`` rows of ``values`` ``[N, ..., C]`` about the x axis."""
        rows = chosen.reshape(-1, *[1] * (values.ndim - 1))
        sign = np.array([channel.sign for channel in self.channels], values.dtype)
        return np.where(rows, values[..., other_side(self.names)] * sign, values)


def other_side(names: Sequence[str]) -> NDArray[np.int64]:
    """Return each name's index of its counterpart on the other side, or its own index if it has no side."""
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
#: Index in :data:`HISTORY` of the channel that is 1 for observed steps, else 0.
VALID = HISTORY.index("valid")
#: ``LaneFeatures.points``: position, direction, and the boundaries relative to the position; lane's frame.
LANE_POINT = (
    _vector("x", "y", _LENGTH)
    + _vector("direction_x", "direction_y")
    + _vector("left_x", "left_y", "m")
    + _vector("right_x", "right_y", "m")
)
#: Channels of the boundaries in :data:`LANE_POINT`; zeros if unknown.
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


#: Largest integer in a model's description, against damaged or hostile files.
MAX_SIZE = 10_000
#: Largest real number in a model's description.
MAX_NUMBER = 1e6

#: Attributes that a model may ignore, or that some data lack.
ATTRIBUTES = (*MAP_ATTRIBUTES, "classes")


def _require_range(config: FeatureConfig | GraphConfig) -> None:
    """Raise :class:`DataError` about the first number of a config that is out of range."""
    for option in fields(config):
        value = getattr(config, option.name)
        if option.name == "omit":
            continue
        if isinstance(option.default, int):
            valid = type(value) is int and 0 <= value <= MAX_SIZE
            kind = f"an integer from 0 to {MAX_SIZE}"
        else:
            valid = type(value) in (int, float) and 0 <= value <= MAX_NUMBER
            kind = f"a number from 0 to {MAX_NUMBER:g}"
        require(valid, option.name, f"must be {kind}, is {quoted(value)}")


@dataclass(frozen=True)
class FeatureConfig:
    """Which tracks and lanes become tokens.

    Attributes:
        memory_s: tracks last observed longer ago are omitted, unless they are focal or scored.
        max_agents: maximum number of agents: the focal one, then scored ones, then the nearest to the focal
            one.
        max_lanes: maximum number of lane segments and crossings; the nearest to any agent are kept.
        lane_radius_m: lanes farther than this from every agent are omitted.
        lane_points: points per polyline, even.
        history: observed steps of a model's input; 0 for the length of the data. Shorter data are padded with
            invalid steps, longer data are cut. Taken from the model.
        future: future steps, with the same rules.
        anchor_steps: future steps of the agents' anchors, 0 for none; taken from the decoder.
        omit: the :data:`ATTRIBUTES` that the model does not read, even if the data have them. A model trained
            without an attribute has learned nothing about it. Rules based on classes (futures along the
            lanes) still read them.

    Raises: DataError if a value is out of range.
    """

    memory_s: float = 1.0
    max_agents: int = 128
    max_lanes: int = 256
    lane_radius_m: float = REACH_M
    lane_points: int = 10
    history: int = 0
    future: int = 0
    anchor_steps: int = 0
    omit: Sequence[str] = ()

    def __post_init__(self) -> None:
        _require_range(self)
        listed = isinstance(self.omit, (list, tuple))
        unknown = not listed or not set(self.omit) <= set(ATTRIBUTES)
        require(not unknown, "omit", f"must list any of {', '.join(ATTRIBUTES)}, is {quoted(self.omit)}")
        # Files hold lists; equal configs must be equal.
        object.__setattr__(self, "omit", tuple(self.omit))
        require(self.max_agents > 0, "max_agents", "must be positive")
        even = self.lane_points > 0 and self.lane_points % 2 == 0
        require(even, "lane_points", "must be even and positive")


@dataclass(frozen=True)
class GraphConfig:
    """How many senders each receiver attends to (``…_k``, named sender first), and within which radius.

    The numbers bound memory in crowded scenes; lanes related by topology are always connected.
    ``eigenvectors`` is the number of eigenvectors of the topology's Laplacian that encode lane positions;
    taken from the encoder.

    Raises: DataError if a value is out of range.
    """

    agent_agent_k: int = 32
    lane_agent_k: int = 32
    agent_lane_k: int = 16
    lane_lane_k: int = 16
    agent_radius_m: float = 100.0
    lane_radius_m: float = 60.0
    eigenvectors: int = 0

    def __post_init__(self) -> None:
        _require_range(self)


@dataclass(frozen=True)
class SceneConfig:
    """The complete conversion of a scenario into a graph."""

    features: FeatureConfig = FeatureConfig()
    graph: GraphConfig = GraphConfig()
