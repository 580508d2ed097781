"""Variations keep what they must, are functions of their keys, and reflection equals a reflected scene."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import equal
from tests.scenes import assert_same, features_of, hidden, in_a_mirror, straight
from trajpred.data.batch import ScenarioBatch
from trajpred.data.lane_map import LANE_TYPES
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import UNKNOWN_TYPE, TrackCategory
from trajpred.features.config import BOUNDARIES, FeatureConfig
from trajpred.features.scene_graph import LaneFeatures, SceneFeatures, mirrored, scene_features
from trajpred.predictors.perturbations import without_map
from trajpred.training.augmentation import AugmentConfig, augment, hashed, uniform, vary_recordings


@pytest.fixture
def features(scenario: Scenario) -> SceneFeatures:
    return features_of(scenario)


def vary(features: SceneFeatures, seed: int = 0, **config: float) -> SceneFeatures:
    return augment(features, AugmentConfig(**config), np.array([seed]))


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_scored_agents_are_never_dropped(features: SceneFeatures, share: float) -> None:
    left = vary(features, drop_agents=share).agents
    scored = features.agents.category >= TrackCategory.SCORED
    assert set(features.agents.track[scored]) <= set(left.track)
    unscored = (left.category < TrackCategory.SCORED).sum()
    if share == 1:
        assert unscored == 0
    else:
        assert 0 < unscored < (~scored).sum()
    row = [features.agents.track.tolist().index(track) for track in left.track]
    for name in left.__dataclass_fields__:
        assert np.array_equal(getattr(left, name), getattr(features.agents, name)[row]), name


def test_kept_lanes_keep_their_topology(features: SceneFeatures) -> None:
    left = vary(features, drop_lanes=0.5).lanes
    old = []
    for points in left.points:
        same_points = (features.lanes.points == points).all((1, 2))
        old.append(int(np.flatnonzero(same_points)[0]))
    assert 0 < len(old) < len(features.lanes.kind)
    for name in ("position", "heading", "kind", "marks", "is_intersection"):
        assert np.array_equal(getattr(left, name), getattr(features.lanes, name)[old]), name
    kept = set()
    for sender, receiver, kind in edges(features.lanes):
        if sender in old and receiver in old:
            kept.add((old.index(sender), old.index(receiver), kind))
    assert edges(left) == kept


def test_truncation_masks_the_beginning(features: SceneFeatures) -> None:
    before = features.agents.history
    after = vary(features, truncate_history=1.0).agents.history
    starts = []
    for old, new in zip(before, after, strict=True):
        changed = np.flatnonzero((old != new).any(1))
        start = changed.max() + 1 if len(changed) else 0
        assert (new[:start] == 0).all()
        assert np.array_equal(new[start:], old[start:])
        assert new[:, -1].any(), "no observed step is left"
        starts.append(start)
    assert 0 < max(starts) <= 45
    assert len(set(starts)) > 5


def test_truncation_keeps_the_last_state_of_agents_that_were_seen_earlier(features: SceneFeatures) -> None:
    history = features.agents.history.copy()
    history[:, 20:] = 0  # nobody is seen in the last three of five seconds
    past = replace(features, agents=replace(features.agents, history=history))
    seen = history[..., -1] > 0
    rows = np.flatnonzero(seen.any(1))
    last = 19 - seen[rows, :20][:, ::-1].argmax(1)
    for seed in range(10):
        after = vary(past, seed, truncate_history=1.0).agents.history
        assert np.array_equal(after[rows, last], history[rows, last])


def test_histories_get_gaps_and_keep_their_last_state(features: SceneFeatures) -> None:
    before = features.agents.history
    lengths = []
    at_the_end = 0
    for seed in range(20):
        after = vary(features, seed, gap=1.0).agents.history
        hidden = (after != before).any(2)
        assert (after[hidden] == 0).all()
        assert np.array_equal(after[:, -1].any(1), before[:, -1].any(1))
        for old, new, gone in zip(before, after, hidden, strict=True):
            seen = np.flatnonzero(old[:, -1])
            assert np.array_equal(new[seen[-1]], old[seen[-1]])
            if gone.any():
                steps = np.flatnonzero(gone)
                lengths.append(steps[-1] - steps[0] + 1)
                at_the_end += steps[-1] == seen[seen < seen[-1]][-1]
                assert not new[steps[0] : steps[-1] + 1].any(), "one run of steps"
    assert max(lengths) == 10
    assert len(set(lengths)) == 10
    assert at_the_end > len(lengths) / 3
    assert equal(vary(features, 3, gap=0.0), vary(features, 4, gap=0.0))


def test_recordings_are_cut_anywhere_and_what_is_recorded_stays_known(
    sample_scenarios: list[Scenario],
) -> None:
    """Truth: the states of the recording at the same times, wherever the forecast is made."""
    batch = ScenarioBatch.of(sample_scenarios[:3])
    window = FeatureConfig(history=60, future=100)
    config = AugmentConfig(earlier_s=4.0, later_s=4.0)
    moves = set()
    for key in range(12):
        cut = vary_recordings(batch, config, window, np.arange(3) + key)
        assert cut.num_observed == 60
        assert cut.tracks.valid.shape[1] == 160
        for scene in range(3):
            rows = batch.track_scene == scene
            possible = [by for by in range(-40, 41) if is_moved(cut, batch, rows, by)]
            assert len(possible) == 1
            later = possible[0]
            moves.add(later)
            in_cut, in_batch = spans(later)
            valid = cut.tracks.valid[rows][:, in_cut]
            assert np.array_equal(valid, batch.tracks.valid[rows][:, in_batch])
            assert cut.tracks.valid[rows].sum() == valid.sum()
            focal = cut.tracks.valid[cut.focal[scene]]
            assert focal[:60].any()
            assert focal[60:].any()
    assert min(moves) < -20
    assert max(moves) > 20


def test_a_scene_whose_focal_agent_was_not_seen_earlier_stays(sample_scenarios: list[Scenario]) -> None:
    scenario = sample_scenarios[3]
    late = hidden(scenario, np.s_[scenario.focal, : scenario.num_observed - 1])
    batch = ScenarioBatch.of([late])
    for key in range(8):
        cut = vary_recordings(batch, AugmentConfig(earlier_s=0.3), FeatureConfig(), np.array([key]))
        assert np.array_equal(cut.tracks.valid, late.tracks.valid)
    assert vary_recordings(batch, AugmentConfig(), FeatureConfig(), np.array([0])) is batch


def test_windows_rest_on_recordings(sample_scenarios: list[Scenario]) -> None:
    """A pseudo-labelled future counts for nothing: 2 s after the forecast the focal agent is recorded."""
    scenario = replace(sample_scenarios[0], continued=30)  # 50 observed and 30 recorded steps, then 30 others
    batch = ScenarioBatch.of([scenario])
    ends = set()
    for key in range(200):
        cut = vary_recordings(batch, AugmentConfig(later_s=6.0), FeatureConfig(), np.array([key]))
        ends.add(int(cut.recorded[0]) - cut.num_observed)
    assert min(ends) == 20
    assert max(ends) == 30


def test_some_scenes_are_as_noisy_as_a_tracker(sample_scenarios: list[Scenario]) -> None:
    """Sizes are log-uniform between 0.03 m and the limit; labels and what is not observed stay true."""
    scenario = sample_scenarios[0]
    config = AugmentConfig(noise=0.5, noise_m=0.8, slow_noise=0.25, derived_states=0.4)
    batch = ScenarioBatch.of([scenario] * 200)
    keys = hashed(np.arange(200)).view(np.int64)
    noisy = vary_recordings(batch, config, FeatureConfig(), keys)
    off = noisy.tracks.position - batch.tracks.position
    assert not off[:, 50:].any()
    assert not off[:, :50][~batch.tracks.valid[:, :50]].any()
    one = np.flatnonzero(scenario.tracks.valid[:, :50].all(1))
    off = off[:, :50].reshape(200, -1, 50, 2)[:, one]
    size = off.std((1, 2, 3))
    assert (size > 0).mean() == pytest.approx(0.5, abs=0.1)
    drawn = np.log(size[size > 0] / 0.03) / np.log(0.8 / 0.03)
    assert np.sort(drawn) == pytest.approx(np.linspace(0, 1, len(drawn)), abs=0.2)
    kept = off[size > 0]
    lag = (kept[:, :, 1:] * kept[:, :, :-1]).mean((1, 2, 3)) / (kept**2).mean((1, 2, 3))
    assert (lag > 0.5).mean() == pytest.approx(0.25, abs=0.12)
    changed = (noisy.tracks.heading != batch.tracks.heading).reshape(200, -1).any(1)
    assert changed.mean() == pytest.approx(0.4, abs=0.12)
    alone = vary_recordings(ScenarioBatch.of([scenario]), config, FeatureConfig(), keys[size > 0][:1])
    of_first = noisy.track_scene == np.flatnonzero(size > 0)[0]
    assert np.array_equal(alone.tracks.position, noisy.tracks.position[of_first])


def is_moved(cut: ScenarioBatch, batch: ScenarioBatch, rows: np.ndarray, later: int) -> bool:
    """Return whether the tracks ``rows`` are those of a forecast made ``later`` steps."""
    in_cut, in_batch = spans(later)
    position = cut.tracks.position[rows][:, in_cut]
    return np.array_equal(position, batch.tracks.position[rows][:, in_batch])


def spans(later: int) -> tuple[slice, slice]:
    """Return the common steps of a window of 60 + 100 steps, moved ``later``, and a recording of 50 + 60."""
    start = 10 - later
    first = max(start, 0)
    last = min(start + 110, 160)
    return slice(first, last), slice(first - start, last - start)


def test_some_scenes_lose_their_map_and_some_their_neighbours(sample_scenarios: list[Scenario]) -> None:
    batch = ScenarioBatch.of(sample_scenarios[:4])
    keys = np.arange(4)
    bare = vary_recordings(batch, AugmentConfig(no_map=0.5), FeatureConfig(), keys)
    kept = [scene for scene in range(4) if (bare.lane_scene == scene).any()]
    assert 0 < len(kept) < 4
    some_bare = []
    for scene, scenario in enumerate(sample_scenarios[:4]):
        some_bare.append(scenario if scene in kept else without_map(scenario))
    whole = ScenarioBatch.of(some_bare)
    assert np.array_equal(bare.map.centerline.values[:, :2], whole.map.centerline.values[:, :2])
    assert np.array_equal(bare.crossing_scene, whole.crossing_scene)
    assert len(bare.tracks) == len(batch.tracks)
    features = scene_features(batch, FeatureConfig())
    alone = augment(features, AugmentConfig(no_agents=1.0), keys).agents
    assert (alone.category >= TrackCategory.SCORED).all()
    assert len(alone.scene) == (features.agents.category >= TrackCategory.SCORED).sum()


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


def edges(lanes: LaneFeatures) -> set[tuple[int, int, int]]:
    """Return the topology as a set of senders, receivers and kinds."""
    senders, receivers = lanes.topology.tolist()
    return set(zip(senders, receivers, lanes.topology_kind.tolist(), strict=True))


@pytest.mark.parametrize("chosen", [[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0]], ids=str)
def test_reflected_features_are_those_of_the_reflected_scene(
    scenes: list[Scenario], chosen: list[int]
) -> None:
    truth = []
    for scenario, turned in zip(scenes, chosen, strict=True):
        truth.append(in_a_mirror(scenario) if turned else scenario)
    reflected = mirrored(features_of_all(scenes), np.array(chosen, bool))
    expected = features_of_all(truth)
    assert edges(reflected.lanes) == edges(expected.lanes)
    assert_same(reflected, expected, skip=("topology", "topology_kind"), atol=1e-5)
    assert len(np.unique(reflected.lanes.topology_kind)) == 4
    assert len(np.unique(reflected.lanes.marks)) > 2


def test_anchors_are_reflected(scenes: list[Scenario]) -> None:
    """They differ from those of the reflected scene: of two equally probable turns the left one is first."""
    features = scene_features(ScenarioBatch.of(scenes), FeatureConfig(anchor_steps=7))
    chosen = np.arange(len(scenes)) % 2 == 0
    sign = np.where(chosen[features.agents.scene], -1.0, 1.0)[:, None, None]
    anchors = features.agents.anchors
    reflected = mirrored(features, chosen).agents.anchors
    assert np.array_equal(reflected[..., 0], anchors[..., 0])
    assert np.array_equal(reflected[..., 1], anchors[..., 1] * sign)


def test_scenes_are_reflected_with_the_given_probability_by_their_keys() -> None:
    many = features_of_all([straight(2)] * 400)
    keys = np.arange(400)
    many = replace(many, heading=np.ones(400, np.float32))

    def turned(mirror: float, keys: np.ndarray = keys) -> np.ndarray:
        return augment(many, AugmentConfig(mirror=mirror), keys).heading < 0

    assert not turned(0.0).any()
    assert turned(1.0).all()
    assert 0.2 < turned(0.3).mean() < 0.4
    assert np.array_equal(turned(0.3, keys[::-1]), turned(0.3)[::-1])


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


def test_hash_equals_splitmix64() -> None:
    """The first output of the authors' C code from state 0."""
    assert hashed(0).tolist() == [0xE220A8397B1DCDAF]


def test_numbers_are_uniform_and_uncorrelated() -> None:
    """Four standard errors of 10^5 draws, for neighbouring keys."""
    row = np.arange(1000)[:, None]
    item = np.arange(100)[None]
    numbers = uniform(row, 5, item)
    assert numbers.shape == (1000, 100)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 4 * np.sqrt(1 / 12 / numbers.size)
    share = np.histogram(numbers, 10, (0, 1))[0] / numbers.size
    assert np.abs(share - 0.1).max() < 4 * np.sqrt(0.09 / numbers.size)
    for other in (uniform(row + 1, 5, item), uniform(row, 6, item), uniform(row, 5, item + 1)):
        correlation = np.corrcoef(numbers.ravel(), other.ravel())[0, 1]
        assert abs(correlation) < 4 / np.sqrt(numbers.size)
