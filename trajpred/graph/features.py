"""Scenario -> the numbers a model sees: agents and lanes, each in its own local frame. NumPy only.

The scene's origin is subtracted in float64; what leaves here is float32. Positions and headings of the
local frames (``position``, ``heading``) serve relative poses only, never as features of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.geometry import Pose, direction, norm, relative_pose, rotate, to_local, unit_vector
from trajpred.graph.polylines import resample
from trajpred.lane_map import LANE_TYPES, LaneMap
from trajpred.scenario import Scenario, TrackCategory

#: Positions and speeds are divided by these so that most features lie within a few units.
LENGTH_SCALE, SPEED_SCALE = 10.0, 10.0
#: Channels of ``AgentFeatures.history``: x, y, vx, vy, cos and sin of the heading, valid.
HISTORY_CHANNELS = 7
#: Channels of ``LaneFeatures.points``: x, y, direction x, y, left boundary x, y, right boundary x, y.
POINT_CHANNELS = 8
#: ``LaneFeatures.kind`` indexes this tuple: a pedestrian crossing is one more kind of lane segment.
LANE_KINDS = (*LANE_TYPES, "CROSSING")
#: Lane-to-lane topology: ``LaneFeatures.topology_kind`` indexes this tuple.
TOPOLOGY = ("successor", "predecessor", "left", "right")


@dataclass(frozen=True)
class FeatureConfig:
    """What of a scenario becomes a token.

    Attributes:
        memory_s: a track is an agent if it was seen this recently (focal and scored ones always are).
        max_agents: at most so many agents; focal and scored first, then the nearest to the focal one.
        max_lanes: at most so many lane segments and crossings; the nearest to any agent are kept.
        lane_radius_m: lanes farther than this from every agent are left out.
        lane_points: points per polyline, even.
    """

    memory_s: float = 1.0
    max_agents: int = 128
    max_lanes: int = 256
    lane_radius_m: float = 100.0
    lane_points: int = 10


@dataclass(frozen=True)
class AgentFeatures:
    """``A`` agents; the frame of each is its last observed pose.

    Attributes:
        track: ``[A]`` int64 row in ``Scenario.tracks``.
        position: ``[A, 2]`` metres from the scene's origin; ``heading``: ``[A]`` radians.
        velocity: ``[A, 2]`` m/s in the own frame at the last observed step.
        elapsed_s: ``[A]`` seconds from the last observed state to the last observed step of the scenario.
        object_type: ``[A]`` int64; ``category``: ``[A]`` int64.
        history: ``[A, observed, HISTORY_CHANNELS]``, own frame; zeros where not valid.
        target: ``[A, future, 2]`` metres, own frame; ``target_mask``: ``[A, future]``.
    """

    track: NDArray[np.int64]
    position: NDArray[np.float32]
    heading: NDArray[np.float32]
    velocity: NDArray[np.float32]
    elapsed_s: NDArray[np.float32]
    object_type: NDArray[np.int64]
    category: NDArray[np.int64]
    history: NDArray[np.float32]
    target: NDArray[np.float32]
    target_mask: NDArray[np.bool_]


@dataclass(frozen=True)
class LaneFeatures:
    """``L`` lane segments and crossings; the frame of each is its midpoint and direction there.

    Attributes:
        position: ``[L, 2]`` metres from the scene's origin; ``heading``: ``[L]`` radians.
        points: ``[L, P, POINT_CHANNELS]``, own frame; zeros for a boundary that is not known.
        kind: ``[L]`` int64, index into :data:`LANE_KINDS`.
        is_intersection: ``[L]`` int64, 0 or 1.
        marks: ``[L, 2]`` int64, left and right mark type.
        topology: ``[2, E]`` int64 (sender, receiver): the sender is the receiver's …
        topology_kind: ``[E]`` int64, index into :data:`TOPOLOGY`.
    """

    position: NDArray[np.float32]
    heading: NDArray[np.float32]
    points: NDArray[np.float32]
    kind: NDArray[np.int64]
    is_intersection: NDArray[np.int64]
    marks: NDArray[np.int64]
    topology: NDArray[np.int64]
    topology_kind: NDArray[np.int64]


@dataclass(frozen=True)
class SceneFeatures:
    """One scenario as a model sees it.

    Attributes:
        origin: ``[2]`` float64, city frame: the focal agent's last observed position.
        heading: the focal agent's last observed heading, radians, city frame.
    """

    scenario_id: str
    origin: NDArray[np.float64]
    heading: float
    step_s: float
    agents: AgentFeatures
    lanes: LaneFeatures


def scene_features(scenario: Scenario, config: FeatureConfig) -> SceneFeatures:
    """Featurise ``scenario``; the future is used for ``target`` alone. Raises: DataError."""
    require(config.lane_points % 2 == 0, "lane_points", "must be even")
    last, place = _last_seen(scenario)
    focal, origin = scenario.focal, place[scenario.focal]
    agents = _agents(scenario, origin, config)
    lanes = _lanes(scenario.map, origin, agents.position, config)
    heading = float(scenario.tracks.heading[focal, last[focal]])
    return SceneFeatures(scenario.scenario_id, origin, heading, scenario.step_s, agents, lanes)


def _last_seen(scenario: Scenario) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each track the last observed step that is valid (-1: none), and the position then."""
    tracks, seen = scenario.tracks, scenario.tracks.valid[:, : scenario.num_observed]
    last = np.where(seen, np.arange(scenario.num_observed), -1).max(axis=1)
    return last, tracks.position[np.arange(len(tracks)), last]


def _agents(scenario: Scenario, origin: NDArray[np.float64], config: FeatureConfig) -> AgentFeatures:
    tracks, now = scenario.tracks, scenario.num_observed
    last, place = _last_seen(scenario)
    judged = tracks.category >= TrackCategory.SCORED
    elapsed = (now - 1 - last) * scenario.step_s
    keep = np.flatnonzero((last >= 0) & (judged | (elapsed <= config.memory_s)))
    if len(keep) > config.max_agents:
        rank = np.lexsort((norm(place[keep] - origin), ~judged[keep], keep != scenario.focal))
        keep = np.sort(keep[rank[: config.max_agents]])
    at = last[keep]
    place, heading = place[keep], tracks.heading[keep, at]
    valid = tracks.valid[keep]

    frame = Pose(place[:, None], heading[:, None])
    own = relative_pose(Pose(tracks.position[keep], tracks.heading[keep]), frame)
    velocity = rotate(tracks.velocity[keep], -heading[:, None])
    history = np.concatenate(
        (own.position / LENGTH_SCALE, velocity / SPEED_SCALE, unit_vector(own.heading), valid[..., None]), -1
    )
    return AgentFeatures(
        track=keep,
        position=(place - origin).astype(np.float32),
        heading=heading.astype(np.float32),
        velocity=velocity[np.arange(len(keep)), at].astype(np.float32),
        elapsed_s=elapsed[keep].astype(np.float32),
        object_type=tracks.object_type[keep].astype(np.int64),
        category=tracks.category[keep].astype(np.int64),
        history=np.where(valid[..., None], history, 0.0)[:, :now].astype(np.float32),
        target=np.where(valid[..., None], own.position, 0.0)[:, now:].astype(np.float32),
        target_mask=valid[:, now:],
    )


def _lanes(
    lane_map: LaneMap, origin: NDArray[np.float64], agents: NDArray[np.float32], config: FeatureConfig
) -> LaneFeatures:
    """Lane segments, then crossings: those near enough to an agent."""
    P, C = config.lane_points, len(lane_map.crossing_id)
    edge1, edge2 = resample(lane_map.crossing_edge1, P), resample(lane_map.crossing_edge2, P)
    center = np.concatenate((resample(lane_map.centerline, P), (edge1 + edge2) / 2))
    left = np.concatenate((resample(lane_map.left_boundary, P), edge1))
    right = np.concatenate((resample(lane_map.right_boundary, P), edge2))
    known = [
        np.concatenate((side.lengths > 0, np.ones(C, np.bool_)))
        for side in (lane_map.left_boundary, lane_map.right_boundary)
    ]

    midpoint = (center[:, P // 2 - 1] + center[:, P // 2]) / 2
    heading = direction(center[:, P // 2] - center[:, P // 2 - 1])
    keep = _near(midpoint - origin, agents, config)

    frame = (midpoint[keep, None], heading[keep, None])
    xy, ahead = to_local(center[keep], *frame), np.gradient(center[keep], axis=1)
    ahead = rotate(ahead, -heading[keep, None])
    ahead /= np.maximum(norm(ahead), 1e-6)[..., None]
    sides = [
        np.where(there[keep, None, None], to_local(side[keep], *frame) - xy, 0.0)
        for side, there in zip((left, right), known, strict=True)
    ]
    topology, topology_kind = _topology(lane_map, keep)
    none = np.zeros(C, np.int64)
    return LaneFeatures(
        position=(midpoint[keep] - origin).astype(np.float32),
        heading=heading[keep].astype(np.float32),
        points=np.concatenate((xy / LENGTH_SCALE, ahead, *sides), -1).astype(np.float32),
        kind=np.concatenate((lane_map.lane_type, np.full(C, len(LANE_TYPES))))[keep].astype(np.int64),
        is_intersection=np.concatenate((lane_map.is_intersection, none))[keep].astype(np.int64),
        marks=np.stack(
            (np.concatenate((lane_map.left_mark, none)), np.concatenate((lane_map.right_mark, none))), -1
        )[keep].astype(np.int64),
        topology=topology,
        topology_kind=topology_kind,
    )


def _near(
    midpoint: NDArray[np.float64], agents: NDArray[np.float32], config: FeatureConfig
) -> NDArray[np.int64]:
    """Rows of the lanes within the radius of an agent, the ``max_lanes`` nearest of them, in order."""
    distance = norm(midpoint[:, None] - agents[None]).min(axis=1)
    keep = np.flatnonzero(distance <= config.lane_radius_m)
    if len(keep) > config.max_lanes:
        keep = np.sort(keep[np.argsort(distance[keep], kind="stable")[: config.max_lanes]])
    return keep


def _topology(lane_map: LaneMap, keep: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges among the kept lanes: successors, predecessors, neighbours."""
    row = {int(lane_map.lane_id[i]): place for place, i in enumerate(keep) if i < len(lane_map)}
    own = np.arange(len(lane_map))
    pairs = [
        (lane_map.successors.values, np.repeat(own, lane_map.successors.lengths)),
        (lane_map.predecessors.values, np.repeat(own, lane_map.predecessors.lengths)),
        (lane_map.left_neighbor, own),
        (lane_map.right_neighbor, own),
    ]
    sender = np.concatenate([ids for ids, _ in pairs])
    receiver = np.concatenate([lane_map.lane_id[rows] for _, rows in pairs])
    kind = np.repeat(np.arange(len(TOPOLOGY)), [len(ids) for ids, _ in pairs])
    index = np.array([[row.get(i, -1) for i in ids.tolist()] for ids in (sender, receiver)], np.int64)
    inside = np.flatnonzero((index >= 0).all(axis=0) & (index[0] != index[1]))
    # Lanes related in two ways keep the first.
    _, first = np.unique(index[:, inside], axis=1, return_index=True)
    inside = inside[np.sort(first)]
    return index[:, inside], kind[inside]
