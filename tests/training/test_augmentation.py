"""Variations keep what they must, are functions of their keys, and reflection equals a reflected scene."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from tests.features.scenes import features_of, in_a_mirror, straight
from trajpred.features.channels import BOUNDARIES
from trajpred.features.config import FeatureConfig
from trajpred.features.mirror import mirrored
from trajpred.features.scene_features import SceneFeatures, scene_features
from trajpred.lane_map import LANE_TYPES
from trajpred.predictors.perturbations import without_map
from trajpred.scenario import UNKNOWN_TYPE, Scenario, TrackCategory, Tracks
from trajpred.scenario_batch import ScenarioBatch
from trajpred.training.augmentation import AugmentConfig, augment, hashed, recut, uniform


@pytest.fixture
def features(scenario: Scenario) -> SceneFeatures:
    return features_of(scenario)


def vary(features: SceneFeatures, seed: int = 0, **config: float) -> SceneFeatures:
    return augment(features, AugmentConfig(**config), np.array([seed]))


def same(a: SceneFeatures, b: SceneFeatures) -> bool:
    return all(
        np.array_equal(getattr(x, name), getattr(y, name))
        for x, y in ((a.agents, b.agents), (a.lanes, b.lanes))
        for name in x.__dataclass_fields__
    )


def test_variations_are_functions_of_the_seed(features: SceneFeatures) -> None:
    config = {"drop_agents": 0.5, "drop_lanes": 0.5, "truncate_history": 0.5}
    assert same(vary(features), features)
    assert same(vary(features, 1, **config), vary(features, 1, **config))
    assert not same(vary(features, 1, **config), vary(features, 2, **config))


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_scored_agents_are_never_dropped(features: SceneFeatures, share: float) -> None:
    left = vary(features, drop_agents=share).agents
    scored = features.agents.category >= TrackCategory.SCORED
    assert set(features.agents.track[scored]) <= set(left.track)
    others = (left.category < TrackCategory.SCORED).sum()
    assert others == 0 if share == 1 else 0 < others < (~scored).sum()
    row = [features.agents.track.tolist().index(track) for track in left.track]
    for name in left.__dataclass_fields__:  # the others are unchanged
        assert np.array_equal(getattr(left, name), getattr(features.agents, name)[row]), name


def test_kept_lanes_keep_their_topology(features: SceneFeatures) -> None:
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


def test_truncation_masks_the_beginning(features: SceneFeatures) -> None:
    before, after = features.agents.history, vary(features, truncate_history=1.0).agents.history
    starts = []
    for old, new in zip(before, after, strict=True):
        changed = np.flatnonzero((old != new).any(1))
        start = changed.max() + 1 if len(changed) else 0
        assert (new[:start] == 0).all() and np.array_equal(new[start:], old[start:])
        assert new[:, -1].any(), "no observed step is left"
        starts.append(start)
    assert 0 < max(starts) <= 45 and len(set(starts)) > 5


def test_truncation_keeps_the_last_state_of_agents_that_were_seen_earlier(features: SceneFeatures) -> None:
    history = features.agents.history.copy()
    history[:, 20:] = 0  # nobody is seen in the last three of five seconds
    given = replace(features, agents=replace(features.agents, history=history))
    seen = history[..., -1] > 0
    rows = np.flatnonzero(seen.any(1))
    last = 19 - seen[rows, :20][:, ::-1].argmax(1)
    for seed in range(10):
        after = vary(given, seed, truncate_history=1.0).agents.history
        assert np.array_equal(after[rows, last], history[rows, last])


def test_histories_get_gaps_and_keep_their_last_state(features: SceneFeatures) -> None:
    before, lengths, at_the_end = features.agents.history, [], 0
    for seed in range(20):
        after = vary(features, seed, gap=1.0).agents.history
        hidden = (after != before).any(2)
        assert (after[hidden] == 0).all() and np.array_equal(after[:, -1].any(1), before[:, -1].any(1))
        for old, new, gone in zip(before, after, hidden, strict=True):
            seen = np.flatnonzero(old[:, -1])
            assert np.array_equal(new[seen[-1]], old[seen[-1]])
            if gone.any():
                steps = np.flatnonzero(gone)
                lengths.append(steps[-1] - steps[0] + 1)
                at_the_end += steps[-1] == seen[seen < seen[-1]][-1]
                assert not new[steps[0] : steps[-1] + 1].any(), "one run of steps"
    assert max(lengths) == 10 and len(set(lengths)) == 10 and at_the_end > len(lengths) / 3
    assert same(vary(features, 3, gap=0.0), vary(features, 4, gap=0.0))


def test_a_recording_is_cut_at_any_step_and_everything_recorded_stays_known(
    sample_scenarios: list[Scenario],
) -> None:
    """Truth: the states of the recording at the same times, wherever the forecast is made."""
    batch = ScenarioBatch.of(sample_scenarios[:3])
    window, config = FeatureConfig(history=60, future=100), AugmentConfig(earlier_s=4.0, later_s=4.0)
    moves = set()
    for key in range(12):
        cut = recut(batch, config, window, np.arange(3) + key)
        assert cut.num_observed == 60 and cut.tracks.valid.shape[1] == 160
        for scene in range(3):
            rows = batch.track_scene == scene
            [later] = {
                by
                for by in range(-40, 41)
                if np.array_equal(*(t.position[rows][:, a:b] for t, a, b in spans(cut, batch, by)))
            }
            moves.add(later)
            states = [t.valid[rows][:, a:b] for t, a, b in spans(cut, batch, later)]
            assert np.array_equal(*states) and cut.tracks.valid[rows].sum() == states[0].sum()
            focal = cut.tracks.valid[cut.focal[scene]]
            assert focal[:60].any() and focal[60:].any()
    assert min(moves) < -20 and max(moves) > 20


def test_a_scene_whose_focal_agent_was_not_seen_earlier_stays(sample_scenarios: list[Scenario]) -> None:
    scenario = sample_scenarios[3]
    valid = scenario.tracks.valid.copy()
    valid[scenario.focal, : scenario.num_observed - 1] = False
    batch = ScenarioBatch.of([replace(scenario, tracks=replace(scenario.tracks, valid=valid))])
    for key in range(8):
        cut = recut(batch, AugmentConfig(earlier_s=0.3), FeatureConfig(), np.array([key]))
        assert np.array_equal(cut.tracks.valid, valid)
    assert recut(batch, AugmentConfig(), FeatureConfig(), np.array([0])) is batch


def spans(cut: ScenarioBatch, batch: ScenarioBatch, later: int) -> list[tuple[Tracks, int, int]]:
    """The steps of a recording of 50 + 60 steps in the window 60 + 100 of a forecast made ``later`` steps."""
    start = 10 - later
    first, last = max(start, 0), min(start + 110, 160)
    return [(cut.tracks, first, last), (batch.tracks, first - start, last - start)]


def test_some_scenes_lose_their_map_and_some_their_neighbours(sample_scenarios: list[Scenario]) -> None:
    batch, keys = ScenarioBatch.of(sample_scenarios[:4]), np.arange(4)
    bare = recut(batch, AugmentConfig(no_map=0.5), FeatureConfig(), keys)
    kept = [scene for scene in range(4) if (bare.lane_scene == scene).any()]
    assert 0 < len(kept) < 4
    whole = ScenarioBatch.of([s if i in kept else without_map(s) for i, s in enumerate(sample_scenarios[:4])])
    assert np.array_equal(bare.map.centerline.values[:, :2], whole.map.centerline.values[:, :2])
    assert np.array_equal(bare.crossing_scene, whole.crossing_scene) and len(bare.tracks) == len(batch.tracks)
    features = scene_features(batch, FeatureConfig())
    alone = augment(features, AugmentConfig(no_agents=1.0), keys).agents
    assert (alone.category >= TrackCategory.SCORED).all()
    assert len(alone.scene) == (features.agents.category >= TrackCategory.SCORED).sum()


def test_each_attribute_is_unknown_in_some_scenes_and_all_together_in_some(scenario: Scenario) -> None:
    """With probability p for each and p for all together, an attribute stays with (1 - p)²."""
    count = 400
    config = FeatureConfig(max_agents=4, max_lanes=10_000, lane_radius_m=1e6)
    single = scene_features(ScenarioBatch.of([scenario]), config)
    lanes = single.lanes
    known = {
        "boundaries": bool(np.abs(lanes.points[lanes.kind < len(LANE_TYPES), :, BOUNDARIES]).sum() > 0),
        "marks": bool(lanes.marks.any()),
        "crossings": bool((lanes.kind == len(LANE_TYPES)).any()),
        "classes": bool((single.agents.object_type != UNKNOWN_TYPE).any()),
    }
    assert known["boundaries"] and known["marks"] and known["classes"]
    stays = dict.fromkeys(known, 0)
    lacks_all = 0
    for seed in range(count):
        varied = augment(single, AugmentConfig(unknown=0.3), np.array([seed]))
        of_lanes = varied.lanes.kind < len(LANE_TYPES)
        found = {
            "boundaries": bool(np.abs(varied.lanes.points[of_lanes, :, BOUNDARIES]).sum() > 0),
            "marks": bool(varied.lanes.marks.any()),
            "crossings": bool((~of_lanes).any()),
            "classes": bool((varied.agents.object_type != UNKNOWN_TYPE).any()),
        }
        for name, value in found.items():
            stays[name] += value
        lacks_all += not any(found.values())
    for name, is_known in known.items():
        expected = 0.7**2 if is_known else 0.0
        assert abs(stays[name] / count - expected) < 0.08, name
    assert lacks_all / count > 0.3 - 0.07


def test_lanes_and_agents_are_dropped_independently() -> None:
    lanes = [[[5 * i, 0], [5 * i + 4, 0]] for i in range(20)]
    unscored = [TrackCategory.FOCAL] + [TrackCategory.UNSCORED] * 19
    before = features_of(straight(20, category=unscored, map=lanes))
    after = vary(before, drop_agents=0.5, drop_lanes=0.5)
    assert len(before.agents.track) == len(before.lanes.kind) == 20
    agents = np.isin(before.agents.track, after.agents.track)
    left = np.isin(before.lanes.position[:, 0], after.lanes.position[:, 0])
    assert (agents[1:] != left[1:]).any()


def features_of_all(scenes: list[Scenario]) -> SceneFeatures:
    return scene_features(ScenarioBatch.of(scenes), FeatureConfig())


def edges(scenes: SceneFeatures) -> set[tuple[int, int, int]]:
    """Return the topology as a set."""
    return set(zip(*scenes.lanes.topology.tolist(), scenes.lanes.topology_kind.tolist(), strict=True))


def assert_close(a: SceneFeatures, b: SceneFeatures, atol: float = 0.0) -> None:
    assert edges(a) == edges(b)
    for x, y in ((a, b), (a.agents, b.agents), (a.lanes, b.lanes)):
        for name in {f.name for f in fields(x)} - {"agents", "lanes", "topology", "topology_kind"}:
            one, two = getattr(x, name), getattr(y, name)
            assert one.dtype == two.dtype, name
            if one.dtype.kind == "f":
                np.testing.assert_allclose(one, two, rtol=0, atol=atol, err_msg=name)
            else:
                assert np.array_equal(one, two), name


@pytest.mark.parametrize("chosen", [[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0]], ids=str)
def test_reflected_features_equal_features_of_the_reflected_scene(
    scenes: list[Scenario], chosen: list[int]
) -> None:
    truth = [in_a_mirror(s) if turned else s for s, turned in zip(scenes, chosen, strict=True)]
    found = mirrored(features_of_all(scenes), np.array(chosen, bool))
    assert_close(found, features_of_all(truth), atol=1e-5)
    assert len(set(found.lanes.topology_kind.tolist())) == 4 and len(np.unique(found.lanes.marks)) > 2


def test_anchors_are_reflected(scenes: list[Scenario]) -> None:
    """They differ from those of the reflected scene: of two equally probable turns the left one is first."""
    features = scene_features(ScenarioBatch.of(scenes), FeatureConfig(anchor_steps=7))
    chosen = np.arange(len(scenes)) % 2 == 0
    sign = np.where(chosen[features.agents.scene], -1.0, 1.0)[:, None, None]
    found = mirrored(features, chosen).agents.anchors
    assert np.array_equal(found[..., 0], features.agents.anchors[..., 0])
    assert np.array_equal(found[..., 1], features.agents.anchors[..., 1] * sign)


def test_scenes_are_reflected_with_the_given_probability_by_their_keys() -> None:
    many, keys = features_of_all([straight(2)] * 400), np.arange(400)
    many = replace(many, heading=np.ones(400, np.float32))

    def turned(mirror: float, keys: np.ndarray = keys) -> np.ndarray:
        return augment(many, AugmentConfig(mirror=mirror), keys).heading < 0

    assert not turned(0.0).any() and turned(1.0).all()
    assert 0.2 < turned(0.3).mean() < 0.4
    assert np.array_equal(turned(0.3, keys[::-1]), turned(0.3)[::-1])


def test_hash_equals_splitmix64() -> None:
    """The first output of the authors' C code from state 0."""
    assert hashed(0).tolist() == [0xE220A8397B1DCDAF]


def test_numbers_are_uniform_and_uncorrelated() -> None:
    """Four standard errors of 10^5 draws, for neighbouring keys."""
    row, item = np.arange(1000)[:, None], np.arange(100)[None]
    numbers = uniform(row, 5, item)
    assert numbers.shape == (1000, 100) and numbers.min() >= 0 and numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 4 * np.sqrt(1 / 12 / numbers.size)
    share = np.histogram(numbers, 10, (0, 1))[0] / numbers.size
    assert np.abs(share - 0.1).max() < 4 * np.sqrt(0.09 / numbers.size)
    for other in (uniform(row + 1, 5, item), uniform(row, 6, item), uniform(row, 5, item + 1)):
        correlation = np.corrcoef(numbers.ravel(), other.ravel())[0, 1]
        assert abs(correlation) < 4 / np.sqrt(numbers.size)
