"""Every system of ``configs/model``: it learns, is invariant, and does not mix the scenes of a batch."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from tests.conftest import ROOT
from tests.features.scenes import moved
from tests.model.small import batch_of
from tests.model.systems import CONFIGS, each_config, each_system, small
from trajpred.errors import DataError
from trajpred.features.channels import EDGE_POSE
from trajpred.features.config import GraphConfig, SceneConfig
from trajpred.features.scene_graph import build_batch
from trajpred.geometry import POSE_SCALE, relative_pose
from trajpred.model import Forecaster, StarSceneEncoder, TransformerMSceneEncoder
from trajpred.model.published_encoders import lane_topology
from trajpred.model.star_encoder import Stars
from trajpred.model.token_graph import TokenGraph
from trajpred.nn import flatten_stars, laplacian_positional_encoding
from trajpred.nn.published.graph_structure import UNREACHABLE
from trajpred.scenario import OBJECT_TYPES, Scenario


@each_config
@pytest.mark.parametrize(
    "wrong", [{"heads": 3}, {"heads": 0}, {"layers": -1}, {"modes": 0}], ids=lambda x: next(iter(x))
)
def test_sizes_that_cannot_be_built_are_rejected_by_name(path: Path, wrong: dict[str, int]) -> None:
    [name] = wrong
    with pytest.raises(DataError, match=f"{name}': must"):
        small(path, **wrong)


@each_system
def test_the_loss_falls_and_every_parameter_gets_a_finite_gradient(
    path: Path, decoder: dict[str, Any], real: list[Scenario]
) -> None:
    model = small(path, **decoder).train()
    batch = build_batch(real[:1], model.scene)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(4):
        torch.manual_seed(0)  # of the steps that completion masks
        loss = model.losses(batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        assert not [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]


@each_system
def test_predictions_are_invariant_and_scenes_of_a_batch_independent(
    path: Path, decoder: dict[str, Any], real: list[Scenario]
) -> None:
    model = small(path, **decoder).eval()
    if path.stem == "graph_transformer":  # eigenvectors are defined up to sign and rotation
        model.forecaster.encoder.positional = None
    lonely = torch.arange(110.0)[:, None] * torch.tensor([1.0, 0.2])
    scenes = [*real[:2], Scenario.from_arrays(lonely[None].numpy(), num_observed=50)]  # one agent, no map
    there = [moved(scene, (8000.0, -6000.0), math.pi / 2) for scene in scenes]
    with torch.inference_mode():
        together = model(build_batch(scenes, model.scene))
        alone = [model(build_batch([scene], model.scene)) for scene in there]
    assert together.trajectory.isfinite().all() and alone[-1].trajectory.shape == (1, 6, 60, 2)
    for name in ("trajectory", "logits"):
        parts = torch.cat([getattr(one, name) for one in alone])
        torch.testing.assert_close(getattr(together, name), parts, rtol=0, atol=2e-3)


@pytest.mark.parametrize("sectors", [1, 8])
def test_stars_hold_the_nearest_neighbour_of_each_direction(real: list[Scenario], sectors: int) -> None:
    batch = batch_of(real)
    graph = TokenGraph.of(batch)
    stars = Stars.of(batch, sectors)
    nearest: dict[tuple[int, int], tuple[float, Tensor, int]] = {}
    for j, i in graph.index[:, : graph.num_agent_edges].T.tolist():
        x, y = relative_pose(graph.poses[j : j + 1], graph.poses[i : i + 1]).position[0].tolist()
        sector = int((math.atan2(y, x) + math.pi / sectors) % (2 * math.pi) * sectors / (2 * math.pi))
        distance = math.hypot(x, y)
        if (i, sector) not in nearest or distance < nearest[i, sector][0]:
            nearest[i, sector] = distance, torch.tensor([x, y]), j
    assert stars.present[:, 1:].nonzero().tolist() == [list(key) for key in sorted(nearest)]
    state, sender = stars.state[:, 1:][stars.present[:, 1:]], stars.agent[:, 1:][stars.present[:, 1:]]
    expected = torch.stack([nearest[key][1] for key in sorted(nearest)])
    torch.testing.assert_close(10 * state[:, :2], expected, rtol=0, atol=1e-3)
    assert sender.tolist() == [nearest[key][2] for key in sorted(nearest)]
    types = state[:, 6 : 6 + len(OBJECT_TYPES)].argmax(1)
    assert torch.equal(types, batch["agent"].object_type[sender])
    one_hot = state[:, 6 + len(OBJECT_TYPES) :]
    assert one_hot.argmax(1).tolist() == [sector for _, sector in sorted(nearest)]
    assert stars.agent[:, 0].tolist() == list(range(graph.num_agents)) and stars.present[:, 0].all()
    assert torch.equal(stars.state[:, 0, :2], torch.zeros(graph.num_agents, 2))
    kept, edges, target = stars.flatten()
    flat = flatten_stars(stars.present.sum(1) - 1)
    assert torch.equal(kept, stars.present.flatten().nonzero()[:, 0]) and torch.equal(
        target, flat.target_index
    )
    assert sorted(edges.T.tolist()) == sorted(flat.edge_index.T.tolist())


STARS = [pytest.param(path, id=path.stem) for path in CONFIGS if path.stem.endswith("star")]


@pytest.mark.parametrize("path", STARS)
def test_the_past_of_a_neighbour_reaches_its_star(path: Path, real: list[Scenario]) -> None:
    """Not only its present state: of the output of the GAT layers, exactly the stars it is in change."""
    encoder, batch = small(path).forecaster.encoder.eval(), batch_of(real[:2])
    found: list[Tensor] = []
    encoder.stars.register_forward_hook(lambda module, args, out: found.append(out))
    encoder.encode(batch)
    stars, changed = Stars.of(batch, encoder.neighbors), copy.copy(batch)
    agent = int((stars.present[:, 1:].sum(1)).argmax())
    neighbor = int(stars.agent[agent, 1:][stars.present[agent, 1:]][0])
    history = changed["agent"].history = batch["agent"].history.clone()
    history[neighbor, :-1, :2] += 1.0  # the present stays
    encoder.encode(changed)
    affected = (found[0] - found[1]).abs().amax(1) > 1e-6
    expected = ((stars.agent == neighbor) & stars.present).any(1)
    assert affected[agent] and torch.equal(affected, expected) and not expected.all()


def test_edges_of_stars_hold_the_sender_in_the_frame_of_the_receiver(real: list[Scenario]) -> None:
    batch, encoder = batch_of(real[:2]), StarSceneEncoder(16, 2, 1, relative_pose=True)
    given: list[tuple[Tensor, ...]] = []
    encoder.stars.register_forward_pre_hook(lambda module, args: given.append(args))
    encoder.encode(batch)
    (_, edges, _, features), stars = given[0], Stars.of(batch, encoder.neighbors)
    sender, receiver = stars.agent[stars.present][edges].numpy()
    position, heading = (batch["agent"][name].double().numpy() for name in ("position", "heading"))
    plane = np.array([1, 1j])
    seen = (position[sender] - position[receiver]) @ plane * np.exp(-1j * heading[receiver])
    first = EDGE_POSE.index("x")
    found = features[:, first : first + 2].double().numpy() @ plane * POSE_SCALE
    np.testing.assert_allclose(found, seen, rtol=0, atol=1e-3)
    turn = features[:, -2:].double().numpy() @ plane
    np.testing.assert_allclose(turn, np.exp(1j * (heading[sender] - heading[receiver])), rtol=0, atol=1e-5)


def test_completion_reconstructs_masked_steps_only(real: list[Scenario]) -> None:
    batch = batch_of(real)
    encoder = StarSceneEncoder(16, 2, 1, completion=1.0)
    loss = encoder.auxiliary_losses(batch)["completion"]
    # With all steps masked, the error is that of a guess from the validity alone.
    visible = torch.zeros_like(batch["agent"].history)
    visible[..., -1] = batch["agent"].history[..., -1]
    assert encoder.fill_in is not None
    guess = encoder.fill_in(encoder.agent(visible)[0])
    error = torch.linalg.vector_norm(guess - batch["agent"].history[..., :2], dim=-1)
    torch.testing.assert_close(loss, error[visible[..., -1] > 0].mean())
    assert StarSceneEncoder(16, 2, 1).auxiliary_losses(batch) == {}


def test_eigenvectors_come_with_the_batch_and_get_signs_in_training(
    real: list[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    forecaster = small(ROOT / "configs" / "model" / "graph_transformer.yaml").forecaster.eval()
    encoder, batch = forecaster.encoder, build_batch(real, forecaster.scene)
    graph, given = TokenGraph.of(batch), batch["lane"].eigenvectors
    edges = lane_topology(graph)[0] - graph.num_agents
    expected = laplacian_positional_encoding(edges, batch["lane"].batch, 8)
    torch.testing.assert_close(given, expected, rtol=0, atol=1e-6)
    without = encoder.encode(batch_of(real)).agent
    monkeypatch.setattr("trajpred.nn.published.graph_transformer_net.laplacian_positional_encoding", None)
    assert torch.equal(encoder.encode(batch).agent, without)
    read: list[Tensor] = []
    encoder.place.register_forward_pre_hook(lambda module, args: read.append(args[0]))
    encoder.train().encode(batch)
    signs = (read[0] * given).sum(0).sign()
    assert torch.equal(read[0], signs * given) and set(signs.tolist()) == {-1.0, 1.0}
    with pytest.raises(DataError, match="eigenvectors': is 5, not 8"):
        Forecaster(encoder, forecaster.decoder, scene=SceneConfig(graph=GraphConfig(eigenvectors=5)))


@pytest.mark.parametrize("max_hops", [1, 8])
def test_transformer_m_reads_scaled_positions_and_paths_of_so_many_hops(
    real: list[Scenario], max_hops: int
) -> None:
    encoder, batch = TransformerMSceneEncoder(16, 2, 1, max_hops=max_hops).eval(), batch_of(real[:1])
    given: list[dict[str, Any]] = []
    hook = encoder.encoder.register_forward_pre_hook
    hook(lambda module, args, options: given.append(options), with_kwargs=True)
    encoder.encode(batch)
    [options] = given
    metres = torch.cat((batch["agent"].position, batch["lane"].position))
    torch.testing.assert_close(POSE_SCALE * options["positions"][0], metres)
    hops = options["structure"].hops
    assert set(hops.unique().tolist()) == {*range(max_hops + 1), UNREACHABLE}


def test_stars_attend_to_nothing_that_is_missing(
    real: list[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that were not observed and sectors without a neighbour change no token."""
    encoder = small(ROOT / "configs" / "model" / "gat_star.yaml").forecaster.encoder.eval()
    batch, stars_of = batch_of(real[:2]), Stars.of
    history = batch["agent"].history
    before = encoder.encode(batch)
    missing = history[..., -1:] == 0
    batch["agent"].history = torch.where(missing & (torch.arange(history.shape[2]) < 6), 9.0, history)

    def filled(batch: HeteroData, sectors: int) -> Stars:
        stars = stars_of(batch, sectors)
        assert not stars.present.all()
        return stars._replace(state=torch.where(stars.present[..., None], stars.state, 9.0))

    monkeypatch.setattr(Stars, "of", filled)
    after = encoder.encode(batch)
    assert missing.any() and before.agent.std() > 0.1
    torch.testing.assert_close(after.agent, before.agent, rtol=0, atol=1e-5)
    torch.testing.assert_close(after.lane, before.lane, rtol=0, atol=1e-5)


def test_the_regularisation_is_part_of_the_training_loss(real: list[Scenario]) -> None:
    model, batch = small(ROOT / "configs" / "model" / "multi_head_attention.yaml").eval(), batch_of(real[:1])
    kernels = [p for n, p in model.named_parameters() if ".convs." in n and p.ndim == 2]
    losses = model.losses(batch)
    expected = 1e-5 * sum(float(p.detach().square().sum()) for p in kernels)
    assert float(losses["regularization"].detach()) == pytest.approx(expected, rel=1e-4)
    parts = losses["proposal"] + losses["refinement"] + losses["mode"] + losses["regularization"]
    torch.testing.assert_close(losses["loss"], parts)


@each_config
def test_reported_attention_says_who_matters(path: Path, real: list[Scenario]) -> None:
    """With one layer, an agent's token depends on exactly those lanes that it attends to."""
    encoder = small(path, layers=1).forecaster.encoder.eval()
    batch = batch_of(real[:2])
    before = encoder.encode(batch).agent
    found = encoder.attention_weights(batch)
    assert torch.equal(encoder.encode(batch).agent, before), "reading attention leaves no trace"
    for one, scenario in zip(found, real, strict=False):
        A, total = len(one.track_id), one.weight.sum(-1)
        assert one.scenario_id == scenario.scenario_id and one.weight.shape[3] == A + len(one.lane)
        reached = one.weight.any(-1)
        if path.stem == "transformer_m":  # the rest goes to the graph token
            assert ((total > 0) & (total < 1)).all()
        else:
            np.testing.assert_allclose(total[reached], 1, atol=1e-5)
    lanes, checked = batch["lane"].ptr.tolist(), 0
    for row in range(0, lanes[-1], 7):
        s = int(row >= lanes[1])
        changed = copy.copy(batch)
        changed["lane"].points = batch["lane"].points.clone()
        changed["lane"].points[row] += 3.0
        moved_by = (encoder.encode(changed).agent - before).abs().amax(-1).detach().numpy()
        batch["lane"].points = changed["lane"].points.clone()
        batch["lane"].points[row] -= 3.0
        weight = found[s].weight[..., len(found[s].track_id) + row - lanes[s]].sum((0, 1))
        own = slice(*batch["agent"].ptr[s : s + 2].tolist())
        assert ((moved_by[own] > 1e-6) == (weight > 1e-6)).all(), row
        checked += int((weight > 1e-6).sum())
    assert checked > 20
