"""scene_features: closed forms, invariance, causality, and the selection of tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import equal, rejects
from tests.scenes import FAR, assert_same, features_of, moved, other_future, straight
from trajpred.data.batch import ScenarioBatch
from trajpred.data.geometry import Pose
from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import UNKNOWN_TYPE, TrackCategory
from trajpred.errors import DataError
from trajpred.features.agents import last_poses
from trajpred.features.config import LANE_KINDS, TOPOLOGY, FeatureConfig
from trajpred.features.scene_graph import LaneFeatures, SceneFeatures, scene_features
from trajpred.predictors.baselines import lane_following
from trajpred.predictors.perturbations import perturbation

DEFAULT = FeatureConfig()
#: Keeps every lane and crossing, so row i is lane i.
ALL_LANES = FeatureConfig(max_lanes=10_000, lane_radius_m=1e6)
#: Fields that do not depend on the city's origin.
LOCAL_AGENT = ("velocity", "history", "target")
SAME_AGENT = ("track", "elapsed_s", "object_type", "category", "target_mask")
SAME_LANE = ("kind", "is_intersection", "marks", "topology", "topology_kind")


def as_complex(xy: np.ndarray) -> np.ndarray:
    return xy[..., 0] + 1j * xy[..., 1]


def as_xy(z: np.ndarray) -> np.ndarray:
    return np.stack((z.real, z.imag), -1)


def local_truth(scenario: Scenario, features: SceneFeatures) -> dict[str, np.ndarray]:
    """Compute every agent in the frame of its last observed pose, with complex numbers in a loop."""
    rows: dict[str, list[np.ndarray]] = {"position": [], "velocity": [], "turn": [], "valid": []}
    for track in features.agents.track:
        last = np.flatnonzero(scenario.tracks.valid[track, : scenario.num_observed])[-1]
        place = as_complex(scenario.tracks.position[track])
        velocity = as_complex(scenario.tracks.velocity[track])
        back = np.exp(-1j * scenario.tracks.heading[track, last])
        rows["position"].append((place - place[last]) * back)
        rows["velocity"].append(velocity * back)
        rows["turn"].append(np.exp(1j * scenario.tracks.heading[track]) * back)
        rows["valid"].append(scenario.tracks.valid[track])
    return {name: np.array(values) for name, values in rows.items()}


def test_anchors_are_lane_following_in_the_agents_own_frames(scenario: Scenario) -> None:
    other = moved(scenario, FAR, 1.0)
    features = scene_features(ScenarioBatch.of([other, scenario]), FeatureConfig(anchor_steps=60))
    for scene, source in enumerate((other, scenario)):
        rows_here = features.agents.scene == scene
        expected = lane_following(source).of(features.agents.track_id[rows_here])
        rows = [source.tracks.index(name) for name in expected.track_id]
        pose = Pose(source.tracks.position, source.tracks.heading)[rows, source.last_seen[rows]]
        back = np.exp(-1j * pose.heading)[:, None, None]
        path = as_complex(expected.trajectory - pose.position[:, None, None]) * back
        # The same futures in another order: of choice, not of probability.
        gap = np.abs(features.agents.anchors[rows_here][:, :, None] - as_xy(path)[:, None]).max((3, 4))
        order = gap.argmin(2)
        assert (np.sort(order, 1) == np.arange(6)).all()
        assert gap.min(2).max() < 2e-3
    assert features_of(scenario, DEFAULT).agents.anchors.shape[1:] == (6, 0, 2)


def test_an_agent_annotated_backwards_has_the_features_of_one_that_faces_forwards(scenario: Scenario) -> None:
    tracks = scenario.tracks
    facing = np.stack((np.cos(tracks.heading), np.sin(tracks.heading)), -1)
    observed = tracks.valid[:, : scenario.num_observed]
    forwards = (facing * tracks.velocity).sum(-1)[:, : scenario.num_observed]
    moves = np.where(observed, forwards, np.inf).min(1) > 1.1
    assert moves.sum() > 2
    heading = np.where(moves[:, None], tracks.heading - np.pi, tracks.heading)
    backwards = replace(scenario, tracks=replace(tracks, heading=heading))
    config = FeatureConfig(anchor_steps=60)
    expected = features_of(scenario, config).agents
    found = features_of(backwards, config).agents
    for name in ("position", "velocity", "history", "anchors", "target"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=2e-3, err_msg=name)


@pytest.mark.parametrize("given", [True, False])
def test_a_given_heading_of_zero_is_kept_and_an_unknown_one_is_that_of_the_lane(given: bool) -> None:
    """A car waits beside a lane to the north; with a heading, it faces east."""
    heading = np.zeros((1, 50)) if given else None
    north = np.array([[3.0, -50.0], [3.0, 50.0]])
    waiting = Scenario.from_arrays(np.zeros((1, 50, 2)), num_observed=50, heading=heading, map=[north])
    expected = 0.0 if given else np.pi / 2
    assert last_poses(waiting, np.array([0])).heading == pytest.approx([expected], abs=1e-6)


def test_history_and_target_are_the_closed_form(scenario: Scenario) -> None:
    features = features_of(scenario, DEFAULT)
    truth = local_truth(scenario, features)
    now = scenario.num_observed
    valid = truth["valid"][..., None]
    history = (as_xy(truth["position"]) / 10, as_xy(truth["velocity"]) / 10, as_xy(truth["turn"]), valid)
    history = np.where(valid, np.concatenate(history, -1), 0)[:, :now]
    target = np.where(valid, as_xy(truth["position"]), 0)[:, now:]
    np.testing.assert_allclose(features.agents.history, history, rtol=0, atol=1e-4)
    np.testing.assert_allclose(features.agents.target, target, rtol=1e-6, atol=1e-4)
    assert np.array_equal(features.agents.target_mask, truth["valid"][:, now:])
    assert not valid[:, :now].all(), "the scene must have gaps"
    assert not valid[:, now:].all(), "the scene must have gaps"
    assert (features.agents.history[~truth["valid"][:, :now]] == 0).all()
    assert (features.agents.target[~features.agents.target_mask] == 0).all()


@pytest.mark.parametrize("shift", [FAR, (4e6, 5e6)], ids=["10 km", "UTM"])
@pytest.mark.parametrize("angle", [0.0, np.pi / 2, 2.0, -2.0])
def test_features_are_invariant_to_moving_and_rotating_the_scene(
    scenario: Scenario, angle: float, shift: tuple[float, float]
) -> None:
    before = features_of(scenario, DEFAULT)
    after = features_of(moved(scenario, shift, angle), DEFAULT)
    for name in LOCAL_AGENT:
        a = getattr(before.agents, name)
        b = getattr(after.agents, name)
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-4, err_msg=name)
    for name in SAME_AGENT:
        assert np.array_equal(getattr(before.agents, name), getattr(after.agents, name)), name
    np.testing.assert_allclose(after.lanes.points, before.lanes.points, rtol=1e-5, atol=1e-4)
    for name in SAME_LANE:
        assert np.array_equal(getattr(before.lanes, name), getattr(after.lanes, name)), name
    for a, b in ((before.agents, after.agents), (before.lanes, after.lanes)):
        # Frames rotate with the scene about the focal agent.
        turned = as_xy(as_complex(a.position) * np.exp(1j * angle))
        np.testing.assert_allclose(b.position, turned, rtol=0, atol=1e-3)
        np.testing.assert_allclose(np.exp(1j * b.heading), np.exp(1j * (a.heading + angle)), atol=1e-5)


def test_the_future_enters_the_target_alone(scenario: Scenario) -> None:
    before = features_of(scenario, DEFAULT)
    after = features_of(other_future(scenario), DEFAULT)
    for part in ("agents", "lanes"):
        a = getattr(before, part)
        b = getattr(after, part)
        for name in a.__dataclass_fields__:
            same = np.array_equal(getattr(a, name), getattr(b, name))
            assert same != name.startswith("target"), name


@pytest.mark.parametrize("step_s", [0.09999, 0.1, 0.10001])
def test_unobserved_tracks_are_omitted_unless_scored(step_s: float) -> None:
    """Whatever the jitter of the clock; tracks of the future alone are always omitted."""
    scored = TrackCategory.SCORED
    unscored = TrackCategory.UNSCORED
    last = np.array([49, 39, 38, 20, 20, 109])  # 1.0 s ago is recent, 1.1 s is not
    valid = np.arange(110) <= last[:, None]
    valid[5, :50] = False
    category = [TrackCategory.FOCAL, unscored, unscored, unscored, scored, scored]
    scenario = straight(6, valid=valid, category=category, step_s=step_s)
    agents = features_of(scenario, FeatureConfig(memory_s=1.0)).agents
    assert agents.track.tolist() == [0, 1, 4]
    np.testing.assert_allclose(agents.elapsed_s, np.array([0, 10, 29]) * step_s, atol=1e-6)


@pytest.mark.parametrize("most", [1, 2, 4])
def test_focal_then_scored_then_nearest_agents_are_kept(most: int) -> None:
    unscored = TrackCategory.UNSCORED
    category = [unscored, unscored, TrackCategory.SCORED, unscored, TrackCategory.FOCAL]
    scenario = straight(5, category=category, focal=4)
    rank = [4, 2, 3, 1, 0]  # focal, scored, then by distance from track 4
    agents = features_of(scenario, FeatureConfig(max_agents=most)).agents
    assert agents.track.tolist() == sorted(rank[:most])


def test_the_nearest_lanes_are_kept(scenario: Scenario) -> None:
    every = features_of(scenario, ALL_LANES)
    apart = every.lanes.position[:, None] - every.agents.position
    distance = np.hypot(apart[..., 0], apart[..., 1]).min(axis=1)
    for config in (FeatureConfig(max_lanes=20), FeatureConfig(lane_radius_m=15.0, max_lanes=10_000)):
        expected = np.flatnonzero(distance <= config.lane_radius_m)
        order = np.argsort(distance[expected], kind="stable")
        expected = np.sort(expected[order[: config.max_lanes]])
        lanes = features_of(scenario, config).lanes
        assert np.array_equal(lanes.position, every.lanes.position[expected])
        # Topology between kept lanes is kept.
        row = {old: new for new, old in enumerate(expected.tolist())}
        kept = [(j, i, kind) for j, i, kind in topology(every.lanes) if j in row and i in row]
        assert topology(lanes) == [(row[j], row[i], kind) for j, i, kind in kept]


def topology(lanes: LaneFeatures) -> list[tuple[int, int, int]]:
    """Return sender, receiver and kind of each pair."""
    senders, receivers = lanes.topology.tolist()
    return list(zip(senders, receivers, lanes.topology_kind.tolist(), strict=True))


def test_topology_equals_the_lane_ids_of_the_map(scenario: Scenario) -> None:
    lanes = features_of(scenario, ALL_LANES).lanes
    m = scenario.map
    ids = m.lane_id.tolist()
    related = {(ids[j], ids[i], TOPOLOGY[kind]) for j, i, kind in topology(lanes)}
    expected = set()
    for row, lane_id in enumerate(ids):
        senders = {
            "successor": m.successors[row].tolist(),
            "predecessor": m.predecessors[row].tolist(),
            "left": [int(m.left_neighbor[row])],
            "right": [int(m.right_neighbor[row])],
        }
        for kind in TOPOLOGY:
            for sender in senders[kind]:
                if sender in ids and sender != lane_id:
                    expected.add((sender, lane_id, kind))
    assert related == expected
    assert {kind for _, _, kind in related} == set(TOPOLOGY)


def test_points_of_a_lane_and_a_crossing_are_the_closed_form() -> None:
    lane = LaneMap(
        lane_id=np.array([0]),
        centerline=Ragged.from_rows([[[0, 0], [0, 90]]], 2),  # northwards
        left_boundary=Ragged.from_rows([[[-2, 0], [-2, 90]]], 2),
        crossing_id=np.array([7]),
        crossing_edge1=Ragged.from_rows([[[-3, 10], [6, 10]]], 2),
        crossing_edge2=Ragged.from_rows([[[-3, 14], [6, 14]]], 2),
    )
    lanes = features_of(straight(1, map=lane), ALL_LANES).lanes
    along = np.linspace(-45, 45, 10)
    zeros = np.zeros(10)
    ones = np.ones(10)
    street = np.stack((along / 10, zeros, ones, zeros, zeros, 2 * ones, zeros, zeros), -1)
    zebra = np.stack((along / 100, zeros, ones, zeros, zeros, -2 * ones, zeros, 2 * ones), -1)
    np.testing.assert_allclose(lanes.points, [street, zebra], atol=1e-6)
    assert [LANE_KINDS[kind] for kind in lanes.kind] == ["VEHICLE", "CROSSING"]
    np.testing.assert_allclose(lanes.position, [[-49, 45], [1.5 - 49, 12]], atol=1e-5)
    np.testing.assert_allclose(lanes.heading, [np.pi / 2, 0], atol=1e-6)


def test_odd_numbers_of_points_and_unknown_attributes_are_rejected() -> None:
    rejects("even", lambda: features_of(straight(), FeatureConfig(lane_points=9)))
    rejects("boundaries, marks, lane_types, crossings, classes", FeatureConfig, omit=["colours"])


def test_self_loops_are_omitted() -> None:
    circle = 8 * np.stack((np.cos(np.linspace(0, 6, 30)), np.sin(np.linspace(0, 6, 30))), -1)
    lanes = LaneMap.from_centerlines([circle, circle + 20], successors=[[0, 1], []])
    features = features_of(straight(1, map=lanes), ALL_LANES).lanes
    kinds = (TOPOLOGY.index("successor"), TOPOLOGY.index("predecessor"))
    assert set(topology(features)) == {(1, 0, kinds[0]), (0, 1, kinds[1])}


def test_omitted_attributes_are_not_read(scenario: Scenario) -> None:
    """The features are those of the scenario without them, whatever the data have."""
    bare = perturbation("no-boundaries+no-marks+no-lane-types+no-crossings")(scenario)
    assert not equal(bare.map, scenario.map)
    config = FeatureConfig(omit=["boundaries", "marks", "lane_types", "crossings"])
    omitted = scene_features(ScenarioBatch.of([scenario]), config)
    expected = scene_features(ScenarioBatch.of([bare]), FeatureConfig())
    assert_same(omitted.lanes, expected.lanes)
    assert_same(omitted.agents, expected.agents)
    assert not equal(omitted.lanes.points, features_of(scenario, FeatureConfig()).lanes.points)


def test_omitted_classes_are_unknown_to_the_model_and_known_to_lane_following(scenario: Scenario) -> None:
    config = FeatureConfig(omit=["classes"], anchor_steps=20)
    omitted = features_of(scenario, config)
    read = features_of(scenario, FeatureConfig(anchor_steps=20))
    assert (omitted.agents.object_type == UNKNOWN_TYPE).all()
    assert (read.agents.object_type != UNKNOWN_TYPE).any()
    assert np.array_equal(omitted.agents.anchors, read.agents.anchors)


def test_labels_after_the_recorded_steps_are_counted(scenario: Scenario) -> None:
    """Of 60 future steps the last ten are continued; the window may move over them."""
    batch = ScenarioBatch.of([replace(scenario, continued=10), scenario])
    config = FeatureConfig()
    assert scene_features(batch, config).recorded.tolist() == [50, 60]
    later = batch.window(50, 60, np.array([15, 0]))
    assert scene_features(later, config).recorded.tolist() == [35, 60]
    assert scene_features(batch.window(50, 30), config).recorded.tolist() == [30, 30]


def test_the_track_seen_last_stands_in_for_a_focal_one_before_the_models_history() -> None:
    """Without it, the scene would have its origin at (0, 0) of the city."""
    track = np.stack((np.linspace(500, 610, 110), np.zeros(110)), -1)[None]
    tracks = np.concatenate((track, track + 7, track + 9))
    step = np.arange(110)
    valid = np.stack((step < 20, step < 90, step < 80))
    late = Scenario.from_arrays(tracks, valid=valid, num_observed=100)
    whole = scene_features(ScenarioBatch.of([late]), FeatureConfig())
    assert whole.origin[0] == pytest.approx(track[0, 19])
    cut = scene_features(ScenarioBatch.of([late]), FeatureConfig(history=50, memory_s=3.0))
    assert cut.origin[0] == pytest.approx(track[0, 89] + 7)
    assert cut.agents.track_id.tolist() == ["1", "2"]
    alone = Scenario.from_arrays(track, valid=valid[:1], num_observed=100)
    with pytest.raises(DataError, match="has no track that was observed within the last 5 s"):
        scene_features(ScenarioBatch.of([alone]), FeatureConfig(history=50))
