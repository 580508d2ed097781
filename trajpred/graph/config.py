"""What a model sees of a scenario: who becomes a token, and who hears whom. Saved with every checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, fields

from trajpred.errors import require


def _not_negative(config: FeatureConfig | GraphConfig) -> None:
    for f in fields(config):
        require(getattr(config, f.name) >= 0, f.name, "must not be negative")


@dataclass(frozen=True)
class FeatureConfig:
    """What of a scenario becomes a token.

    Attributes:
        memory_s: a track is an agent if it was seen this recently (focal and scored ones always are).
        max_agents: at most so many agents; focal and scored first, then the nearest to the focal one.
        max_lanes: at most so many lane segments and crossings; the nearest to any agent are kept.
        lane_radius_m: lanes farther than this from every agent are left out.
        lane_points: points per polyline, even.

    Raises: DataError about a value that is out of range.
    """

    memory_s: float = 1.0
    max_agents: int = 128
    max_lanes: int = 256
    lane_radius_m: float = 100.0
    lane_points: int = 10

    def __post_init__(self) -> None:
        _not_negative(self)
        require(self.max_agents > 0, "max_agents", "must be positive")
        require(
            self.lane_points > 0 and self.lane_points % 2 == 0, "lane_points", "must be even and positive"
        )


@dataclass(frozen=True)
class GraphConfig:
    """Who hears whom: the ``k`` nearest senders within ``radius`` metres of each receiver.

    ``k`` bounds memory on crowded scenes; lane topology is kept beyond both. Raises: DataError about a
    negative value.
    """

    agent_agent_k: int = 32
    lane_agent_k: int = 32
    agent_lane_k: int = 16
    lane_lane_k: int = 16
    agent_radius_m: float = 100.0
    lane_radius_m: float = 60.0

    def __post_init__(self) -> None:
        _not_negative(self)


@dataclass(frozen=True)
class SceneConfig:
    """All that decides what a model sees of a scenario."""

    features: FeatureConfig = FeatureConfig()
    graph: GraphConfig = GraphConfig()
