"""The published operators behind one call, for the properties that all of them share."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trajpred.nn import (
    DwivediGraphTransformerEdgeLayer,
    DwivediGraphTransformerLayer,
    GATEncoder,
    GraphTransformerNet,
    MultiHeadAttentionConv,
    TransformerConv,
)

DIM = 4
EDGE = 4
#: Node 0 has a loop and two parallel edges, 4 only sends, 5 has no edge; columns in no order.
EDGES = torch.tensor([[1, 2, 0, 0, 3, 4, 4, 2], [0, 0, 0, 1, 2, 2, 3, 0]])
NODES = 6


@dataclass(frozen=True)
class Operator:
    """An operator on a graph; ``run(module, x, edge_index, edge_attr)`` returns the new nodes."""

    name: str
    build: Callable[[], nn.Module]
    run: Callable[..., Tensor]
    edges: bool = True
    bipartite: bool = True

    def make(self) -> nn.Module:
        """Build in float64 with random weights: zero biases and unit norms would hide errors."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # attention_activation with score_scaling
            module = self.build().double()
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.5)
        return module

    def inputs(self, nodes: int = NODES, edge_index: Tensor = EDGES) -> tuple[Tensor, Tensor, Tensor | None]:
        x = torch.randn(nodes, DIM, dtype=torch.float64, requires_grad=True)
        e = torch.randn(edge_index.shape[1], EDGE, dtype=torch.float64, requires_grad=True)
        return x, edge_index, e if self.edges else None

    def __call__(self, module: nn.Module, x: Any, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor:
        out = self.run(module, x, edge_index, edge_attr)
        return out[0] if isinstance(out, tuple) else out


def plain(module: nn.Module, x: Any, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor:
    return module(x, edge_index, edge_attr)


def net_nodes(net: GraphTransformerNet, x: Tensor, index: Tensor, e: Tensor | None) -> Tensor:
    return net.encode(x, index, e, torch.zeros(x.shape[0], dtype=torch.int64))


def gat_targets(encoder: GATEncoder, x: Tensor, index: Tensor, e: Tensor | None) -> Tensor:
    return encoder(x, index, torch.arange(x.shape[0]), e)


def transformer_conv(name: str, **options: Any) -> Operator:
    return Operator(
        f"TransformerConv {name}",
        lambda: TransformerConv(DIM, **options),
        plain,
        edges="ein" in options,
        bipartite=not options.get("add_self_loops"),
    )


def multi_head(name: str, **options: Any) -> Operator:
    sizes = {"receiver_channels": DIM, "sender_node_channels": DIM, "sender_edge_channels": EDGE}
    fixed = {"num_heads": 2, "per_head_channels": 3, "receiver_tag": "target", "activation": "tanh"}
    options = {"sender_edge_feature": "edge_attr", **fixed, **sizes, **options}
    return Operator(f"MultiHeadAttentionConv {name}", lambda: MultiHeadAttentionConv(**options), plain)


OPERATORS = [
    transformer_conv("gated", out=2, ein=EDGE, heads=2, gating=True),
    transformer_conv(
        "mean",
        out=4,
        ein=EDGE,
        heads=2,
        concat=False,
        skip_connection=True,
        ff_channels=5,
        batch_norm=True,
    ),
    transformer_conv(
        "loops",
        out=2,
        heads=2,
        add_self_loops=True,
        root_weight=False,
        skip_connection=True,
        ff_channels=5,
    ),
    multi_head("default"),
    multi_head("raw keys", transform_keys=False, score_scaling="none"),
    multi_head("shared keys", share_key_transform=True, attention_activation="tanh"),
    multi_head("pooled", transform_values_after_pooling=True, score_scaling="trainable_elup1"),
    Operator(
        "Dwivedi",
        lambda: DwivediGraphTransformerLayer(DIM, DIM, 2, use_bias=True),
        plain,
        edges=False,
    ),
    Operator(
        "Dwivedi edges",
        lambda: DwivediGraphTransformerEdgeLayer(DIM, DIM, 2, layer_norm=True),
        plain,
    ),
    Operator(
        "GraphTransformerNet",
        lambda: GraphTransformerNet(
            hidden_dim=DIM,
            out_dim=DIM,
            n_heads=2,
            L=1,
            in_dim=DIM,
            edge_dim=EDGE,
            lap_pos_enc=False,
        ),
        net_nodes,
        bipartite=False,
    ),
    *(
        Operator(
            f"GATEncoder {conv} {channels}",
            lambda conv=conv, channels=channels: GATEncoder(DIM, 2, 1, conv=conv, edge_channels=channels),
            gat_targets,
            edges=channels > 0,
            bipartite=False,
        )
        for conv, channels in (("gat", EDGE), ("gatv2", EDGE), ("gatv2", 0))
    ),
]
