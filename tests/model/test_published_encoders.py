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

from tests.conftest import ROOT, rejects
from tests.model.small import batch_of
from tests.model.systems import each_config, each_system, small
from tests.scenes import moved, straight
from trajpred.data.scenario import Scenario
from trajpred.features.config import GraphConfig, SceneConfig
from trajpred.features.scene_graph import build_batch
from trajpred.model import Forecaster
from trajpred.model.published_encoders import lane_topology
from trajpred.model.scene_encoder import TokenGraph
from trajpred.nn import laplacian_positional_encoding


@each_config
@pytest.mark.parametrize(
    "wrong", [{"heads": 3}, {"heads": 0}, {"layers": -1}, {"modes": 0}], ids=lambda x: next(iter(x))
)
def test_sizes_that_cannot_be_built_are_rejected_by_name(path: Path, wrong: dict[str, int]) -> None:
    [name] = wrong
    rejects(f"{name}': must", small, path, **wrong)


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
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]


@each_system
def test_predictions_are_invariant_and_scenes_of_a_batch_independent(
    path: Path, decoder: dict[str, Any], real: list[Scenario]
) -> None:
    model = small(path, **decoder).eval()
    if path.stem == "graph_transformer":  # eigenvectors are defined up to sign and rotation
        model.forecaster.encoder.place = None
    scenes = [*real[:2], straight(1)]  # the last one has no map
    there = [moved(scene, (8000.0, -6000.0), math.pi / 2) for scene in scenes]
    with torch.inference_mode():
        together = model(build_batch(scenes, model.scene))
        alone = [model(build_batch([scene], model.scene)) for scene in there]
    assert together.trajectory.isfinite().all()
    assert alone[-1].trajectory.shape == (1, 6, 60, 2)
    for name in ("trajectory", "logits"):
        parts = torch.cat([getattr(prediction, name) for prediction in alone])
        torch.testing.assert_close(getattr(together, name), parts, rtol=0, atol=2e-3)


def test_eigenvectors_come_with_the_batch_and_get_signs_in_training(
    real: list[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    forecaster = small(ROOT / "configs" / "model" / "graph_transformer.yaml").forecaster.eval()
    encoder = forecaster.encoder
    batch = build_batch(real, forecaster.scene)
    graph = TokenGraph.of(batch)
    eigenvectors = batch["lane"].eigenvectors
    edges = lane_topology(graph)[0] - graph.num_agents
    expected = laplacian_positional_encoding(edges, batch["lane"].batch, 8)
    torch.testing.assert_close(eigenvectors, expected, rtol=0, atol=1e-6)
    without = encoder.encode(batch_of(real)).agent
    monkeypatch.setattr("trajpred.model.published_encoders.laplacian_positional_encoding", None)
    assert torch.equal(encoder.encode(batch).agent, without)
    read: list[Tensor] = []
    encoder.place.register_forward_pre_hook(lambda module, args: read.append(args[0]))
    encoder.train().encode(batch)
    signs = (read[0] * eigenvectors).sum(0).sign()
    assert torch.equal(read[0], signs * eigenvectors)
    assert set(signs.tolist()) == {-1.0, 1.0}
    five = SceneConfig(graph=GraphConfig(eigenvectors=5))
    rejects("eigenvectors': is 5, not 8", Forecaster, encoder, forecaster.decoder, scene=five)


def test_the_regularisation_is_part_of_the_training_loss(real: list[Scenario]) -> None:
    model = small(ROOT / "configs" / "model" / "multi_head_attention.yaml").eval()
    batch = batch_of(real[:1])
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
    reported = encoder.attention_weights(batch)
    assert torch.equal(encoder.encode(batch).agent, before), "reading attention leaves no trace"
    for attention, scenario in zip(reported, real[:2], strict=True):
        assert attention.scenario_id == scenario.scenario_id
        tokens = len(attention.track_id) + len(attention.lane)
        assert attention.weight.shape[3] == tokens
        total = attention.weight.sum(-1)
        reached = attention.weight.any(-1)
        if path.stem == "transformer_m":  # the rest goes to the graph token
            assert ((total > 0) & (total < 1)).all()
        else:
            np.testing.assert_allclose(total[reached], 1, atol=1e-5)
    lanes = batch["lane"].ptr.tolist()
    checked = 0
    for row in range(0, lanes[-1], 7):
        s = int(row >= lanes[1])
        changed = copy.copy(batch)
        changed["lane"].points = batch["lane"].points.clone()
        changed["lane"].points[row] += 3.0
        moved_by = (encoder.encode(changed).agent - before).abs().amax(-1).detach().numpy()
        batch["lane"].points = changed["lane"].points.clone()
        batch["lane"].points[row] -= 3.0
        attention = reported[s]
        column = len(attention.track_id) + row - lanes[s]
        weight = attention.weight[..., column].sum((0, 1))
        of_scene = (batch["agent"].batch == s).numpy()
        assert ((moved_by[of_scene] > 1e-6) == (weight > 1e-6)).all(), row
        checked += int((weight > 1e-6).sum())
    assert checked > 20


def test_transformer_m_trains_scene_by_scene_what_it_computes_padded(real: list[Scenario]) -> None:
    path = ROOT / "configs" / "model" / "transformer_m.yaml"
    model = small(path)
    encoder = model.forecaster.encoder
    encoder.encoder.mode_prob = (1.0, 0.0, 0.0)
    batch = build_batch(real[:3], model.scene)
    graph = TokenGraph.of(batch)
    x = torch.randn(graph.padding.num_nodes, encoder.dim)
    padded = encoder.eval().interact(x, graph)
    by_scene = encoder.train().interact(x, graph)
    torch.testing.assert_close(by_scene, padded, rtol=1e-4, atol=1e-5)
