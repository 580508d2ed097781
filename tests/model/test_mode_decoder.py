"""The mode decoder: re-anchored poses, its edges, joint futures, and the curves it predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.conftest import rejects
from tests.model.small import assert_same, batch_of, evaluate_as, small_config, small_model
from tests.scenes import straight
from trajpred.data.geometry import Pose, rotate
from trajpred.data.scenario import Scenario
from trajpred.features.config import FeatureConfig, SceneConfig
from trajpred.features.scene_graph import build_batch
from trajpred.model import Forecaster, ModeDecoder, SceneEncoder, mode_decoder
from trajpred.model.mode_decoder import MODE_EDGE_KINDS, end_pose, radius_edges
from trajpred.model.scene_decoder import Prediction, bernstein, constant_velocity_of
from trajpred.model.scene_encoder import TokenGraph
from trajpred.predictors.baselines import lane_following
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.training.losses import Labels, LossConfig, group_losses, mode_losses


@pytest.mark.parametrize("steps", [1, 5, 60])
def test_end_pose_is_the_last_position_and_the_last_direction(steps: int) -> None:
    path = (torch.rand(3, 2, steps, 2) + 0.5).cumsum(2) + 5  # 5 m/s and more
    agents = Pose(50 * torch.randn(3, 2), 6.3 * torch.rand(3))
    pose = end_pose(path, agents)
    position, heading = in_the_city(path[:, :, -1], agents)
    torch.testing.assert_close(pose.position, position, rtol=0, atol=1e-4)
    ahead = path[:, :, -1]
    if steps > 1:
        ahead = ahead - path[:, :, -1 - min(10, steps - 1)]
    turned = torch.atan2(ahead[..., 1], ahead[..., 0]).flatten()
    apart = pose.heading - heading - turned
    torch.testing.assert_close(apart.cos(), torch.ones(6), rtol=0, atol=1e-6)
    torch.testing.assert_close(apart.sin(), torch.zeros(6), rtol=0, atol=1e-4)


def in_the_city(place: Tensor, agents: Pose[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the position of each mode, ``[A, K, 2]`` in its agent's frame, and the agent's heading."""
    heading = agents.heading[:, None].expand(place.shape[:2])
    position = agents.position[:, None] + rotate(place, heading)
    return position.flatten(0, 1), heading.flatten()


def test_the_pose_of_a_mode_that_stops_does_not_depend_on_rounding() -> None:
    """The direction of the last second would turn by a tenth of a milliradian and more."""
    path = torch.linspace(0, 5, 60)[:, None] * torch.tensor([1.0, 0.2]) + 100
    path = (path - path[0])[None, None].clone()
    path[..., -11:, :] = path[..., -1:, :] + 1e-4 * torch.arange(11)[:, None]
    frame = Pose(torch.tensor([[1e3, -1e3]]), torch.tensor([0.3]))
    exact = end_pose(path.double(), Pose(frame.position.double(), frame.heading.double()))
    moved = end_pose(path + 1e-6 * torch.randn_like(path), frame)
    assert (moved.heading - exact.heading).abs().max() < 2e-6


def test_headings_of_modes_are_a_smooth_function_of_where_they_end() -> None:
    """From the agent's heading to sideways, and from that of the whole mode to that of the last second."""
    agents = Pose(torch.zeros(1, 2), torch.tensor([0.5]))
    for ahead_m, steepest in ((0.0, 0.005), (10.0, 0.05)):
        path = torch.zeros(1, 6001, 60, 2)
        path[..., -11:, 0] = ahead_m
        path[..., -1, 1] = torch.linspace(0, 6, 6001)
        heading = end_pose(path, agents).heading
        assert heading[0] == 0.5
        assert heading[-1] == pytest.approx(0.5 + np.pi / 2, abs=1e-3)
        assert heading.diff().abs().max() < steepest, "per millimetre"


def test_constant_velocity_counts_from_the_last_observation_in_each_scene_s_step() -> None:
    valid = np.ones((2, 110), bool)
    valid[1, 30:50] = False  # last observed 2 s before the last observed step
    x = np.stack((np.arange(110.0), np.zeros(110)), -1)[None]  # a metre per step
    slow = Scenario.from_arrays(x, num_observed=50, step_s=0.2)
    path = constant_velocity_of(batch_of([straight(2, valid=valid), slow]), 60)
    steps = torch.arange(1, 61) * 0.1
    expected = torch.stack((10 * steps, 10 * (steps + 2.0), 10 * steps))
    torch.testing.assert_close(path[..., 0], expected, rtol=0, atol=1e-3)
    assert path[..., 1].abs().max() < 1e-5


def test_joint_futures_have_probabilities_of_scenes_marginal_ones_of_agents(real: list[Scenario]) -> None:
    forecaster = small_model().forecaster
    batch = batch_of(real)
    with torch.inference_mode():
        marginal = forecaster(batch, False)
        joint = forecaster(batch, True)
    scene = batch["agent"].batch
    for i in range(3):
        rows = joint.logits[scene == i]
        assert torch.equal(rows, rows[:1].expand_as(rows))
        assert rows[0].std() > 0
    assert not torch.equal(joint.logits[scene == 0][0], joint.logits[scene == 1][0])
    assert (marginal.logits[scene == 0].std(0) > 0).all()
    assert (marginal.trajectory - joint.trajectory).abs().max() > 0.02


@pytest.mark.parametrize("evaluation", ["dense", "edges"])
@pytest.mark.parametrize("rows", [[3, 4, 40], []], ids=str)
def test_some_agents_are_predicted_as_in_all(real: list[Scenario], evaluation: str, rows: list[int]) -> None:
    model = small_model()
    batch = batch_of(real)
    subset = torch.tensor(rows, dtype=torch.long)
    decoder = evaluate_as(model, evaluation).forecaster.decoder
    with torch.inference_mode():
        tokens = model.forecaster.encoder.encode(batch)
        assert_same(decoder(tokens, batch, agents=subset), decoder(tokens, batch), subset)
    with pytest.raises(ValueError, match="all agents"):
        decoder(tokens, batch, joint=True, agents=subset)
    with pytest.raises(ValueError, match="joint=True"):
        ModeDecoder(dim=32, heads=4)(tokens, batch, joint=True)


NONE_LESS = ("propose_layers", "refine_layers", "propose_radius_m", "refine_radius_m")
WRONG: list[tuple[dict[str, Any], str]] = [
    *[({name: -1}, f"{name}': must be 0 or more") for name in NONE_LESS],
    ({"starts": []}, "starts': must list any of velocity, lanes"),
    ({"starts": ["lanes", "rails"]}, "starts': must list any of velocity, lanes"),
    ({"refine_at": 0.0}, "refine_at': must be more than 0 and at most 1"),
    ({"refine_at": 1.1}, "refine_at': must be more than 0 and at most 1"),
]


@pytest.mark.parametrize(("options", "problem"), WRONG)
def test_values_out_of_range_are_rejected_by_name(options: dict[str, Any], problem: str) -> None:
    rejects(problem, ModeDecoder, **options)


def test_without_refinement_layers_the_proposal_is_the_prediction(real: list[Scenario]) -> None:
    batch = batch_of(real[:1])
    decoder = ModeDecoder(dim=32, heads=4, refine_layers=0, joint=True).eval()
    tokens = SceneEncoder(32, 4, 1).eval().encode(batch)
    with torch.inference_mode():
        marginal = decoder(tokens, batch, False)
        joint = decoder(tokens, batch, True)
    assert marginal.proposal is None
    assert marginal.trajectory.shape[1:] == (6, 60, 2)
    assert not [name for name, _ in decoder.named_parameters() if "refine" in name or "bias.1" in name]
    assert not torch.equal(marginal.trajectory, joint.trajectory)


def test_the_refinement_does_not_train_the_proposal_and_its_scales_are_bounded(real: list[Scenario]) -> None:
    model = small_model()
    batch = batch_of(real[:1])
    for parameter in model.forecaster.decoder.refine_head.parameters():
        parameter.data *= 100
    prediction = model(batch)
    (prediction.trajectory - prediction.proposal.detach()).square().sum().backward()
    assert all(p.grad is None for p in model.forecaster.decoder.propose_head.parameters())
    assert all(p.grad is not None for p in model.forecaster.decoder.refine_head.parameters())
    assert (prediction.trajectory.std(1) > 0).all()
    low, high = prediction.scale.detach().aminmax()
    assert np.exp(-4.01) <= low
    assert high <= np.exp(4.01)


def anchored_model(**options: Any) -> LitForecaster:
    config = small_config()
    config["decoder"]["init_args"] |= {"starts": ["lanes"], **options}
    return LitForecaster.build(config).eval()


def without_offsets(**options: Any) -> Forecaster:
    """An anchored model whose futures are what its modes start from."""
    forecaster = anchored_model(**options).forecaster
    for head in (forecaster.decoder.propose_head, forecaster.decoder.refine_head):
        for parameter in head.points[-1].parameters():
            parameter.data.zero_()
    return forecaster


@pytest.mark.parametrize("modes", [6, 3, 8])
def test_anchored_modes_without_offsets_follow_the_lanes(real: list[Scenario], modes: int) -> None:
    forecaster = without_offsets(modes=modes)
    batch = build_batch(real, forecaster.scene)
    for joint in (False, True):
        for scenario, forecast in zip(real, forecaster.forecast(batch, joint), strict=True):
            path = lane_following(scenario).of(forecast.track_id).trajectory
            gap = np.abs(forecast.trajectory[:, :, None] - path[:, None]).max((3, 4))
            # In the order of choice, which begins again after six; all different up to there.
            order = gap.argmin(2)[:, np.arange(modes) % 6]
            assert (np.diff(np.sort(order[:, :6], 1), axis=1) > 0).all()
            assert np.take_along_axis(gap, order[..., None], 2).max() < 2e-2


def test_anchored_modes_read_their_anchor(real: list[Scenario]) -> None:
    model = anchored_model(joint=False)
    batch = build_batch(real[:1], model.scene)
    with torch.inference_mode():
        before = model(batch)
        batch["agent"].anchors = batch["agent"].anchors.flip(1)
        after = model(batch)
    assert (before.logits - after.logits.flip(1)).abs().max() > 1e-3, "modes also have an embedding"
    assert (before.logits - after.logits).abs().max() > 1e-3


def test_groups_start_from_the_lanes_and_from_constant_velocity(real: list[Scenario]) -> None:
    forecaster = without_offsets(starts=["lanes", "velocity"])
    batch = build_batch(real, forecaster.scene)
    with torch.inference_mode():
        modes = forecaster.decoder(forecaster.encoder.encode(batch), batch)
    steady = constant_velocity_of(batch, 60)[:, None].expand(-1, 6, -1, -1)
    assert modes.groups == 2
    assert modes.trajectory.shape[1] == modes.logits.shape[1] == 12
    torch.testing.assert_close(modes.trajectory[:, :6], batch["agent"].anchors, rtol=0, atol=2e-2)
    torch.testing.assert_close(modes.trajectory[:, 6:], steady, rtol=0, atol=1e-5)


def test_groups_learn_as_agents_of_their_own_and_as_what_they_are_merged_to(real: list[Scenario]) -> None:
    """The loss is the mean of the groups' losses and the loss of the merged forecast."""
    model = anchored_model(starts=["lanes", "velocity"])
    batch = build_batch(real[:2], model.scene)
    with torch.inference_mode():
        modes = model.forecaster.decoder(model.forecaster.encoder.encode(batch), batch)
    merged = modes.merged()
    for tensor in merged.tensors.values():
        assert tensor.shape[1] == 6
    torch.testing.assert_close(merged.logits.exp().sum(1), torch.ones(len(merged.logits)))
    config = LossConfig()
    labels = Labels.of(batch, config)
    whole = group_losses(modes, labels, config)
    last = mode_losses(merged, labels, config)
    groups = []
    for rows in (slice(6), slice(6, 12)):
        group = Prediction(**{name: x[:, rows] for name, x in modes.tensors.items()})
        groups.append(mode_losses(group, labels, config))
    of_first, of_second = groups
    expected = {name: (of_first[name] + of_second[name]) / 2 for name in of_first}
    expected["loss"] = expected["loss"] + last["loss"]
    expected["merged"] = last["loss"]
    expected["minADE"] = last["minADE"]
    assert whole.keys() == expected.keys()
    for name, value in whole.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.parametrize(("share", "step"), [(1.0, 60), (0.5, 30), (0.001, 1)])
def test_modes_are_refined_from_where_they_are_after_a_share_of_the_horizon(
    real: list[Scenario], share: float, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scene is related to the poses of the agents first, then to those of the modes at that step."""
    decoder = ModeDecoder(dim=32, heads=4, refine_at=share).eval()
    batch = batch_of(real[:2])
    tokens = SceneEncoder(32, 4, 1).eval().encode(batch)
    related: list[Pose[Tensor]] = []

    def recorded(graph: TokenGraph, poses: Pose[Tensor], *rest: Any) -> Any:
        related.append(poses)
        return radius_edges(graph, poses, *rest)

    monkeypatch.setattr(mode_decoder, "radius_edges", recorded)
    prediction = decoder(tokens, batch)
    agents = Pose(batch["agent"].position, batch["agent"].heading)
    position, _ = in_the_city(prediction.proposal[:, :, step - 1], agents)
    first, second = related
    assert torch.equal(first.position, agents.position)
    torch.testing.assert_close(second.position, position, rtol=0, atol=1e-4)


def test_anchors_need_a_scene_that_has_them(real: list[Scenario]) -> None:
    message = "anchors': the model reads 60 steps, the batch has 0: build it"
    rejects(message, anchored_model().forecaster.forecast, batch_of(real[:1]))
    scene = SceneConfig(FeatureConfig(anchor_steps=7))
    rejects("anchor_steps': is 7, the model reads 0", Forecaster, SceneEncoder(), ModeDecoder(), scene=scene)
    assert Forecaster(SceneEncoder(), ModeDecoder(starts=["lanes"])).scene.features.anchor_steps == 60


@pytest.mark.parametrize(("degree", "steps"), [(1, 5), (8, 60)])
def test_bernstein_curves_equal_de_casteljau_s(degree: int, steps: int) -> None:
    def curve(points: np.ndarray, u: float) -> np.ndarray:
        while len(points) > 1:
            points = (1 - u) * points[:-1] + u * points[1:]
        return points[0]

    points: np.ndarray | Tensor = np.random.default_rng(0).normal(0, 5, (degree + 1, 2))
    expected = [curve(np.asarray(points), step / steps) for step in range(1, steps + 1)]
    np.testing.assert_allclose(bernstein(degree, steps).numpy() @ points, expected, atol=1e-5)


@pytest.mark.parametrize("per_agent", [1, 6])
def test_a_mode_is_connected_to_its_agent_and_nearby_nodes(real: list[Scenario], per_agent: int) -> None:
    batch = batch_of(real)
    graph = TokenGraph.of(batch)
    agent = batch["agent"]
    owner = torch.arange(graph.num_agents).repeat_interleave(per_agent)
    shifted = agent.position[owner] + 30 * torch.randn(len(owner), 2)
    anchors = Pose(shifted, agent.heading[owner])
    index, features, fading = radius_edges(graph, anchors, 30.0, owner, graph.agents.repeat(per_agent))
    near = torch.linalg.vector_norm(shifted[:, None] - graph.poses.position, dim=-1) <= 30.0
    expected = near & (agent.batch[owner][:, None] == graph.scene)
    expected[torch.arange(len(owner)), owner] = True
    connected = torch.zeros_like(expected)
    connected[index[1], index[0]] = True
    assert torch.equal(connected, expected)
    assert index.shape[1] == expected.sum()
    assert (index[1].diff() >= 0).all()
    kind = features[-len(MODE_EDGE_KINDS) :].argmax(0)
    is_lane = index[0] >= graph.num_agents
    is_own = index[0] == owner[index[1]]
    assert torch.equal(kind == MODE_EDGE_KINDS.index("lane"), is_lane)
    assert torch.equal(kind == MODE_EDGE_KINDS.index("own"), is_own)
    assert torch.equal(kind == MODE_EDGE_KINDS.index("agent"), ~is_lane & ~is_own)
    assert len(kind.unique()) == 3
    distance = torch.linalg.vector_norm(shifted[index[1]] - graph.poses.position[index[0]], dim=-1)
    expected = ((30.0 - distance) / 6.0).clamp(0.0, 1.0).where(~is_own, 1.0)  # fades out over the last fifth
    torch.testing.assert_close(fading.exp(), expected, atol=1e-4, rtol=0)
