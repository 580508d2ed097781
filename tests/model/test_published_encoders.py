"""Every system of ``configs/model`` in the application."""

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
from trajpred.model.star_encoder import stars
from trajpred.model.token_graph import TokenGraph
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.training.lit_forecaster import LitForecaster

CONFIGS = sorted((ROOT / "configs" / "model").glob("*.yaml"))
HEADS = ("mlp", "lstm", "attention")


def small(path: Path, **decoder: Any) -> LitForecaster:
    """The system of a config file, made small and without dropout."""
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


def systems() -> list[Any]:
    """One item per config, and the star with each of its heads."""
    chosen = [pytest.param(path, {}, id=path.stem) for path in CONFIGS]
    star = ROOT / "configs" / "model" / "gat_star.yaml"
    return chosen + [pytest.param(star, {"head": head}, id=f"gat_star-{head}") for head in HEADS[1:]]


each_system = pytest.mark.parametrize(("path", "decoder"), systems())


@each_system
def test_loss_falls_and_every_parameter_gets_a_gradient(
    path: Path, decoder: dict[str, Any], real: list[Scenario]
) -> None:
    model, batch = small(path, **decoder).train(), batch_of(real)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(12):
        torch.manual_seed(step % 3)  # what completion hides
        loss = model.losses(batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        missing = [name for name, p in model.named_parameters() if p.grad is None]
        broken = [name for name, p in model.named_parameters() if not p.grad.isfinite().all()]
        assert not missing and not broken
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]


@each_system
def test_moving_and_turning_the_scene_changes_nothing(
    path: Path, decoder: dict[str, Any], real: list[Scenario]
) -> None:
    model, scene = small(path, **decoder).eval(), real[0]
    with torch.inference_mode():
        here = model(batch_of([scene]))
        there = model(batch_of([moved(scene, (8000.0, -6000.0), math.pi / 2)]))
    torch.testing.assert_close(there.trajectory, here.trajectory, rtol=0, atol=5e-3)
    torch.testing.assert_close(there.logits, here.logits, rtol=0, atol=5e-3)


@each_system
def test_a_batch_is_its_scenes(path: Path, decoder: dict[str, Any], real: list[Scenario]) -> None:
    model = small(path, **decoder).eval()
    if path.stem == "graph_transformer":
        # Laplacian eigenvectors have any sign, and any direction where eigenvalues coincide.
        model.forecaster.encoder.positional = None
    with torch.inference_mode():
        together = model(batch_of(real)).trajectory
        alone = torch.cat([model(batch_of([scene])).trajectory for scene in real])
    torch.testing.assert_close(together, alone, rtol=0, atol=2e-3)


@each_system
def test_a_lonely_agent_without_a_map_is_predicted(path: Path, decoder: dict[str, Any]) -> None:
    steps = torch.arange(110.0)[:, None] * torch.tensor([1.0, 0.2])
    model = small(path, **decoder).eval()
    with torch.inference_mode():
        prediction = model(batch_of([Scenario.from_arrays(steps[None].numpy(), num_observed=50)]))
    assert prediction.trajectory.isfinite().all() and prediction.trajectory.shape == (1, 6, 60, 2)


@pytest.mark.parametrize("sectors", [1, 4, 8])
def test_stars_hold_the_nearest_neighbour_of_each_direction(real: list[Scenario], sectors: int) -> None:
    batch = batch_of(real)
    graph = TokenGraph.of(batch)
    found = stars(batch, graph, sectors)
    sender, receiver = graph.index[:, graph.edges_between(True, True)].tolist()
    nearest: dict[tuple[int, int], tuple[float, Tensor]] = {}
    for j, i in zip(sender, receiver, strict=True):
        x, y = relative_pose(graph.poses[j : j + 1], graph.poses[i : i + 1]).position[0].tolist()
        sector = int((math.atan2(y, x) + math.pi / sectors) % (2 * math.pi) * sectors / (2 * math.pi))
        distance = math.hypot(x, y)
        if (i, sector) not in nearest or distance < nearest[i, sector][0]:
            nearest[i, sector] = distance, torch.tensor([x, y])
    rows, counts = found.neighbors
    assert counts.tolist() == [sum(i == a for i, _ in nearest) for a in range(graph.num_agents)]
    expected = torch.stack([nearest[key][1] for key in sorted(nearest)])
    torch.testing.assert_close(10 * found.state[rows, :2], expected, rtol=0, atol=1e-3)
    one_hot = found.state[rows, 6 + len(OBJECT_TYPES) :]
    assert one_hot.argmax(1).tolist() == [sector for _, sector in sorted(nearest)]
    assert torch.equal(found.state[found.graphs.target_index, :2], torch.zeros(graph.num_agents, 2))


def test_completion_asks_only_for_what_is_hidden(real: list[Scenario]) -> None:
    batch = batch_of(real)
    encoder = StarSceneEncoder(16, 2, 1, completion=1.0)
    before = encoder.auxiliary_losses(batch)["completion"]
    # All steps are hidden: the error is that of a guess from the mask alone, whatever the history.
    shown = torch.zeros_like(batch["agent"].history)
    shown[..., -1] = batch["agent"].history[..., -1]
    assert encoder.fill_in is not None
    guess = encoder.fill_in(encoder.agent(shown)[0])
    valid = shown[..., -1] > 0
    error = torch.linalg.vector_norm(guess - batch["agent"].history[..., :2], dim=-1)[valid].mean()
    torch.testing.assert_close(before, error)
    assert StarSceneEncoder(16, 2, 1).auxiliary_losses(batch) == {}


def test_the_regulariser_reaches_the_training_loss(real: list[Scenario]) -> None:
    model, batch = small(ROOT / "configs" / "model" / "multi_head_attention.yaml").eval(), batch_of(real)
    kernels = [p for n, p in model.named_parameters() if ".convs." in n and p.ndim == 2]
    losses = model.losses(batch)
    expected = 1e-5 * sum(float(p.detach().square().sum()) for p in kernels)
    assert float(losses["regularization"].detach()) == pytest.approx(expected, rel=1e-4)
    parts = losses["proposal"] + losses["refinement"] + losses["mode"] + losses["regularization"]
    torch.testing.assert_close(losses["loss"], parts)
