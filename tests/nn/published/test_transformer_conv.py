"""TransformerConv beyond its vectors: contract, errors, PyG's class, gradients, awkward graphs."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import TransformerConv as PyGTransformerConv

from trajpred.nn.published import transformer_conv
from trajpred.nn.published.transformer_conv import EdgeProjection, TransformerConv, routing_block

#: Six nodes: 4 sends only, 5 has no edges at all, 0 hears itself.
EDGES = torch.tensor([[1, 2, 0, 0, 3, 4, 4], [0, 0, 0, 1, 2, 2, 3]])
N, E = 6, EDGES.shape[1]

#: Every option away from its default at least once.
VARIANTS: list[dict[str, Any]] = [
    {"out": 2},
    {"out": 2, "ein": 3, "heads": 2, "gating": True},
    {"out": 4, "ein": 3, "heads": 2, "concat": False, "skip_connection": True, "ff_channels": 5},
    {
        "out": 2,
        "ein": 1,
        "heads": 2,
        "bias_qkv": False,
        "bias_root": False,
        "edge_bias": True,
        "gating": True,
    },
    {
        "out": 2,
        "heads": 2,
        "add_self_loops": True,
        "skip_connection": True,
        "batch_norm": True,
        "ff_channels": 5,
    },
    {"out": 2, "heads": 3, "batch_norm": True, "root_weight": False},
]


def inputs(conv: TransformerConv, nodes: int = N, edges: int = E) -> tuple[Tensor, Tensor | None]:
    """Nodes with four channels, and edge features if the operator wants them; float64, differentiable."""
    x = torch.randn(nodes, 4, dtype=torch.float64, requires_grad=True)
    e = torch.randn(edges, conv.ein, dtype=torch.float64, requires_grad=True) if conv.ein else None
    return x, e


def build(**options: Any) -> TransformerConv:
    conv = TransformerConv(4, **options).double()
    for parameter in conv.parameters():  # biases and norms too
        torch.nn.init.normal_(parameter)
    return conv


def test_names_and_defaults_are_the_published_ones() -> None:
    parameters = inspect.signature(TransformerConv).parameters
    assert {name: p.default for name, p in parameters.items()} == {
        "in_": inspect.Parameter.empty,
        "out": inspect.Parameter.empty,
        "ein": 0,
        "heads": 1,
        "concat": True,
        "init": torch.nn.init.xavier_uniform_,
        "add_self_loops": False,
        "bias_qkv": True,
        "bias_root": True,
        "root_weight": True,
        "gating": False,
        "skip_connection": False,
        "batch_norm": False,
        "ff_channels": 0,
        "edge_bias": None,
        "dropout": 0.0,
    }
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in list(parameters)[3:])


def test_examples() -> None:
    result = doctest.testmod(transformer_conv)
    assert result.attempted and not result.failed


def test_errors_at_construction() -> None:
    with pytest.raises(ValueError, match="self_loops"):
        TransformerConv(4, 2, ein=1, add_self_loops=True)
    with pytest.raises(ValueError, match="skip_connection"):
        TransformerConv(4, 3, heads=2, skip_connection=True)
    with pytest.raises(ValueError, match="skip_connection"):
        TransformerConv(4, 2, heads=2, concat=False, skip_connection=True)
    with pytest.raises(ValueError, match="skip_connection"):
        TransformerConv((4, 3), 4, skip_connection=True)  # the receivers have three
    with pytest.raises(ValueError, match="multiple"):
        routing_block(7, heads=2)


def test_errors_at_call() -> None:
    x, e = torch.randn(N, 4), torch.randn(E, 3)
    loops = TransformerConv(4, 2, add_self_loops=True)
    with pytest.raises(ValueError, match="loop"):
        loops(x, EDGES, e)
    with pytest.raises(ValueError, match="same nodes"):
        loops((x, torch.randn(N, 4)), EDGES)
    for wrong in (None, e[:, :1], e[:-1]):
        with pytest.raises(ValueError, match="edge_attr"):
            TransformerConv(4, 2, ein=3)(x, EDGES, wrong)


def test_edge_features_without_ein_are_ignored() -> None:
    conv, x = TransformerConv(4, 2), torch.randn(N, 4)
    torch.testing.assert_close(conv(x, EDGES, torch.randn(E, 3)), conv(x, EDGES), rtol=0, atol=0)


def test_gating_without_root_has_no_effect_and_no_weights() -> None:
    conv = TransformerConv(4, 2, gating=True, root_weight=False)
    assert conv.root is None and conv.gate is None


def test_initialiser_fills_every_matrix_and_no_bias() -> None:
    conv = TransformerConv(
        4, 2, ein=1, heads=2, gating=True, ff_channels=3, init=lambda w: torch.nn.init.constant_(w, 7.0)
    )
    for parameter in conv.parameters():
        assert torch.all(parameter == (7.0 if parameter.ndim == 2 else 0.0))


def test_initialisation_repeats() -> None:
    first, second = (torch.manual_seed(3) and TransformerConv(4, 2, ein=1) for _ in range(2))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("bias_qkv", "edge_bias"), [(True, None), (False, None), (True, False), (False, True)]
)
def test_edge_bias_follows_that_of_the_nodes_unless_said_otherwise(
    bias_qkv: bool, edge_bias: bool | None
) -> None:
    conv = TransformerConv(4, 2, ein=1, bias_qkv=bias_qkv, edge_bias=edge_bias)
    assert (conv.query.bias is not None) == bias_qkv
    assert conv.edge is not None
    assert (conv.edge.bias is not None) == (bias_qkv if edge_bias is None else edge_bias)


def test_factored_edges_equal_projected_ones() -> None:
    project = EdgeProjection(3, heads=2, out=4).double()
    e = torch.randn(E, 3, dtype=torch.float64)
    query = torch.randn(N, 2, 4, dtype=torch.float64)
    attention = torch.rand(E, 2, dtype=torch.float64)
    receiver, edge = EDGES[1], project(e).unflatten(1, (2, 4))
    whole = (query[receiver] * edge).sum(-1) - (query[receiver] * project.bias.unflatten(0, (2, 4))).sum(-1)
    torch.testing.assert_close(project.score(query, e, receiver), whole)
    pooled = torch.zeros(N, 2, 4, dtype=torch.float64).index_add(0, receiver, attention[..., None] * edge)
    torch.testing.assert_close(project.pool(attention, e, receiver, N), pooled)


@pytest.mark.parametrize(
    ("ein", "bias", "beta", "concat"),
    [(0, True, True, True), (3, True, False, False), (3, False, True, True), (1, True, True, False)],
)
@pytest.mark.parametrize("bipartite", [False, True])
def test_equals_the_class_of_pyg(ein: int, bias: bool, beta: bool, concat: bool, bipartite: bool) -> None:
    senders, receivers, edges = 9, 7 if bipartite else 9, 20
    in_ = (5, 4) if bipartite else 5
    theirs = PyGTransformerConv(in_, 3, 2, concat, beta, edge_dim=ein or None, bias=bias).double()
    ours = TransformerConv(
        in_, 3, ein, heads=2, concat=concat, gating=beta, bias_qkv=bias, bias_root=bias, edge_bias=False
    ).double()
    names = {"lin_skip": "root", "lin_beta": "gate"}
    state = {
        f"{names.get(layer, layer.removeprefix('lin_'))}.{kind}": value
        for layer, kind, value in ((*name.split("."), value) for name, value in theirs.state_dict().items())
    }
    ours.load_state_dict(state)
    x = torch.randn(senders, 5, dtype=torch.float64)
    x = (x, torch.randn(receivers, 4, dtype=torch.float64)) if bipartite else x
    index = torch.stack((torch.randint(senders, (edges,)), torch.randint(receivers, (edges,))))
    e = torch.randn(edges, ein, dtype=torch.float64) if ein else None
    out, attention = ours(x, index, e, return_attention=True)
    expected, (_, weights) = theirs(x, index, e, return_attention_weights=True)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(attention, weights, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_gradients(options: dict[str, Any]) -> None:
    conv = build(**options)
    x, e = inputs(conv)
    names, values = zip(*conv.named_parameters(), strict=True)

    def run(x: Tensor, e: Tensor | None, *parameters: Tensor) -> Tensor:
        state = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(conv, state, (x, EDGES, e))

    assert torch.autograd.gradcheck(run, (x, e, *values))


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize(("nodes", "edges"), [(N, E), (N, 0), (1, 0), (0, 0)])
@pytest.mark.parametrize("training", [True, False])
def test_any_graph_is_finite(options: dict[str, Any], nodes: int, edges: int, training: bool) -> None:
    conv = build(**options).train(training)
    x, e = inputs(conv, nodes, edges)
    out, attention = conv(x, EDGES[:, :edges], e, return_attention=True)
    out.sum().backward()
    assert out.shape[0] == nodes and out.isfinite().all() and attention.isfinite().all()
    for parameter in (x, *conv.parameters()):
        assert parameter.grad is not None and parameter.grad.isfinite().all()
    assert all(buffer.isfinite().all() for buffer in conv.buffers())


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_nodes_without_incoming_edges_aggregate_exactly_zero(options: dict[str, Any]) -> None:
    conv = build(**options)
    x, e = inputs(conv)
    message, _ = conv.attend(x, EDGES, e)
    reached = torch.zeros(N, dtype=torch.bool).index_fill(0, EDGES[1], True) | conv.add_self_loops
    assert torch.all(message[~reached] == 0) and torch.all(message[reached] != 0)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_order_of_nodes_and_edges_does_not_matter(options: dict[str, Any]) -> None:
    conv = build(**options)
    x, e = inputs(conv)
    out, attention = conv(x, EDGES, e, return_attention=True)
    nodes, edges = torch.randperm(N), torch.randperm(E)
    found, weights = conv(
        x[nodes], nodes.argsort()[EDGES[:, edges]], None if e is None else e[edges], return_attention=True
    )
    torch.testing.assert_close(found, out[nodes])
    torch.testing.assert_close(weights[:E], attention[edges])


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_a_batch_equals_its_graphs_one_by_one(options: dict[str, Any]) -> None:
    conv = build(**options).eval()
    graphs = [(*inputs(conv, nodes, edges), EDGES[:, :edges]) for nodes, edges in ((6, 7), (1, 0), (3, 3))]
    apart = [conv(x, index, e) for x, e, index in graphs]
    index = torch.cat([index + offset for (_, _, index), offset in zip(graphs, (0, 6, 7), strict=True)], 1)
    e = torch.cat([e for _, e, _ in graphs]) if conv.ein else None
    torch.testing.assert_close(conv(torch.cat([x for x, _, _ in graphs]), index, e), torch.cat(apart))


@pytest.mark.parametrize("options", [o for o in VARIANTS if not o.get("add_self_loops")], ids=str)
def test_a_pair_of_equal_nodes_is_a_graph_and_receivers_may_be_few(options: dict[str, Any]) -> None:
    conv = build(**options).eval()
    x, e = inputs(conv)
    whole = conv(x, EDGES, e)
    torch.testing.assert_close(conv((x, x.clone()), EDGES, e), whole)
    torch.testing.assert_close(conv((x, x[:4]), EDGES, e), whole[:4])


def test_loops_are_added_to_every_node_even_where_there_is_one() -> None:
    conv = build(out=2, add_self_loops=True)
    x, _ = inputs(conv)
    found, attention = conv.attend(x, EDGES)
    loops = torch.arange(N).expand(2, -1)
    conv.add_self_loops = False
    expected, weights = conv.attend(x, torch.cat((EDGES, loops), 1))
    assert attention.shape == (E + N, 1)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(attention, weights)
    assert attention[2] == attention[E]  # both loops of node 0


def test_routing_block_is_what_it_says() -> None:
    block = routing_block(4, heads=2, ff_channels=5).double()
    x, index = torch.randn(N, 4, dtype=torch.float64), EDGES
    h = block.norm1(block.attend(x, index)[0] + x)
    expected = block.norm2(h + block.feed_forward(h))
    torch.testing.assert_close(block(x, index), expected)
    assert block.root is None


def test_dropout_falls_on_attention_in_training_only() -> None:
    conv = TransformerConv(4, 2, dropout=1.0, root_weight=False)
    x = torch.randn(N, 4)
    out, attention = conv(x, EDGES, return_attention=True)
    assert torch.all(out == 0) and torch.all(attention > 0)
    assert torch.any(conv.eval()(x, EDGES) != 0)


def test_half_precision_keeps_the_sums_wide() -> None:
    conv = TransformerConv(4, 2, ein=3, heads=2, gating=True)
    x, e = torch.randn(N, 4), torch.randn(E, 3)
    with torch.autocast("cpu", torch.bfloat16):
        out, attention = conv(x, EDGES, e, return_attention=True)
    assert attention.dtype == torch.float32
    torch.testing.assert_close(out.float(), conv(x, EDGES, e), rtol=0.05, atol=0.05)
    assert conv.bfloat16()(x.bfloat16(), EDGES, e.bfloat16()).dtype == torch.bfloat16
