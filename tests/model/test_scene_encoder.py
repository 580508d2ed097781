"""The scene encoder on its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.model.small import batch_of, small_config
from trajpred.errors import DataError
from trajpred.graph.relations import RELATIONS
from trajpred.model import SceneEncoder
from trajpred.model.input_encoders import AgentEncoder
from trajpred.model.token_graph import TokenGraph
from trajpred.scenario import Scenario
from trajpred.training.lit_forecaster import LitForecaster


@pytest.fixture
def encoder() -> SceneEncoder:
    return SceneEncoder(dim=32, heads=4, layers=1).eval()


def checkpoint_of(model: LitForecaster, path: Path, keep: str = "") -> Path:
    """What Lightning would save of ``model``, only the weights that start with ``keep``."""
    weights = {name: value for name, value in model.state_dict().items() if name.startswith(keep)}
    content = {"state_dict": weights}
    model.on_save_checkpoint(content)
    torch.save(content, path)
    return path


def test_one_token_per_agent_and_lane(encoder: SceneEncoder, real: list[Scenario]) -> None:
    batch = batch_of(real)
    tokens = encoder.encode(batch)
    assert tokens.agent.shape == (batch["agent"].num_nodes, 32)
    assert tokens.lane.shape == (batch["lane"].num_nodes, 32)
    assert torch.equal(tokens.nodes, torch.cat((tokens.agent, tokens.lane)))
    assert torch.equal(encoder(batch).nodes, tokens.nodes)


def test_loads_from_a_checkpoint_without_its_decoder(
    model: LitForecaster, real: list[Scenario], tmp_path: Path
) -> None:
    path, batch = checkpoint_of(model, tmp_path / "a.ckpt", keep="forecaster.encoder."), batch_of(real[:1])
    encoder = SceneEncoder.from_checkpoint(path)
    assert not encoder.training
    assert torch.equal(encoder.encode(batch).nodes, model.forecaster.encoder.encode(batch).nodes)


def test_a_checkpoint_without_an_encoder_is_refused(model: LitForecaster, tmp_path: Path) -> None:
    path = checkpoint_of(model, tmp_path / "a.ckpt", keep="forecaster.decoder.")
    with pytest.raises(DataError, match="do not fit"):
        SceneEncoder.from_checkpoint(path)


def test_the_encoder_brings_no_decoder_and_no_training_stack() -> None:
    code = "import sys, trajpred.model.scene_encoder, trajpred.graph.scene_graph\n"
    code += (
        "names = ('pytorch_lightning', 'trajpred.model.mode_decoder', 'trajpred.training.lit_forecaster')\n"
    )
    code += "sys.exit(any(name in sys.modules for name in names))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_layers_listen_further(real: list[Scenario]) -> None:
    """With L layers a token depends on what lies within L edges, and on nothing beyond."""
    for layers in (1, 2):
        encoder = SceneEncoder(dim=32, heads=4, layers=layers).eval()
        batch = batch_of(real[-1:])
        graph, source = TokenGraph.of(batch), 0
        index, total = graph.index, len(graph)
        reached = torch.zeros(total, dtype=torch.bool)
        reached[source] = True
        for _ in range(layers):
            reached[index[1, reached[index[0]]]] = True
        with torch.inference_mode():
            before = encoder.encode(batch).nodes
            batch["agent"].history[source] += 1.0
            changed = (encoder.encode(batch).nodes - before).abs().amax(1) > 1e-6
        assert 1 < reached.sum() < total and torch.equal(changed, reached)


def test_joint_nodes_are_agents_then_lanes(real: list[Scenario]) -> None:
    batch = batch_of(real)
    graph = TokenGraph.of(batch)
    A = batch["agent"].num_nodes
    start = {"agent": 0, "lane": A}
    expected = [
        (j + start[r[0]], i + start[r[2]], k)
        for r in RELATIONS
        for (j, i), k in zip(batch[r].edge_index.T.tolist(), batch[r].edge_kind.tolist(), strict=True)
    ]
    assert list(zip(*graph.index.tolist(), graph.kind.tolist(), strict=True)) == expected
    assert torch.equal(graph.poses.position[A:], batch["lane"].position)
    padded, ptr = graph.padding.pad(graph.poses.heading), batch["agent"].ptr
    for scene in range(3):
        agents = batch["agent"].heading[ptr[scene] : ptr[scene + 1]]
        assert torch.equal(padded[scene, : len(agents)], agents)


@pytest.mark.parametrize("steps", [1, 2, 5, 20, 50])
def test_agent_encoder_takes_any_history_and_hears_its_last_step(steps: int) -> None:
    encoder = AgentEncoder(32).eval()
    history, kind = torch.randn(3, steps, 7, requires_grad=True), torch.tensor([0, 1, 9])
    out: Tensor = encoder(history, kind)
    (gradient,) = torch.autograd.grad((out * torch.randn(3, 32)).sum(), history)
    assert out.shape == (3, 32) and (gradient[:, -1].abs().sum(-1) > 0).all()
    other = encoder(history, torch.tensor([1, 1, 9]))
    assert ((other - out).abs().amax(1) > 0).tolist() == [True, False, False]


def test_config_is_that_of_the_checkpoint(tmp_path: Path) -> None:
    config = small_config()
    config["encoder"]["init_args"] |= {"layers": 3, "norm": "pre"}
    path = checkpoint_of(LitForecaster.build(config), tmp_path / "a.ckpt")
    encoder = SceneEncoder.from_checkpoint(path)
    assert len(encoder.layers) == 3 and encoder.layers[0].pre
