"""Properties that every published operator on graphs has, whatever its options."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from tests.nn.graphs import EDGES, NODES
from trajpred.nn import (
    DwivediGraphTransformerEdgeLayer,
    DwivediGraphTransformerLayer,
    GATEncoder,
    GraphTransformerNet,
    MultiHeadAttentionConv,
    TransformerConv,
    star_edges,
)

DIM = 4
EDGE = 4


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


def gat(name: str, **options: Any) -> Operator:
    return Operator(
        f"GATEncoder {name}",
        lambda: GATEncoder(DIM, 2, 1, **options),
        gat_targets,
        edges="edge_channels" in options,
        bipartite=False,
    )


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


BLOCK = {"skip_connection": True, "ff_channels": 5}
OPERATORS = [
    transformer_conv("gated", out=2, ein=EDGE, heads=2, gating=True),
    transformer_conv("mean", out=4, ein=EDGE, heads=2, concat=False, batch_norm=True, **BLOCK),
    transformer_conv("loops", out=2, heads=2, add_self_loops=True, root_weight=False, **BLOCK),
    multi_head("default"),
    multi_head("raw keys", transform_keys=False, score_scaling="none"),
    multi_head("shared keys", share_key_transform=True, attention_activation="tanh"),
    multi_head("pooled", transform_values_after_pooling=True, score_scaling="trainable_elup1"),
    Operator("Dwivedi", lambda: DwivediGraphTransformerLayer(DIM, DIM, 2, use_bias=True), plain, edges=False),
    Operator("Dwivedi edges", lambda: DwivediGraphTransformerEdgeLayer(DIM, DIM, 2, layer_norm=True), plain),
    Operator(
        "GraphTransformerNet",
        lambda: GraphTransformerNet(
            hidden_dim=DIM, out_dim=DIM, n_heads=2, L=1, in_dim=DIM, edge_dim=EDGE, lap_pos_enc=False
        ),
        net_nodes,
        bipartite=False,
    ),
    gat("v1 edges", conv="gat", edge_channels=EDGE),
    gat("v2 edges", conv="gatv2", edge_channels=EDGE),
    gat("v2", conv="gatv2"),
]
each_operator = pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
GRAPHS = [(NODES, EDGES), (1, EDGES[:, :0]), (3, EDGES[:, :4]), (0, EDGES[:, :0])]


@each_operator
def test_a_receiver_depends_on_itself_and_its_senders_only(operator: Operator) -> None:
    """The Jacobian has a block exactly for each edge sender → receiver and for each node itself."""
    module = operator.make().eval()
    x, index, e = operator.inputs()
    jacobian = torch.autograd.functional.jacobian(lambda x: operator(module, x, index, e), x)
    depends = jacobian.abs().amax((1, 3)) > 0
    expected = torch.zeros(NODES, NODES, dtype=torch.bool)
    expected[index[1], index[0]] = True
    reached = expected.any(1)
    itself = depends.diagonal()
    elsewhere = ~torch.eye(NODES).bool()
    assert torch.equal(depends & elsewhere, expected & elsewhere)
    assert itself[reached].all() or operator.name.startswith("MultiHead")  # which has no residual
    if operator.edges:
        by_edge = torch.autograd.functional.jacobian(lambda e: operator(module, x, index, e), e)
        used = by_edge.abs().amax((1, 3)) > 0
        plain = index[0] != index[1]  # GATEncoder replaces loops
        assert torch.equal(used[:, plain], (torch.arange(NODES)[:, None] == index[1])[:, plain])


@each_operator
def test_order_of_nodes_and_edges_does_not_matter(operator: Operator) -> None:
    module = operator.make()
    x, index, e = operator.inputs()
    nodes = torch.randperm(NODES)
    edges = torch.randperm(index.shape[1])
    moved = nodes.argsort()[index[:, edges]]
    out = operator(module, x[nodes], moved, None if e is None else e[edges])
    assert_close(out, operator(module, x, index, e)[nodes])


@each_operator
def test_a_flattened_batch_equals_its_graphs_one_by_one(operator: Operator) -> None:
    module = operator.make().eval()
    graphs = [operator.inputs(*graph) for graph in GRAPHS]
    apart = [operator(module, *graph) for graph in graphs]
    nodes, indices, features = zip(*graphs, strict=True)
    assert [len(out) for out in apart] == [len(x) for x in nodes]
    offsets = np.cumsum([0, *map(len, nodes)])
    index = torch.cat([index + offset for index, offset in zip(indices, offsets, strict=False)], 1)
    e = torch.cat(features) if operator.edges else None
    assert_close(operator(module, torch.cat(nodes), index, e), torch.cat(apart))


@each_operator
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("nodes", "index"), GRAPHS, ids=str)
def test_any_graph_is_finite_both_ways(operator: Operator, nodes: int, index: Tensor, training: bool) -> None:
    module = operator.make().train(training)
    inputs = operator.inputs(nodes, index)
    out = operator(module, *inputs)
    out.square().sum().backward()
    assert out.shape[0] == nodes
    assert out.isfinite().all()
    x, _, e = inputs
    for tensor in (x, e, *module.parameters()):
        if tensor is not None and tensor.grad is not None:
            assert tensor.grad.isfinite().all()
    for buffer in module.buffers():
        assert buffer.isfinite().all()


BIPARTITE = [operator for operator in OPERATORS if operator.bipartite]


@pytest.mark.parametrize("operator", BIPARTITE, ids=lambda operator: operator.name)
def test_senders_and_receivers_may_be_separate(operator: Operator) -> None:
    module = operator.make().eval()
    x, index, e = operator.inputs()
    whole = operator(module, x, index, e)
    assert_close(operator(module, (x, x.clone()), index, e), whole)
    assert_close(operator(module, (x, x[:4]), index, e), whole[:4])  # edges reach the first four only


@each_operator
def test_half_precision_is_near(operator: Operator) -> None:
    module = operator.make().float().eval()
    x, index, e = operator.inputs()
    x = x.detach().float()
    if e is not None:
        e = e.detach().float()
    with torch.autocast("cpu", torch.bfloat16):
        half = operator(module, x, index, e)
    assert_close(half.float(), operator(module, x, index, e), rtol=0.1, atol=0.1)


DROPPING = [
    gat("dropout", dropout=0.5),
    gat("attention_dropout", attention_dropout=0.5),
    Operator("Dwivedi", lambda: DwivediGraphTransformerLayer(DIM, DIM, 2, dropout=0.5), plain, edges=False),
    Operator("Dwivedi edges", lambda: DwivediGraphTransformerEdgeLayer(DIM, DIM, 2, dropout=0.5), plain),
    Operator(
        "Dwivedi stream of edges",
        lambda: DwivediGraphTransformerEdgeLayer(DIM, DIM, 2, dropout=0.5),
        lambda layer, *inputs: layer(*inputs)[1],
    ),
]


@pytest.mark.parametrize("operator", DROPPING, ids=lambda operator: operator.name)
def test_dropout_applies_in_training_only(operator: Operator) -> None:
    module = operator.make()
    inputs = operator.inputs()
    assert not torch.equal(operator(module, *inputs), operator(module, *inputs))
    module.eval()
    assert torch.equal(operator(module, *inputs), operator(module, *inputs))


def test_each_dropout_of_gat_is_of_its_own_place() -> None:
    for layer in GATEncoder(DIM, 2, 2, dropout=0.2, attention_dropout=0.3).layers:
        assert layer.conv.dropout == 0.3
        assert layer.dropout.p == layer.feed_forward[2].p == 0.2


@pytest.mark.parametrize("conv", ["gat", "gatv2"])
def test_the_duplicate_loop_of_the_published_star_changes_nothing(conv: str) -> None:
    operator = gat(conv, conv=conv)
    module = operator.make()
    x = torch.randn(9, DIM, dtype=torch.float64)
    duplicate = torch.cat((star_edges(), torch.zeros(2, 1).long()), 1)
    assert_close(operator(module, x, duplicate, None)[0], operator(module, x, star_edges(), None)[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda init: TransformerConv(4, 2, ein=1, heads=2, gating=True, ff_channels=3, init=init),
        lambda init: multi_head("", kernel_initializer=init).build(),
    ],
    ids=["TransformerConv", "MultiHeadAttentionConv"],
)
def test_the_initialiser_fills_every_matrix_and_no_bias(make: Callable[..., nn.Module]) -> None:
    for parameter in make(lambda weight: nn.init.constant_(weight, 7.0)).parameters():
        assert (parameter == (7.0 if parameter.ndim == 2 else 0.0)).all()
