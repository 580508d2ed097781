"""Scenarios -> agents and lanes in their own frames. NumPy only, vectorised over all scenes of a batch.

The origin of each scene is subtracted in float64; results are float32. Positions and headings of the local
frames only serve relative poses; they are never features themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.geometry import Pose, direction, norm, rotate, to_local
from trajpred.data.lane_map import LANE_TYPES, LaneMap
from trajpred.data.ragged import (
    evenly_spaced,
    find_in_scenes,
    pairs_in_scenes,
    rank_in_scene,
    rows_around,
    smallest_in_scene,
)
from trajpred.features.agents import AgentFeatures
from trajpred.features.config import LENGTH_SCALE, TOPOLOGY, FeatureConfig


@dataclass(frozen=True)
class LaneLines:
    """All lane segments of a map, then all crossings, as polylines of ``P`` points; city frame, metres.

    Attributes:
        center: ``[M, P, 2]`` float64.
        sides: ``[2, M, P, 2]`` float64, left and right boundaries.
        known: ``[2, M]``, False for missing boundaries.
        midpoint: ``[M, 2]``.
    """

    center: NDArray[np.float64]
    sides: NDArray[np.float64]
    known: NDArray[np.bool_]
    midpoint: NDArray[np.float64]

    @classmethod
    def of(cls, lane_map: LaneMap, points: int) -> LaneLines:
        """Resample every line to ``points`` evenly spaced points."""
        edge1 = evenly_spaced(lane_map.crossing_edge1, points)
        edge2 = evenly_spaced(lane_map.crossing_edge2, points)
        center = np.concatenate((evenly_spaced(lane_map.centerline, points), (edge1 + edge2) / 2))
        sides = np.empty((2, *center.shape))
        known = np.ones((2, len(center)), np.bool_)
        boundaries = ((lane_map.left_boundary, edge1), (lane_map.right_boundary, edge2))
        for side, (boundary, edge) in enumerate(boundaries):
            sides[side] = np.concatenate((evenly_spaced(boundary, points), edge))
            known[side, : len(boundary)] = boundary.lengths > 0
        midpoint = (center[:, points // 2 - 1] + center[:, points // 2]) / 2
        return cls(center, sides, known, midpoint)


@dataclass(frozen=True)
class LaneShapes:
    """Features of ``L`` lane segments and crossings that depend only on the map.

    Attributes:
        heading: ``[L]`` radians, the direction at the midpoint.
        points: ``[L, P, C]`` (:data:`~trajpred.features.config.LANE_POINT`), own frame; zeros for unknown
            boundaries.
        kind: ``[L]`` int64, index into :data:`~trajpred.features.config.LANE_KINDS`.
        is_intersection: ``[L]`` int64, 0 or 1.
        marks: ``[L, 2]`` int64, left and right mark type.
    """

    heading: NDArray[np.float32]
    points: NDArray[np.float32]
    kind: NDArray[np.int64]
    is_intersection: NDArray[np.int64]
    marks: NDArray[np.int64]

    @classmethod
    def of(cls, lane_map: LaneMap, lines: LaneLines, rows: NDArray[np.int64]) -> LaneShapes:
        """Compute the shapes of the given ``rows`` of ``lines``, the lines of ``lane_map``."""
        center = lines.center[rows]
        P = center.shape[1]
        heading = direction(center[:, P // 2] - center[:, P // 2 - 1])
        frame = Pose(lines.midpoint[rows, None], heading[:, None])
        xy = to_local(center, frame.position, frame.heading)
        ahead = rotate(np.gradient(center, axis=1), -frame.heading)
        ahead /= np.maximum(norm(ahead), 1e-6)[..., None]

        # Boundaries are given relative to the centreline.
        sides = to_local(lines.sides[:, rows], frame.position, frame.heading) - xy
        left, right = np.where(lines.known[:, rows, None, None], sides, 0.0)
        points = np.concatenate((xy / LENGTH_SCALE, ahead, left, right), -1)
        # Crossings, which follow the segments, are a kind of their own, and have no marks.
        segments = len(lane_map)
        codes = np.zeros((4, len(lines.center)), np.int64)
        codes[0] = len(LANE_TYPES)
        columns = (lane_map.lane_type, lane_map.is_intersection, lane_map.left_mark, lane_map.right_mark)
        codes[:, :segments] = columns
        kind, is_intersection, left_mark, right_mark = codes[:, rows]
        return cls(
            heading=heading.astype(np.float32),
            points=points.astype(np.float32),
            kind=kind,
            is_intersection=is_intersection,
            marks=np.stack((left_mark, right_mark), -1),
        )


@dataclass(frozen=True)
class LaneFeatures(LaneShapes):
    """``L`` lane segments and crossings of all scenes; the frame of each is its midpoint and direction there.

    Attributes in addition to those of :class:`LaneShapes`: scene: ``[L]`` int64, ascending; within a scene
        crossings come last. row: ``[L]`` int64, index into the scenario's lane segments followed by its
        crossings. position: ``[L, 2]`` metres from the scene's origin. topology: ``[2, E]`` int64 (sender,
        receiver). topology_kind: ``[E]`` int64, the sender's relation to the receiver, index into
        :data:`~trajpred.features.config.TOPOLOGY`.
    """

    scene: NDArray[np.int64]
    row: NDArray[np.int64]
    position: NDArray[np.float32]
    topology: NDArray[np.int64]
    topology_kind: NDArray[np.int64]


def lane_features(
    batch: ScenarioBatch, origin: NDArray[np.float64], agents: AgentFeatures, config: FeatureConfig
) -> LaneFeatures:
    """Compute the lanes within the radius of any agent; ``origin``: ``[S, 2]`` metres, city frame."""
    lane_map = batch.map.without(config.omit)
    lines = LaneLines.of(lane_map, config.lane_points)
    crossing_scene = batch.crossing_scene[: len(lane_map.crossing_id)]
    scene = np.concatenate((batch.lane_scene, crossing_scene))
    # Rows are all lanes, then all crossings; ``order`` sorts them by scene.
    order = np.argsort(scene, kind="stable")
    local = lines.midpoint - origin[scene]
    near = lanes_near(local[order], scene[order], agents, config)
    keep = order[near]
    shapes = LaneShapes.of(lane_map, lines, keep)
    index, kind = lane_topology(lane_map, batch.lane_scene)
    topology, topology_kind = topology_among(keep, index, kind, len(scene))
    return LaneFeatures(
        scene=scene[keep],
        row=rank_in_scene(scene[order])[near],
        position=local[keep].astype(np.float32),
        **vars(shapes),
        topology=topology,
        topology_kind=topology_kind,
    )


def lanes_near(
    midpoint: NDArray[np.float64], scene: NDArray[np.int64], agents: AgentFeatures, config: FeatureConfig
) -> NDArray[np.int64]:
    """Select the ``max_lanes`` lanes of each scene that are nearest to an agent, within the radius."""
    if not len(scene) or not len(agents.scene):
        return np.zeros(0, np.int64)
    reach = np.full((len(agents.scene), 1), config.lane_radius_m + 1.0)  # rounding must not exclude a lane
    candidate = rows_around(scene, midpoint, midpoint, agents.scene, agents.position, reach)
    lane, agent, begin = pairs_in_scenes(scene[candidate], agents.scene)
    if not len(lane):
        return candidate
    apart = norm(midpoint[candidate[lane]] - agents.position[agent])
    distance = np.minimum.reduceat(apart, begin)
    near = distance <= config.lane_radius_m
    keep = candidate[near]
    return keep[smallest_in_scene(scene[keep], config.max_lanes, distance[near])]


def lane_topology(
    lane_map: LaneMap, lane_scene: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find related lanes of each scene: edges ``[2, E]`` (sender, receiver), kinds ``[E]`` (``TOPOLOGY``).

    A pair related in two ways keeps the first; self loops are omitted.
    """
    row = np.arange(len(lane_map))
    # In the order of TOPOLOGY.
    related_ids = (
        lane_map.successors.values,
        lane_map.predecessors.values,
        lane_map.left_neighbor,
        lane_map.right_neighbor,
    )
    receivers = (
        np.repeat(row, lane_map.successors.lengths),
        np.repeat(row, lane_map.predecessors.lengths),
        row,
        row,
    )
    receiver = np.concatenate(receivers)
    kind = np.repeat(np.arange(len(TOPOLOGY)), [len(ids) for ids in related_ids])
    related = np.concatenate(related_ids)
    sender = find_in_scenes(lane_scene, lane_map.lane_id, lane_scene[receiver], related)
    edge = np.flatnonzero((sender >= 0) & (sender != receiver))
    pair = sender[edge] * len(row) + receiver[edge]
    _, first = np.unique(pair, return_index=True)
    edge = edge[np.sort(first)]
    return np.stack((sender[edge], receiver[edge])), kind[edge]


def topology_among(
    keep: NDArray[np.int64], index: NDArray[np.int64], kind: NDArray[np.int64], rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Restrict the edges of :func:`lane_topology` to ``keep``, renumbered as positions in it."""
    node = np.full(rows, -1)
    node[keep] = np.arange(len(keep))
    within = node[index]
    inside = (within >= 0).all(axis=0)
    return within[:, inside], kind[inside]
