"""augment: what may go, what must stay."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.scenes import features_of, straight
from trajpred.graph.config import FeatureConfig, GraphConfig
from trajpred.graph.features import SceneFeatures
from trajpred.graph.scene_graph import scene_graph
from trajpred.graph.transforms import AugmentConfig, augment
from trajpred.scenario import Scenario, TrackCategory


@pytest.fixture
def features(scenario: Scenario) -> SceneFeatures:
    return features_of(scenario, FeatureConfig())


def vary(features: SceneFeatures, seed: int = 0, **config: float) -> SceneFeatures:
    return augment(features, AugmentConfig(**config), np.array([seed]))


def same(a: SceneFeatures, b: SceneFeatures) -> bool:
    return all(
        np.array_equal(getattr(x, name), getattr(y, name))
        for x, y in ((a.agents, b.agents), (a.lanes, b.lanes))
        for name in x.__dataclass_fields__
    )


def test_by_default_nothing_happens(features: SceneFeatures) -> None:
    assert same(vary(features), features)


def test_the_seed_decides(features: SceneFeatures) -> None:
    config = {"drop_agents": 0.5, "drop_lanes": 0.5, "truncate_history": 0.5}
    assert same(vary(features, 1, **config), vary(features, 1, **config))
    assert not same(vary(features, 1, **config), vary(features, 2, **config))


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_judged_agents_stay(features: SceneFeatures, share: float) -> None:
    left = vary(features, drop_agents=share).agents
    judged = features.agents.category >= TrackCategory.SCORED
    assert set(features.agents.track[judged]) <= set(left.track)
    others = (left.category < TrackCategory.SCORED).sum()
    assert others == 0 if share == 1 else 0 < others < (~judged).sum()
    row = [features.agents.track.tolist().index(track) for track in left.track]
    for name in left.__dataclass_fields__:  # agents that stay are left alone
        assert np.array_equal(getattr(left, name), getattr(features.agents, name)[row]), name


def test_topology_among_the_lanes_left_is_what_it_was(features: SceneFeatures) -> None:
    left = vary(features, drop_lanes=0.5).lanes
    old = [int(np.flatnonzero((features.lanes.points == points).all((1, 2)))[0]) for points in left.points]
    assert 0 < len(old) < len(features.lanes.kind)
    for name in ("position", "heading", "kind", "marks", "is_intersection"):
        assert np.array_equal(getattr(left, name), getattr(features.lanes, name)[old]), name
    before = set(zip(*features.lanes.topology.tolist(), features.lanes.topology_kind.tolist(), strict=True))
    found = zip(*left.topology.tolist(), left.topology_kind.tolist(), strict=True)
    assert {(old[s], old[r], k) for s, r, k in found} == {
        (s, r, k) for s, r, k in before if s in old and r in old
    }


def test_without_lanes_there_still_is_a_graph(features: SceneFeatures) -> None:
    graph = scene_graph(vary(features, drop_lanes=1.0, drop_agents=1.0), GraphConfig())
    assert graph["lane"].num_nodes == 0 and graph["lane", "to", "lane"].num_edges == 0


def test_truncation_hides_the_beginning(features: SceneFeatures) -> None:
    before, after = features.agents.history, vary(features, truncate_history=1.0).agents.history
    starts = []
    for old, new in zip(before, after, strict=True):
        changed = np.flatnonzero((old != new).any(1))
        start = changed.max() + 1 if len(changed) else 0
        assert (new[:start] == 0).all() and np.array_equal(new[start:], old[start:])
        assert new[:, -1].any(), "nothing left of what was seen"
        starts.append(start)
    assert 0 < max(starts) <= 45 and len(set(starts)) > 5


def test_truncation_leaves_the_last_seen_step_of_an_agent_out_of_sight() -> None:
    valid = np.ones((2, 110), bool)
    valid[1, 20:50] = False  # scored, so it is an agent although it was not seen for 3 s
    features = features_of(straight(2, valid=valid), FeatureConfig())
    for seed in range(20):
        history = vary(features, seed, truncate_history=1.0).agents.history
        assert history[1, 19, -1] == 1


def test_which_lanes_go_does_not_follow_from_which_agents_go() -> None:
    lanes = [[[5 * i, 0], [5 * i + 4, 0]] for i in range(20)]
    unscored = [TrackCategory.FOCAL] + [TrackCategory.UNSCORED] * 19
    before = features_of(straight(20, category=unscored, map=lanes))
    after = vary(before, drop_agents=0.5, drop_lanes=0.5)
    assert len(before.agents.track) == len(before.lanes.kind) == 20
    agents = np.isin(before.agents.track, after.agents.track)
    left = np.isin(before.lanes.position[:, 0], after.lanes.position[:, 0])
    assert (agents[1:] != left[1:]).any()
