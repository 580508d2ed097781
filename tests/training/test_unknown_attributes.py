"""Attributes that are unknown in some scenes, with the probabilities that the config gives."""

from __future__ import annotations

import numpy as np

from trajpred.data.batch import ScenarioBatch
from trajpred.data.lane_map import LANE_TYPES
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import UNKNOWN_TYPE
from trajpred.features.config import BOUNDARIES, FeatureConfig
from trajpred.features.scene_graph import SceneFeatures, scene_features
from trajpred.training.augmentation import AugmentConfig, augment


def test_each_attribute_is_unknown_in_some_scenes_and_all_together_in_some(scenario: Scenario) -> None:
    """With probability p for each and p for all together, an attribute stays with (1 - p)²."""
    count = 400
    config = FeatureConfig(max_agents=4, max_lanes=10_000, lane_radius_m=1e6)
    single = scene_features(ScenarioBatch.of([scenario]), config)
    recorded = attributes(single)
    assert recorded["boundaries"]
    assert recorded["marks"]
    assert recorded["classes"]
    stays = dict.fromkeys(recorded, 0)
    lacks_all = 0
    for seed in range(count):
        varied = augment(single, AugmentConfig(unknown=0.3), np.array([seed]))
        left = attributes(varied)
        for name, is_left in left.items():
            stays[name] += is_left
        lacks_all += not any(left.values())
    for name, was_recorded in recorded.items():
        expected = 0.7**2 if was_recorded else 0.0
        assert abs(stays[name] / count - expected) < 0.08, name
    assert lacks_all / count > 0.3 - 0.07


def attributes(features: SceneFeatures) -> dict[str, bool]:
    """Return which attributes the features have."""
    lanes = features.lanes
    of_lanes = lanes.kind < len(LANE_TYPES)
    boundaries = lanes.points[of_lanes, :, BOUNDARIES]
    return {
        "boundaries": bool(np.abs(boundaries).sum() > 0),
        "marks": bool(lanes.marks.any()),
        "crossings": not of_lanes.all(),
        "classes": bool((features.agents.object_type != UNKNOWN_TYPE).any()),
    }
