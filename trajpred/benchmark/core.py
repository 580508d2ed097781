"""The graph-transformer core beside PyG's layer and plain dense attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import TransformerConv as PyGTransformerConv

from trajpred.benchmark.timing import median_ms, use_threads
from trajpred.geometry import Pose
from trajpred.graph.edge_features import edge_features
from trajpred.nn import (
    DenseRelation,
    EdgeBias,
    EdgeRelation,
    GATEncoder,
    GraphAttention,
    PaddedAttention,
    Padding,
    flatten_stars,
)


@use_threads()
def core(
    nodes: int = 130, neighbors: int = 32, batch_sizes: Sequence[int] = (1, 32), repeats: int = 10
) -> dict[str, float]:
    """Our default attention (edges and dense) beside PyG's TransformerConv and plain dense attention.

    d = 128, 8 heads; every node of a scene hears its nearest neighbours. Ours and PyG's get relative-pose
    features per edge (PyG projects them to keys and values, ours to a bias); plain dense attention knows no
    positions: a floor. One thread, CPU ms, forward and forward with backward.
    """
    results: dict[str, float] = {}
    for size in batch_sizes:
        cases = _core_cases(nodes, neighbors, size)
        for name, (module, inputs) in cases.items():
            parameters = list(module.parameters())

            def both(run: Callable[..., Tensor] = module, given: tuple[Any, ...] = inputs) -> None:
                torch.autograd.grad(run(*given).square().sum(), parameters)  # noqa: B023

            with torch.inference_mode():
                results[f"batch {size}, {name}, forward"] = median_ms(partial(module, *inputs), repeats)[0]
            results[f"batch {size}, {name}, forward + backward"] = median_ms(both, repeats)[0]
        for kind in ("forward", "forward + backward"):
            ours = results[f"batch {size}, trajpred dense, {kind}"]
            for rival in ("PyG TransformerConv", "plain dense"):
                results[f"batch {size}, {rival} / trajpred dense, {kind}"] = (
                    results[f"batch {size}, {rival}, {kind}"] / ours
                )
    return results | _stars(repeats)


def _stars(repeats: int, targets: int = 64) -> dict[str, float]:
    """The article's stars of 9 nodes: one after the other, as it is often coded, and flattened."""
    encoder = GATEncoder(64, heads=4, layers=2).eval()
    flat, one = flatten_stars(torch.full((targets,), 8)), flatten_stars(torch.tensor([8]))
    x = torch.randn(len(flat.batch), 64)

    def loop() -> None:
        for star in x.split(9):
            encoder(star, one.edge_index, one.target_index)

    with torch.inference_mode():
        slow = median_ms(loop, repeats)[0]
        fast = median_ms(partial(encoder, x, flat.edge_index, flat.target_index), repeats)[0]
    return {f"{targets} stars, loop": slow, "flattened": fast, "loop / flattened": slow / fast}


class _WithBias(nn.Module):
    """Our attention, its bias computed from edge features in every call as PyG's class does with its own."""

    def __init__(self, dim: int, heads: int, channels: int, dense: tuple[Padding, Padding] | None) -> None:
        super().__init__()
        self.attention, self.bias = GraphAttention(dim, heads), EdgeBias(channels, heads)
        self.dense = dense

    def forward(self, x: Tensor, index: Tensor, features: Tensor, poses: Pose[Tensor]) -> Tensor:
        edges = EdgeRelation(index, self.bias(features), len(x), len(x), (poses, poses))
        relation = edges if self.dense is None else DenseRelation.of(edges, *self.dense)
        return self.attention(x, x, relation)


def _core_cases(nodes: int, neighbors: int, scenes: int) -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    torch.manual_seed(0)
    dim, heads, count = 128, 8, scenes * nodes
    poses = Pose(60 * torch.rand(count, 2), 6 * torch.rand(count))
    place = poses.position.unflatten(0, (scenes, nodes))
    near = torch.cdist(place, place).topk(neighbors, largest=False).indices
    sender = (near + nodes * torch.arange(scenes)[:, None, None]).flatten()
    receiver = torch.arange(count).repeat_interleave(neighbors)
    features = edge_features(poses[sender], poses[receiver], torch.zeros_like(sender), 1)
    index, x = torch.stack((sender, receiver)), torch.randn(count, dim)
    padding = Padding(torch.arange(count), scenes, nodes)
    channels = features.shape[1]
    pyg = PyGTransformerConv(dim, dim // heads, heads, edge_dim=channels)
    return {
        "trajpred edges": (_WithBias(dim, heads, channels, None), (x, index, features, poses)),
        "trajpred dense": (_WithBias(dim, heads, channels, (padding, padding)), (x, index, features, poses)),
        "PyG TransformerConv": (pyg, (x, index, features)),
        "plain dense": (PaddedAttention(dim, heads), (x.unflatten(0, (scenes, nodes)),)),
    }
