"""Select the tracks that become agents, and express their states in their own frames. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.geometry import Pose, last_step, norm, relative_pose, rotate, to_local, unit_vector
from trajpred.data.motion import forward_heading, heading_known
from trajpred.data.ragged import smallest_in_scene
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import UNKNOWN_TYPE, TrackCategory
from trajpred.errors import DataError
from trajpred.features.config import LENGTH_SCALE, SPEED_SCALE, FeatureConfig
from trajpred.features.lane_futures import MODES, lane_futures
from trajpred.features.lane_paths import Routes, nearest_heading


@dataclass(frozen=True)
class AgentFeatures:
    """``A`` agents of all scenes; the frame of each is its last observed pose.

    Attributes:
        scene: ``[A]`` int64, ascending.
        track: ``[A]`` int64 row in ``ScenarioBatch.tracks``; track_id: ``[A]`` strings.
        position: ``[A, 2]`` metres from the scene's origin; ``heading``: ``[A]`` radians.
        velocity: ``[A, 2]`` m/s at the last observed state, own frame.
        elapsed_s: ``[A]`` seconds from the last observed state to the last observed step of the scenario.
        object_type: ``[A]`` int64; ``category``: ``[A]`` int64.
        history: ``[A, observed, C]`` (:data:`~trajpred.features.config.HISTORY`), own frame; zeros where
            not valid.
        anchors: ``[A, 6, anchor_steps, 2]`` metres, own frame: futures along the lanes, the most probable
            first (:func:`~trajpred.features.lane_futures.lane_futures`).
        target: ``[A, future, 2]`` metres, own frame; ``target_mask``: ``[A, future]``.
    """

    scene: NDArray[np.int64]
    track: NDArray[np.int64]
    track_id: NDArray[np.str_]
    position: NDArray[np.float32]
    heading: NDArray[np.float32]
    velocity: NDArray[np.float32]
    elapsed_s: NDArray[np.float32]
    object_type: NDArray[np.int64]
    category: NDArray[np.int64]
    history: NDArray[np.float32]
    anchors: NDArray[np.float32]
    target: NDArray[np.float32]
    target_mask: NDArray[np.bool_]


def focal_poses(batch: ScenarioBatch, lanes: Routes) -> Pose[np.ndarray]:
    """Return the last observed pose of each scene's focal track, city frame: ``[S, 2]``, ``[S]``.

    If it has no observed state in the batch's window, the track seen last stands in for it.
    Raises: DataError naming a scenario without any observed track.
    """
    last = batch.tracks.last_seen(batch.num_observed)
    row = batch.focal.copy()
    for scene in np.flatnonzero(last[row] < 0):
        of_scene = np.flatnonzero(batch.track_scene == scene)
        row[scene] = of_scene[last[of_scene].argmax()]
    unseen = batch.scenario_id[last[row] < 0].tolist()
    if unseen:
        history_s = batch.num_observed * float(batch.step_s[0])
        problem = f"has no track that was observed within the last {history_s:.2g} s, which the model reads"
        raise DataError(problem, file=unseen[0])
    return observed_poses(batch, lanes, row)[np.arange(len(batch)), last[row]]


def last_poses(scenario: Scenario, rows: NDArray[np.int64]) -> Pose[np.ndarray]:
    """Return the last observed poses ``[R]`` of the observed tracks ``rows``, see :func:`observed_poses`."""
    poses = observed_poses(ScenarioBatch.of([scenario]), Routes.of(scenario.map), rows)
    return poses[np.arange(len(rows)), scenario.last_seen[rows]]


def observed_poses(batch: ScenarioBatch, lanes: Routes, rows: NDArray[np.int64]) -> Pose[np.ndarray]:
    """Return the observed poses ``[R, T]`` of the tracks ``rows``, city frame, with headings completed.

    A track that moves backwards is turned round. Before its heading is known, a track gets its last observed
    heading; if that is unknown, the direction of the nearest lane, if there is one.
    """
    tracks = batch.tracks
    now = batch.num_observed
    valid = tracks.valid[rows, :now]
    position = tracks.position[rows, :now]
    recorded = tracks.heading[rows, :now]
    has_heading = heading_known(recorded, position, valid)
    heading = forward_heading(recorded, tracks.velocity[rows, :now], has_heading)
    row = np.arange(len(rows))
    last = last_step(valid)
    final = heading[row, last]
    unknown = np.flatnonzero(~has_heading[row, last])
    unknown_scene = batch.track_scene[rows[unknown]]
    final[unknown] = nearest_heading(lanes, unknown_scene, position[unknown, last[unknown]])
    return Pose(position, np.where(has_heading, heading, final[:, None]))


def agent_features(
    batch: ScenarioBatch, lanes: Routes, origin: NDArray[np.float64], config: FeatureConfig
) -> AgentFeatures:
    """Compute the agents of all scenes.

    Args:
        lanes: routes of the batch's map.
        origin: ``[S, 2]`` metres, city frame.
    """
    tracks = batch.tracks
    now = batch.num_observed
    keep, last, elapsed = _select(batch, origin, config)
    scene = batch.track_scene[keep]
    valid = tracks.valid[keep]
    agents = np.arange(len(keep))
    poses = observed_poses(batch, lanes, keep)
    current = poses[agents, last]

    frame = Pose(current.position[:, None], current.heading[:, None])
    past = relative_pose(poses, frame)
    velocity = rotate(tracks.velocity[keep, :now], -frame.heading)
    observed = valid[:, :now, None]
    history = np.concatenate(
        (
            past.position / LENGTH_SCALE,
            velocity / SPEED_SCALE,
            unit_vector(past.heading),
            observed,
        ),
        -1,
    )
    future = to_local(tracks.position[keep, now:], frame.position, frame.heading)
    object_type = tracks.object_type[keep].astype(np.int64)
    if "classes" in config.omit:
        object_type[:] = UNKNOWN_TYPE
    return AgentFeatures(
        scene=scene,
        track=keep,
        track_id=tracks.track_id[keep],
        position=(current.position - origin[scene]).astype(np.float32),
        heading=current.heading.astype(np.float32),
        velocity=velocity[agents, last].astype(np.float32),
        elapsed_s=elapsed.astype(np.float32),
        object_type=object_type,
        category=tracks.category[keep].astype(np.int64),
        history=np.where(observed, history, 0.0).astype(np.float32),
        anchors=_anchors(batch, lanes, keep, last, current, config.anchor_steps),
        target=np.where(valid[:, now:, None], future, 0.0).astype(np.float32),
        target_mask=valid[:, now:],
    )


def _anchors(
    batch: ScenarioBatch,
    lanes: Routes,
    keep: NDArray[np.int64],
    last: NDArray[np.int64],
    current: Pose[np.ndarray],
    steps: int,
) -> NDArray[np.float32]:
    """Predict the tracks ``keep`` along the lanes from their poses at ``last``: ``[A, 6, steps, 2]``."""
    if steps == 0:
        return np.zeros((len(keep), MODES, 0, 2), np.float32)
    tracks = batch.tracks
    scene = batch.track_scene[keep]
    gap = batch.num_observed - 1 - last
    time = (gap[:, None] + np.arange(steps + 1)) * batch.step_s[scene, None]
    velocity = tracks.velocity[keep, last]
    path, _ = lane_futures(lanes, scene, current, velocity, tracks.object_type[keep], time)
    origin = current.position[:, None, None]
    heading = current.heading[:, None, None]
    return to_local(path[:, :, 1:], origin, heading).astype(np.float32)


def is_recent(
    elapsed_s: NDArray[np.floating[Any]], step_s: float | NDArray[np.float64], memory_s: float
) -> NDArray[np.bool_]:
    """Return whether tracks last observed ``elapsed_s`` ago are recent enough to be agents.

    Clocks jitter (ten steps may take 1.00002 s), so a tenth of a step is tolerated.
    """
    recent: NDArray[np.bool_] = elapsed_s <= memory_s + step_s / 10
    return recent


def _select(
    batch: ScenarioBatch, origin: NDArray[np.float64], config: FeatureConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the tracks that become agents, their last observed steps, and the seconds since then."""
    tracks = batch.tracks
    last = tracks.last_seen(batch.num_observed)
    step_s = batch.step_s[batch.track_scene]
    elapsed = (batch.num_observed - 1 - last) * step_s
    scored = tracks.category >= TrackCategory.SCORED
    recent = is_recent(elapsed, step_s, config.memory_s)
    keep = np.flatnonzero((last >= 0) & (scored | recent))
    scene = batch.track_scene[keep]
    is_other = keep != batch.focal[scene]
    distance = norm(tracks.position[keep, last[keep]] - origin[scene])
    keep = keep[smallest_in_scene(scene, config.max_agents, is_other, ~scored[keep], distance)]
    return keep, last[keep], elapsed[keep]
