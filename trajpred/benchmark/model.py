"""The forecaster on one real scenario, and the graph-transformer core beside PyG's layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import TransformerConv as PyGTransformerConv

from trajpred.benchmark.timing import median_ms, use_threads
from trajpred.data.batch import ScenarioBatch
from trajpred.data.geometry import Pose
from trajpred.data.plain import read_yaml
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.features.relations import edge_features
from trajpred.features.scene_graph import SceneBatch, build_batch, scene_features
from trajpred.nn import EdgeBias, Edges, GraphAttention, Layout, PaddedAttention
from trajpred.sources.argoverse2 import read_scenario
from trajpred.store.sample import SAMPLE_RAW
from trajpred.training.lit_forecaster import LitForecaster

#: The scenario that is measured by default, a native one of the sample.
SCENARIO = SAMPLE_RAW / "val" / "0a1e6f0a-1817-4a98-b02e-db8c9327d151"
#: The model that ``trajpred train`` trains by default.
DEFAULT_MODEL: dict[str, Any] = {
    "encoder": {"class_path": "trajpred.model.SceneEncoder"},
    "decoder": {"class_path": "trajpred.model.ModeDecoder"},
}
#: Scenes per training step.
STEP = 16


def make_model(config: Path | None) -> LitForecaster:
    """Build the model of a YAML file of configs/model, by default the default model, with random weights.

    Raises:
        DataError: the file contains no model.
    """
    content = read_yaml(config) if config else {"model": {}}
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise DataError("contains no model; give a file of configs/model", file=config)
    return LitForecaster.build(DEFAULT_MODEL | content["model"])


def model_figures(folder: Path | None, config: Path | None, repeats: int, threads: int) -> dict[str, float]:
    """Measure a model on one scenario, repeated to fill batches.

    Args:
        folder: the scenario, by default one of the sample.
        config: YAML file of the model, by default the default model.
        repeats: measurements of each figure.
        threads: of torch.
    """
    scenario = read_scenario(folder or SCENARIO)
    model = make_model(config)
    graph = build_batch([scenario], model.scene)
    with use_threads(threads):
        figures: dict[str, float] = {}
        figures["parameters (M)"] = sum(weights.numel() for weights in model.parameters()) / 1e6
        figures["agents"] = graph["agent"].num_nodes
        figures["lanes"] = graph["lane"].num_nodes
        cpu, _ = median_ms(partial(build_batch, [scenario], model.scene), repeats)
        figures["scenario to graph, CPU ms"] = cpu
        figures |= _stages(model, scenario, repeats)
        figures |= _times(model, scenario, repeats)
    return figures


@torch.no_grad()
def _stages(model: LitForecaster, scenario: Scenario, repeats: int) -> dict[str, float]:
    """Measure the stages of one forecast in CPU ms; count a forward's calls of operators, nested ones too."""
    model.eval()
    encoder = model.forecaster.encoder
    batch = build_batch([scenario], model.scene)
    stages: dict[str, Callable[[], object]] = {
        "features": partial(scene_features, ScenarioBatch.of([scenario]), model.scene.features),
        "encoding": partial(encoder.encode, batch),
        "decoding": partial(model.forecaster.decoder, encoder.encode(batch), batch),
    }
    figures: dict[str, float] = {}
    for name, stage in stages.items():
        cpu, _ = median_ms(stage, repeats)
        figures[f"one scene, {name}, CPU ms"] = cpu
    with torch.profiler.profile() as calls:
        model.forecaster(batch)
    operators = [event for event in calls.key_averages() if event.key.startswith("aten::")]
    figures["one scene, calls of operators"] = sum(event.count for event in operators)
    return figures


def _times(model: LitForecaster, scenario: Scenario, repeats: int) -> dict[str, float]:
    """Measure forward passes of several batch sizes, and a training step."""
    figures: dict[str, float] = {}
    for size in (1, STEP, 32):
        batch = build_batch([scenario] * size, model.scene)
        model.eval()
        with torch.no_grad():
            cpu, wall = median_ms(partial(model.forecaster, batch), repeats)
        name = f"forward, batch {size}"
        figures[f"{name}, CPU ms"] = cpu
        figures[f"{name}, wall ms"] = wall
        figures[f"{name}, scenes/s of CPU time"] = 1e3 * size / cpu
        figures[f"{name}, scenes/s"] = 1e3 * size / wall
    batch = build_batch([scenario] * STEP, model.scene)
    cpu, wall = training_step(model, batch, repeats)
    figures[f"training step, batch {STEP}, CPU ms"] = cpu
    figures[f"training step, batch {STEP}, wall ms"] = wall
    return figures


def training_step(model: LitForecaster, batch: SceneBatch, repeats: int) -> tuple[float, float]:
    """Measure a forward and backward pass with all losses: median CPU and wall ms."""
    model.train()

    def step() -> None:
        model.zero_grad()
        model.losses(batch)["loss"].backward()

    return median_ms(step, repeats)


@use_threads()
def core_figures(repeats: int) -> dict[str, float]:
    """Measure the default attention (edges and dense) beside PyG's TransformerConv and plain dense attention.

    130 nodes of 128 channels, 32 edges into each from its nearest neighbours, 8 heads. Both graph layers get
    relative-pose features per edge (PyG projects them to keys and values, trajpred to a bias); plain dense
    attention has no positions and is the lower bound. One thread, CPU ms, forward and forward with backward.
    """
    figures: dict[str, float] = {}
    for size in (1, 32):
        for name, (module, inputs) in _core_cases(size).items():
            with torch.no_grad():  # poses keep what they compute, for the backward pass too
                cpu, _ = median_ms(partial(module, *inputs), repeats)
            figures[f"batch {size}, {name}, forward"] = cpu
            cpu, _ = median_ms(partial(_forward_and_backward, module, inputs), repeats)
            figures[f"batch {size}, {name}, forward + backward"] = cpu
    return figures


def _forward_and_backward(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    output = module(*inputs)
    torch.autograd.grad(output.square().sum(), list(module.parameters()))


class _WithBias(nn.Module):
    """The default attention; its bias is computed in every call, as PyG's layer does with edge features."""

    def __init__(self, dim: int, heads: int, channels: int, layout: Layout, dense: bool) -> None:
        super().__init__()
        self.attention = GraphAttention(dim, heads)
        self.bias = EdgeBias(channels, heads)
        self.layout = layout
        self.dense = dense

    def forward(self, x: Tensor, index: Tensor, features: Tensor, poses: Pose[Tensor]) -> Tensor:
        bias = self.bias(features.T)
        edges = Edges(index, bias, self.layout, self.layout, (poses, poses), dense=self.dense)
        return self.attention(x, x, edges)


def _core_cases(scenes: int) -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    """Build the layers to compare, by name, with the inputs of each for ``scenes`` scenes."""
    torch.manual_seed(0)
    dim = 128
    heads = 8
    nodes = 130
    neighbours = 32
    count = scenes * nodes
    poses = Pose(60 * torch.rand(count, 2), 6 * torch.rand(count))
    position = poses.position.unflatten(0, (scenes, nodes))
    nearest = torch.cdist(position, position).topk(neighbours, largest=False).indices
    first_node = nodes * torch.arange(scenes)[:, None, None]
    sender = (nearest + first_node).flatten()
    receiver = torch.arange(count).repeat_interleave(neighbours)
    index = torch.stack((sender, receiver))
    no_type = torch.zeros_like(sender)
    features = edge_features(poses[sender].rows, poses[receiver].rows, no_type, 1).T
    channels = features.shape[1]
    x = torch.randn(count, dim)
    layout = Layout.of_counts([nodes] * scenes)
    pyg = PyGTransformerConv(dim, dim // heads, heads, edge_dim=channels)
    edges = _WithBias(dim, heads, channels, layout, dense=False)
    dense = _WithBias(dim, heads, channels, layout, dense=True)
    plain = PaddedAttention(dim, num_attention_heads=heads)
    return {
        "trajpred edges": (edges, (x, index, features, poses)),
        "trajpred dense": (dense, (x, index, features, poses)),
        "PyG TransformerConv": (pyg, (x, index, features)),
        "plain dense": (plain, (x.unflatten(0, (scenes, nodes)),)),
    }
