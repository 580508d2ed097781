"""Every system of ``configs/model``: it learns, is invariant, and does not mix the scenes of a batch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from tests.conftest import ROOT
from tests.graph.scenes import moved
from tests.model.small import batch_of
from trajpred.geometry import relative_pose
from trajpred.model import StarSceneEncoder
from trajpred.model.star_encoder import star_graphs
from trajpred.model.token_graph import TokenGraph
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.training.lit_forecaster import LitForecaster

CONFIGS = sorted((ROOT / "configs" / "model").glob("*.yaml"))
HEADS = ("mlp", "lstm", "attention")
#: Every config, and the star with each of its heads.
SYSTEMS = [pytest.param(path, {}, id=path.stem) for path in CONFIGS] + [
    pytest.param(ROOT / "configs" / "model" / "gat_star.yaml", {"head": head}, id=f"gat_star-{head}")
    for head in HEADS[1:]
]
each_system = pytest.mark.parametrize(("path", "decoder"), SYSTEMS)


def small(path: Path, **decoder: Any) -> LitForecaster:
    """Build the system of a config file with small sizes and without dropout."""
    config: dict[str, Any] = yaml.safe_load(path.read_text())["model"]
    config.setdefault("encoder", {"class_path": "trajpred.model.SceneEncoder"})
    config.setdefault("decoder", {"class_path": "trajpred.model.ModeDecoder"})
    for part in config.values():
        arguments = part.setdefault("init_args", {})
        arguments["dim"] = 16
        arguments |= {name: 2 for name in ("heads", "layers") if name in arguments}
        arguments |= {name: 0.0 for name in ("dropout", "edge_dropout") if name in arguments}
    config["decoder"]["init_args"] |= decoder
    torch.manual_seed(0)
    return LitForecaster.build(config)


@each_system
def test_the_loss_falls_and_every_parameter_gets_a_finite_gradient(
    path: Path, decoder: dict[str, Any], real: list[Scenario]
) -> None:
    model, batch = small(path, **decoder).train(), batch_of(real[:1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
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
        together = model(batch_of(scenes))
        alone = [model(batch_of([scene])) for scene in there]
    assert together.trajectory.isfinite().all() and alone[-1].trajectory.shape == (1, 6, 60, 2)
    for name in ("trajectory", "logits"):
        parts = torch.cat([getattr(one, name) for one in alone])
        torch.testing.assert_close(getattr(together, name), parts, rtol=0, atol=2e-3)


@pytest.mark.parametrize("sectors", [1, 8])
def test_stars_hold_the_nearest_neighbour_of_each_direction(real: list[Scenario], sectors: int) -> None:
    batch = batch_of(real)
    graph = TokenGraph.of(batch)
    graphs, state, rows = star_graphs(batch, graph, sectors)
    nearest: dict[tuple[int, int], tuple[float, Tensor, int]] = {}
    for j, i in graph.index[:, graph.edges_between(True, True)].T.tolist():
        x, y = relative_pose(graph.poses[j : j + 1], graph.poses[i : i + 1]).position[0].tolist()
        sector = int((math.atan2(y, x) + math.pi / sectors) % (2 * math.pi) * sectors / (2 * math.pi))
        distance = math.hypot(x, y)
        if (i, sector) not in nearest or distance < nearest[i, sector][0]:
            nearest[i, sector] = distance, torch.tensor([x, y]), j
    assert (graphs.ptr.diff() - 1).tolist() == [
        sum(i == a for i, _ in nearest) for a in range(graph.num_agents)
    ]
    expected = torch.stack([nearest[key][1] for key in sorted(nearest)])
    torch.testing.assert_close(10 * state[rows, :2], expected, rtol=0, atol=1e-3)
    senders = [nearest[key][2] for key in sorted(nearest)]
    types = state[rows, 6 : 6 + len(OBJECT_TYPES)].argmax(1)
    assert torch.equal(types, batch["agent"].object_type[senders])
    one_hot = state[rows, 6 + len(OBJECT_TYPES) :]
    assert one_hot.argmax(1).tolist() == [sector for _, sector in sorted(nearest)]
    assert torch.equal(state[graphs.target_index, :2], torch.zeros(graph.num_agents, 2))


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


def test_the_regularisation_is_part_of_the_training_loss(real: list[Scenario]) -> None:
    model, batch = small(ROOT / "configs" / "model" / "multi_head_attention.yaml").eval(), batch_of(real[:1])
    kernels = [p for n, p in model.named_parameters() if ".convs." in n and p.ndim == 2]
    losses = model.losses(batch)
    expected = 1e-5 * sum(float(p.detach().square().sum()) for p in kernels)
    assert float(losses["regularization"].detach()) == pytest.approx(expected, rel=1e-4)
    parts = losses["proposal"] + losses["refinement"] + losses["mode"] + losses["regularization"]
    torch.testing.assert_close(losses["loss"], parts)
