"""Where a mode looks from when it looks again, and what it sees there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.graph.scenes import straight
from tests.model.small import assert_same, batch_of, evaluate_as, small_model
from trajpred.geometry import Pose
from trajpred.model import Forecaster, ModeDecoder, SceneEncoder
from trajpred.model.heads import bernstein
from trajpred.model.mode_decoder import MODE_EDGE_KINDS, STATIONARY_M, end_pose, radius_edges
from trajpred.model.scene_decoder import constant_velocity_of, scene_mean
from trajpred.model.token_graph import TokenGraph
from trajpred.scenario import Scenario


def poses(count: int) -> Pose[Tensor]:
    return Pose(50 * torch.randn(count, 2), 6.3 * torch.rand(count))


@pytest.mark.parametrize("steps", [1, 5, 11, 60])
def test_end_pose_is_the_end_and_the_direction_of_the_last_second(steps: int) -> None:
    path, agents = torch.randn(3, 2, steps, 2).cumsum(2) + 5, poses(3)
    found = end_pose(path, agents)
    z = path.double().numpy() @ [1, 1j]
    origin = (agents.position.double().numpy() @ [1, 1j])[:, None]
    turn = np.exp(1j * agents.heading.double().numpy())[:, None]
    end = (origin + z[..., -1] * turn).reshape(-1)
    np.testing.assert_allclose(found.position, np.stack((end.real, end.imag), -1), atol=1e-4)
    back = min(10, steps - 1)
    ahead = z[..., -1] - z[..., -1 - back]
    expected = (np.where(ahead == 0, 1, ahead / np.maximum(abs(ahead), 1e-9)) * turn).reshape(-1)
    np.testing.assert_allclose(np.exp(1j * found.heading.double().numpy()), expected, atol=1e-4)


def test_a_mode_that_stands_keeps_its_heading() -> None:
    """It may wander about: what counts is that it ends near to where it starts."""
    path = torch.randn(1, 3, 60, 2)
    path[0, :, -1] = torch.tensor([[0.0, 0.0], [0.0, STATIONARY_M - 0.01], [0.0, STATIONARY_M + 0.01]])
    path[0, 2, -11] = 0.0
    heading = end_pose(path, Pose(torch.zeros(1, 2), torch.tensor([0.5]))).heading
    torch.testing.assert_close(heading, torch.tensor([0.5, 0.5, 0.5 + np.pi / 2]))


def test_constant_velocity_goes_on_from_when_an_agent_was_last_seen() -> None:
    valid = np.ones((2, 110), bool)
    valid[1, 30:50] = False  # last seen 2 s before the last observed step
    found = constant_velocity_of(batch_of([straight(2, valid=valid)]), 60)
    steps = torch.arange(1, 61) * 0.1
    expected = torch.stack((10 * steps, 10 * (steps + 2.0)))
    torch.testing.assert_close(found[..., 0], expected, rtol=0, atol=1e-3)
    assert found[..., 1].abs().max() < 1e-5


def test_every_scene_has_its_own_step() -> None:
    x = np.stack((np.arange(110.0), np.zeros(110)), -1)[None]
    scenes = [Scenario.from_arrays(x, num_observed=50, step_s=step) for step in (0.1, 0.2)]
    found = constant_velocity_of(batch_of(scenes), 60)  # a metre a step in both
    torch.testing.assert_close(found[..., 0], torch.arange(1.0, 61.0).expand(2, 60), rtol=0, atol=1e-3)


@pytest.mark.parametrize(("stage", "per_agent"), [(0, 1), (1, 6)])
def test_a_mode_hears_its_agent_and_all_of_its_scene_within_the_radius(
    real: list[Scenario], stage: int, per_agent: int
) -> None:
    batch = batch_of(real)
    agent = batch["agent"]
    anchors = Pose(
        agent.position.repeat_interleave(per_agent, 0) + 30 * torch.randn(len(agent.batch) * per_agent, 2),
        agent.heading.repeat_interleave(per_agent, 0),
    )
    graph, radius = TokenGraph.of(batch), (60.0, 30.0)[stage]
    who = torch.arange(graph.num_agents).repeat_interleave(per_agent)
    index, _ = radius_edges(graph, anchors, radius, who, graph.agents.repeat(per_agent))
    place, scene = graph.poses.position, torch.cat((agent.batch, batch["lane"].batch))
    owner = torch.arange(len(anchors.heading)) // per_agent
    near = torch.linalg.vector_norm(anchors.position[:, None] - place, dim=-1) <= radius
    expected = near & (agent.batch[owner][:, None] == scene)
    expected[torch.arange(len(owner)), owner] = True
    assert {(int(i), int(j)) for j, i in index.T} == {(int(i), int(j)) for i, j in expected.nonzero()}
    assert index.shape[1] == expected.sum() and (index[1].diff() >= 0).all()


@pytest.mark.parametrize(("stage", "per_agent"), [(0, 1), (1, 6)])
def test_a_mode_is_told_what_it_hears(real: list[Scenario], stage: int, per_agent: int) -> None:
    batch = batch_of(real)
    place = Pose(batch["agent"].position, batch["agent"].heading)
    anchors = Pose(*(x.repeat_interleave(per_agent, 0) for x in (place.position, place.heading)))
    agents, graph = batch["agent"].num_nodes, TokenGraph.of(batch)
    who = torch.arange(agents).repeat_interleave(per_agent)
    modes = graph.agents.repeat(per_agent)
    index, features = radius_edges(graph, anchors, (60.0, 30.0)[stage], who, modes)
    sender, receiver = index.tolist()
    expected = [
        "lane" if j >= agents else "own" if j == i // per_agent else "agent"
        for j, i in zip(sender, receiver, strict=True)
    ]
    kinds = features[:, -len(MODE_EDGE_KINDS) :].argmax(1).tolist()
    assert [MODE_EDGE_KINDS[kind] for kind in kinds] == expected and len(set(expected)) == 3


def test_all_agents_of_a_scene_agree_on_how_likely_a_joint_future_is(real: list[Scenario]) -> None:
    forecaster, batch = small_model().forecaster, batch_of(real)
    with torch.inference_mode():
        marginal, joint = (forecaster(batch, kind) for kind in (False, True))
    scene = batch["agent"].batch
    for i in range(3):
        rows = joint.logits[scene == i]
        assert torch.equal(rows, rows[:1].expand_as(rows)) and rows[0].std() > 0
    assert not torch.equal(joint.logits[scene == 0][0], joint.logits[scene == 1][0])
    assert (marginal.logits[scene == 0].std(0) > 0).all(), "marginal ones are each agent's own"
    assert (marginal.trajectory - joint.trajectory).abs().max() > 0.02


def test_scene_mean() -> None:
    values = torch.tensor([[1.0, 2], [3, 6], [7, 8]])
    found = scene_mean(values, torch.tensor([0, 0, 2]), 4)
    assert found.tolist() == [[2, 4], [0, 0], [7, 8], [0, 0]]


def test_a_decoder_without_joint_modes_says_so(real: list[Scenario]) -> None:
    forecaster = Forecaster(SceneEncoder(32, 4, 1), ModeDecoder(dim=32, heads=4))
    with pytest.raises(ValueError, match="joint=True"):
        forecaster(batch_of(real[:1]), joint=True)


@pytest.mark.parametrize("evaluation", ["dense", "edges"])
@pytest.mark.parametrize("rows", [[3, 4, 40], [0], []], ids=str)
def test_some_agents_are_predicted_as_they_are_among_all(
    real: list[Scenario], evaluation: str, rows: list[int]
) -> None:
    """In a scene of which all are left out, too."""
    model, batch, chosen = small_model(), batch_of(real), torch.tensor(rows, dtype=torch.long)
    decoder = evaluate_as(model, evaluation).forecaster.decoder
    with torch.inference_mode():
        tokens = model.forecaster.encoder.encode(batch)
        assert_same(decoder(tokens, batch, agents=chosen), decoder(tokens, batch), chosen)
    with pytest.raises(ValueError, match="all agents"):
        decoder(tokens, batch, joint=True, agents=chosen)


def test_without_layers_to_refine_the_proposal_is_the_answer(real: list[Scenario]) -> None:
    batch, decoder = batch_of(real), ModeDecoder(dim=32, heads=4, refine_layers=0, joint=True)
    tokens = SceneEncoder(32, 4, 1).eval().encode(batch)
    with torch.inference_mode():
        marginal, joint = (decoder.eval()(tokens, batch, kind) for kind in (False, True))
    assert marginal.proposal is None and marginal.trajectory.shape[1:] == (6, 60, 2)
    assert not [name for name, _ in decoder.named_parameters() if "refine" in name or "bias.1" in name]
    assert not torch.equal(marginal.trajectory, joint.trajectory)


@pytest.mark.parametrize(("degree", "steps"), [(1, 5), (3, 30), (8, 60)])
def test_curves_are_those_of_de_casteljau(degree: int, steps: int) -> None:
    points = np.random.default_rng(0).normal(0, 5, (degree + 1, 2))
    expected = []
    for step in range(1, steps + 1):
        level, u = points, step / steps
        while len(level) > 1:
            level = (1 - u) * level[:-1] + u * level[1:]
        expected.append(level[0])
    np.testing.assert_allclose(bernstein(degree, steps).numpy() @ points, expected, atol=1e-5)


def test_modes_differ_and_scales_are_bounded(real: list[Scenario]) -> None:
    model, batch = small_model(), batch_of(real[:1])
    for parameter in model.forecaster.decoder.refine_head.parameters():
        parameter.data *= 100
    with torch.inference_mode():
        prediction = model(batch)
    assert (prediction.trajectory.std(1) > 0).all()
    assert float(prediction.scale.min()) >= np.exp(-4.01) and float(prediction.scale.max()) <= np.exp(4.01)


def test_the_proposal_is_not_trained_by_the_refinement(real: list[Scenario]) -> None:
    model, batch = small_model(), batch_of(real[:1])
    prediction = model(batch)
    (prediction.trajectory - prediction.proposal.detach()).square().sum().backward()
    assert all(p.grad is None for p in model.forecaster.decoder.propose_head.parameters())
    assert all(p.grad is not None for p in model.forecaster.decoder.refine_head.parameters())
