"""Which parts of a scenario become tokens, and which tokens are connected. Saved with every checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from trajpred.errors import quoted, require
from trajpred.lane_map import MAP_ATTRIBUTES

#: Largest integer in the description of a model, against damaged or hostile files.
MAX_SIZE = 10_000
#: Largest real number in it.
MAX_NUMBER = 1e6

#: What a model may be built to ignore, or has to do without in some data.
ATTRIBUTES = (*MAP_ATTRIBUTES, "classes")


def _require_range(config: FeatureConfig | GraphConfig) -> None:
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
        max_agents: maximum number of agents; the focal one first, then scored ones, then the nearest to it.
        max_lanes: maximum number of lane segments and crossings; the nearest to any agent are kept.
        lane_radius_m: lanes farther than this from every agent are omitted.
        lane_points: points per polyline, even.
        history: observed steps of a model's input; 0 for the length of the data. Shorter data are padded with
            invalid steps, longer data are cut. Taken from the model.
        future: future steps, likewise.
        anchor_steps: future steps of the agents' anchors, 0 for none; taken from the decoder.
        omit: the :data:`ATTRIBUTES` that the model does not read, whether or not the data have them. A model
            that was trained without an attribute has learned nothing about it. Rules that start from
            classes (futures along the lanes) still read them.

    Raises: DataError if a value is out of range.
    """

    memory_s: float = 1.0
    max_agents: int = 128
    max_lanes: int = 256
    lane_radius_m: float = 100.0
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

    The numbers bound memory on crowded scenes; lanes related by topology are always connected.
    ``eigenvectors`` of the Laplacian of that topology encode the positions of lanes; taken from the encoder.

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
