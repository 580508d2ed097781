"""Lane segments and crossings -> polylines in their own frames. NumPy only, all scenes at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import direction, norm, rotate, to_local
from trajpred.graph.agents import AgentFeatures
from trajpred.graph.config import LENGTH_SCALE, FeatureConfig
from trajpred.graph.polylines import resample
from trajpred.graph.ragged import pairs, smallest
from trajpred.lane_map import LANE_TYPES
from trajpred.scenario_batch import ScenarioBatch

#: Channels of ``LaneFeatures.points``: x, y, direction x, y, left boundary x, y, right boundary x, y.
POINT_CHANNELS = 8
#: ``LaneFeatures.kind`` indexes this tuple: a pedestrian crossing is one more kind of lane segment.
LANE_KINDS = (*LANE_TYPES, "CROSSING")
#: Lane-to-lane topology: ``LaneFeatures.topology_kind`` indexes this tuple.
TOPOLOGY = ("successor", "predecessor", "left", "right")


@dataclass(frozen=True)
class LaneFeatures:
    """``L`` lane segments and crossings of all scenes; the frame of each is its midpoint and direction there.

    Attributes:
        scene: ``[L]`` int64, ascending; within a scene crossings come last.
        position: ``[L, 2]`` metres from the scene's origin; ``heading``: ``[L]`` radians.
        points: ``[L, P, POINT_CHANNELS]``, own frame; zeros for a boundary that is not known.
        kind: ``[L]`` int64, index into :data:`LANE_KINDS`.
        is_intersection: ``[L]`` int64, 0 or 1.
        marks: ``[L, 2]`` int64, left and right mark type.
        topology: ``[2, E]`` int64 (sender, receiver): the sender is the receiver's …
        topology_kind: ``[E]`` int64, index into :data:`TOPOLOGY`.
    """

    scene: NDArray[np.int64]
    position: NDArray[np.float32]
    heading: NDArray[np.float32]
    points: NDArray[np.float32]
    kind: NDArray[np.int64]
    is_intersection: NDArray[np.int64]
    marks: NDArray[np.int64]
    topology: NDArray[np.int64]
    topology_kind: NDArray[np.int64]


def lane_features(
    batch: ScenarioBatch, origin: NDArray[np.float64], agents: AgentFeatures, config: FeatureConfig
) -> LaneFeatures:
    """Lane segments and crossings near enough to an agent; ``origin``: ``[S, 2]``."""
    P, lane_map = config.lane_points, batch.map
    edge1, edge2 = resample(lane_map.crossing_edge1, P), resample(lane_map.crossing_edge2, P)
    center = np.concatenate((resample(lane_map.centerline, P), (edge1 + edge2) / 2))
    scene = np.concatenate((batch.lane_scene, batch.crossing_scene))
    # Rows of lanes, then of crossings; ``order`` brings them together scene by scene.
    order = np.argsort(scene, kind="stable")
    midpoint = (center[:, P // 2 - 1] + center[:, P // 2]) / 2
    keep = order[_near(midpoint[order] - origin[scene[order]], scene[order], agents, config)]

    heading = direction(center[keep, P // 2] - center[keep, P // 2 - 1])
    frame = (midpoint[keep, None], heading[:, None])
    xy, ahead = to_local(center[keep], *frame), np.gradient(center[keep], axis=1)
    ahead = rotate(ahead, -heading[:, None])
    ahead /= np.maximum(norm(ahead), 1e-6)[..., None]
    sides = [
        np.where(known[keep, None, None], to_local(side[keep], *frame) - xy, 0.0)
        for side, known in _sides(batch, edge1, edge2)
    ]
    topology, topology_kind = _topology(batch, keep)
    none = np.zeros(len(lane_map.crossing_id), np.int64)

    def of_lanes(values: NDArray[np.generic], crossing: NDArray[np.int64] = none) -> NDArray[np.int64]:
        return np.concatenate((values, crossing))[keep].astype(np.int64)

    return LaneFeatures(
        scene=scene[keep],
        position=(midpoint[keep] - origin[scene[keep]]).astype(np.float32),
        heading=heading.astype(np.float32),
        points=np.concatenate((xy / LENGTH_SCALE, ahead, *sides), -1).astype(np.float32),
        kind=of_lanes(lane_map.lane_type, none + len(LANE_TYPES)),
        is_intersection=of_lanes(lane_map.is_intersection),
        marks=np.stack((of_lanes(lane_map.left_mark), of_lanes(lane_map.right_mark)), -1),
        topology=topology,
        topology_kind=topology_kind,
    )


def _sides(
    batch: ScenarioBatch, edge1: NDArray[np.float64], edge2: NDArray[np.float64]
) -> list[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Left and right boundary ``[L + C, P, 2]`` of lanes and crossings, and which of them are known."""
    both = ((batch.map.left_boundary, edge1), (batch.map.right_boundary, edge2))
    return [
        (
            np.concatenate((resample(lines, edge.shape[1]), edge)),
            np.concatenate((lines.lengths > 0, np.ones(len(edge), np.bool_))),
        )
        for lines, edge in both
    ]


def _near(
    midpoint: NDArray[np.float64], scene: NDArray[np.int64], agents: AgentFeatures, config: FeatureConfig
) -> NDArray[np.int64]:
    """Rows of the lanes within the radius of an agent of their scene, the ``max_lanes`` nearest of them."""
    if not len(scene):
        return np.zeros(0, np.int64)
    lane, agent, begin = pairs(scene, agents.scene, int(agents.scene[-1]) + 1)
    distance = np.minimum.reduceat(norm(midpoint[lane] - agents.position[agent]), begin)
    keep = np.flatnonzero(distance <= config.lane_radius_m)
    return keep[smallest(scene[keep], config.max_lanes, distance[keep])]


def _topology(batch: ScenarioBatch, keep: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges among the kept lanes (``keep``: rows of lanes and crossings): successors, predecessors, sides."""
    lane_map, own = batch.map, np.arange(len(batch.map))
    related = [
        (lane_map.successors.values, np.repeat(own, lane_map.successors.lengths)),
        (lane_map.predecessors.values, np.repeat(own, lane_map.predecessors.lengths)),
        (lane_map.left_neighbor, own),
        (lane_map.right_neighbor, own),
    ]
    ids, lane = (np.concatenate(column) for column in zip(*related, strict=True))
    kind = np.repeat(np.arange(len(TOPOLOGY)), [len(column) for column, _ in related])
    node = np.full(len(own), -1)  # where a lane stands among those kept
    node[keep[keep < len(own)]] = np.flatnonzero(keep < len(own))
    other = _lane_rows(batch, batch.lane_scene[lane], ids)
    index = np.stack((np.where(other >= 0, node[other], -1), node[lane]))
    inside = np.flatnonzero((index >= 0).all(axis=0) & (index[0] != index[1]))
    # Lanes related in two ways keep the first.
    _, first = np.unique(index[0, inside] * len(keep) + index[1, inside], return_index=True)
    inside = inside[np.sort(first)]
    return index[:, inside], kind[inside]


def _lane_rows(
    batch: ScenarioBatch, scene: NDArray[np.int64], lane_id: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Row of the lane with that id in that scene, -1 where there is none."""
    ids, code = np.unique(batch.map.lane_id, return_inverse=True)
    if not len(ids):
        return np.full(len(lane_id), -1)
    # A lane is told by its scene and the rank of its id: one number, whatever the size of the ids.
    known = batch.lane_scene * len(ids) + code
    order = np.argsort(known)
    rank = np.minimum(np.searchsorted(ids, lane_id), len(ids) - 1)
    at = np.minimum(np.searchsorted(known[order], scene * len(ids) + rank), len(known) - 1)
    found = (ids[rank] == lane_id) & (known[order][at] == scene * len(ids) + rank)
    return np.where(found, order[at], -1)
