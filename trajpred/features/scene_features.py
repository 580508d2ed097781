"""Scenarios -> agents and lanes in their own frames. NumPy only, vectorised over all scenes of a batch.

The origin of each scene is subtracted in float64; results are float32. Positions and headings of the local
frames serve relative poses only and are never features themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpred.features.agents import AgentFeatures, agent_features, focal_poses
from trajpred.features.config import FeatureConfig
from trajpred.features.lanes import LaneFeatures, lane_features
from trajpred.scenario_batch import ScenarioBatch


@dataclass(frozen=True)
class SceneFeatures:
    """Features of ``S`` scenes.

    Attributes:
        scenario_id: ``[S]`` strings.
        origin: ``[S, 2]`` float64, city frame: the focal agent's last observed position, or that of the track
            seen last where the focal one has no observed state in the model's history.
        heading: ``[S]`` the focal agent's last observed heading, radians, city frame.
        step_s: ``[S]`` seconds between steps.
        recorded: ``[S]`` int64, how many future steps were recorded; later ones may be continued labels.
        agents, lanes: of all scenes, scene by scene.
    """

    scenario_id: NDArray[np.str_]
    origin: NDArray[np.float64]
    heading: NDArray[np.float32]
    step_s: NDArray[np.float64]
    recorded: NDArray[np.int64]
    agents: AgentFeatures
    lanes: LaneFeatures


def scene_features(batch: ScenarioBatch, config: FeatureConfig) -> SceneFeatures:
    """Compute the features of ``batch``; future states enter ``target`` alone.

    Example:
        >>> features = scene_features(ScenarioBatch.of([scenario]), FeatureConfig())
        >>> features.agents.history.shape
        (12, 50, 7)
    """
    batch = batch.window(config.history or batch.num_observed, config.future or batch.num_future)
    focal = focal_poses(batch)
    agents = agent_features(batch, focal.position, config)
    lanes = lane_features(batch, focal.position, agents, config)
    heading = focal.heading.astype(np.float32)
    return SceneFeatures(
        scenario_id=batch.scenario_id,
        origin=focal.position,
        heading=heading,
        step_s=batch.step_s,
        recorded=(batch.recorded - batch.num_observed).clip(0, batch.num_future),
        agents=agents,
        lanes=lanes,
    )
