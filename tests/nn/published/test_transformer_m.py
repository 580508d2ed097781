"""Transformer-M beyond its vectors: layer, encoder, and biases; hops and paths by a plain search."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from trajpred.nn import (
    BiasedEncoderLayer,
    GraphStructure,
    Layout,
    StructuralBias,
    TransformerMEncoder,
    shortest_paths,
)
from trajpred.nn.published.structural_bias import (
    UNREACHABLE,
    EdgeBias2D,
    GaussianDistanceKernel,
    ShortestPathBias,
    direct_edges,
    path_edges,
)
from trajpred.nn.published.transformer_m import probabilities
from trajpred.nn.segment import LOWEST

DIM = 8
HEADS = 2
#: Types of nodes and of edges, from 1.
TYPES = 4
SMALL: dict[str, Any] = {
    "num_atoms": TYPES,
    "num_in_degree": 6,
    "num_out_degree": 6,
    "num_edges": TYPES,
    "num_spatial": 8,
    "num_edge_dis": 5,
    "num_encoder_layers": 2,
    "embedding_dim": DIM,
    "ffn_embedding_dim": 12,
    "num_attention_heads": HEADS,
    "num_3d_bias_kernel": 6,
    "activation_fn": "gelu",
}
#: Those of the biases alone.
BIAS = {name: SMALL[name] for name in ("num_edges", "num_spatial", "num_edge_dis", "num_3d_bias_kernel")}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
MASK = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])


def randomise(module: nn.Module) -> Any:
    for parameter in module.parameters():  # values of 0, 1 or 0.02 would hide errors
        nn.init.normal_(parameter, std=0.5)
    return module.double()


def layer_of(norm: Any = "pre", **rates: float) -> BiasedEncoderLayer:
    options: dict[str, Any] = {"activation_fn": "gelu", "norm": norm} | NO_DROPOUT | rates
    return randomise(BiasedEncoderLayer(DIM, 12, HEADS, **options))


def encoder_of(**options: Any) -> TransformerMEncoder:
    return randomise(TransformerMEncoder(**(SMALL | NO_DROPOUT | options))).eval()


def batch_of(sizes: list[int], dim: int = 3) -> dict[str, Any]:
    mask, structure = random_graph(sizes)
    types = torch.randint(1, TYPES + 1, (*mask.shape, 2)) * mask[..., None]
    positions = torch.randn(*mask.shape, dim).double() * mask[..., None]
    return {"node_type": types, "mask": mask, "structure": structure, "positions": positions}


def cut(batch: dict[str, Any], b: int, nodes: Any) -> dict[str, Any]:
    """The ``nodes`` of graph b as a batch of its own."""
    structure = batch["structure"]
    part = GraphStructure(
        hops=structure.hops[b][nodes][:, nodes][None],
        edges=structure.edges[b][nodes][:, nodes][None],
        in_degree=structure.in_degree[b][nodes][None],
        out_degree=structure.out_degree[b][nodes][None],
    )
    rest = {name: batch[name][b, nodes][None] for name in ("node_type", "mask", "positions")}
    return rest | {"structure": part}


@pytest.mark.parametrize(
    "wrong",
    [
        {"edge_type": "both"},
        {"multi_hop_max_dist": 0},
        {"num_edge_dis": 5, "multi_hop_max_dist": 6},
        {"num_spatial": 2},
        {"mode": "4d"},
        {"norm": "none"},
        {"activation_fn": "swish"},
        {"max_spd": 0},
        {"mode_prob": "0.2,0.8"},
        {"mode_prob": "0.5,0.5,0.5"},
        {"mode_prob": (0.6, 0.6, -0.2)},
    ],
    ids=str,
)
def test_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong)))):
        TransformerMEncoder(**(SMALL | wrong))
    with pytest.raises(ValueError, match="direct"):
        EdgeBias2D(HEADS, TYPES, "single")(torch.zeros(1, 2, 2).long(), torch.zeros(1, 2, 2, 5, 1).long())
    assert probabilities("0.2,0.2,0.6") == probabilities([0.2, 0.2, 0.6]) == (0.2, 0.2, 0.6)


def test_scores_and_softmax_stay_in_float32_under_half_precision() -> None:
    layer = layer_of().float().eval()
    x = torch.randn(2, 5, DIM)
    bias = torch.full((2, HEADS, 5, 5), 1000.0)
    bias[..., 0] = 1001.0  # bfloat16 cannot represent 1001
    with torch.autocast("cpu", torch.bfloat16):
        half = layer(x, bias, MASK)
    assert_close(half, layer(x, bias, MASK), rtol=5e-2, atol=5e-2)
    assert layer.half()(x.half(), bias, MASK).isfinite().all()


@pytest.mark.parametrize("norm", ["pre", "post", "sandwich"])
def test_the_layer_never_attends_to_padding(norm: str) -> None:
    layer = layer_of(norm)
    bias = torch.randn(2, HEADS, 5, 5).double()
    x = torch.randn(2, 5, DIM).double().requires_grad_()
    assert_close(layer(x, bias, MASK)[1:, :3], layer(x[1:, :3], bias[1:, :, :3, :3]))
    assert_close(layer(x, None, MASK)[1:, :3], layer(x[1:, :3]))
    out = layer(x, bias, torch.zeros_like(MASK))
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert out.isfinite().all()
    assert gradient.isfinite().all()
    assert layer(x[:, :0], bias[..., :0, :0], MASK[:, :0]).shape == (2, 0, DIM)
    small = x[:1, :3].detach().requires_grad_()
    mask = torch.tensor([[True, True, False]])
    inputs = small, bias[:1, :, :3, :3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, b: layer(x, b, mask)[:, :2], inputs, fast_mode=True)


@pytest.mark.parametrize("rate", ["dropout", "droppath_prob", "attention_dropout", "activation_dropout"])
def test_dropout_applies_in_training_only(rate: str) -> None:
    layer = layer_of(**{rate: 0.5})
    x = torch.randn(2, 5, DIM).double()
    assert not torch.allclose(layer.train()(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))
    if rate in ("dropout", "droppath_prob"):  # of both residual branches
        assert_close(layer_of(**{rate: 0.999999}).train()(x), x)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize(
    "options", [{}, {"max_spd": 2, "norm": "sandwich", "encoder_normalize_before": True}]
)
def test_a_batch_equals_its_graphs_one_by_one(dim: int, options: dict[str, Any]) -> None:
    sizes = [5, 1, 3]
    encoder = encoder_of(**options)
    batch = batch_of(sizes, dim)
    out = encoder(**batch)
    assert out.shape == (3, 6, DIM)
    assert out.isfinite().all()
    for b, n in enumerate(sizes):
        assert_close(out[b, : n + 1], encoder(**cut(batch, b, slice(n)))[0])


def test_order_of_nodes_and_rigid_motion_do_not_matter() -> None:
    encoder = encoder_of()
    batch = batch_of([6])
    order = torch.randperm(6)
    expected = encoder(**batch)[:, torch.cat((torch.zeros(1).long(), order + 1))]
    assert_close(encoder(**cut(batch, 0, order)), expected)
    turn = torch.linalg.qr(torch.randn(3, 3).double()).Q
    assert_close(encoder(**(batch | {"positions": batch["positions"] @ turn + 10})), encoder(**batch))


def test_default_mask_features_and_pair_types() -> None:
    encoder = encoder_of()
    batch = batch_of([5, 3])
    expected = encoder(**batch)
    assert_close(encoder(**(batch | {"mask": None})), expected)
    types = batch["node_type"][..., 0]
    assert_close(encoder(types), encoder(types[..., None]))
    features = torch.randn(2, 5, DIM).double()
    states = [encoder(**batch, features=f, return_states=True) for f in (features, None)]
    assert_close(states[0][0][:, 1:], states[1][0][:, 1:] + features)
    assert len(states[0]) == 3
    ends = types[:, :, None].expand(-1, -1, 5), (types + TYPES + 1)[:, None].expand(-1, 5, -1)
    assert_close(encoder(**batch, pair_type=torch.stack(ends, -1)), expected)
    other_way = torch.stack(ends, -1).transpose(1, 2)
    assert not torch.allclose(encoder(**batch, pair_type=other_way), expected)


def test_training_draws_a_mode_for_every_graph() -> None:
    encoder = encoder_of(mode_prob=(0.5, 0.3, 0.2))
    single = batch_of([4])
    repeat = 2000
    many = {name: x.expand(repeat, *x.shape[1:]) for name, x in single.items() if name != "structure"}
    many["structure"] = GraphStructure(*(x.expand(repeat, *x.shape[1:]) for x in single["structure"]))
    drawn = encoder.train()(**many)[:, 0]
    encoder.eval()
    # In 3-D a graph has no path or degree terms, in 2-D no distances.
    modes = [encoder(**(single | hide))[:, 0] for hide in ({}, {"positions": None}, {"structure": None})]
    share = [(drawn - mode).abs().amax(-1).lt(1e-9).double().mean().item() for mode in modes]
    assert share == pytest.approx([0.5, 0.3, 0.2], abs=0.05)
    assert sum(share) == pytest.approx(1)


@pytest.mark.parametrize("sizes", [[1], [0, 2], []])
def test_isolated_nodes_in_one_place_and_empty_graphs(sizes: list[int]) -> None:
    padding = Layout.of_counts(sizes)
    B = len(sizes)
    n = max(sizes, default=0)
    mask = torch.arange(n) < torch.tensor(sizes)[:, None]
    isolated = GraphStructure.of(torch.zeros(2, 0).long(), torch.zeros(0, 1).long(), padding)
    assert isolated.hops.shape == (B, n, n)
    assert not isolated.edges.any()
    encoder = encoder_of(max_spd=3).train()
    positions = torch.zeros(B, n, 3).double().requires_grad_()
    out = encoder(mask.long(), mask, isolated, positions)
    out.sum().backward()
    assert out.shape == (B, n + 1, DIM)
    assert out.isfinite().all()
    gradients = [positions.grad, *(p.grad for p in encoder.parameters())]
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)


def test_far_hop_counts_share_a_row() -> None:
    bias = ShortestPathBias(HEADS, num_spatial=5)
    hops = torch.tensor([[[-1, 0, 1, 2, 3, 509, UNREACHABLE]]])
    assert_close(bias(hops)[0, :, 0].T, bias.table.weight[[0, 1, 2, 3, 3, 3, 4]])


@pytest.mark.parametrize("edge_type", ["multi_hop", "single"])
def test_pairs_without_edges_have_no_edge_bias_and_no_gradient(edge_type: Any) -> None:
    bias = EdgeBias2D(HEADS, TYPES, edge_type)
    _, structure = random_graph([5, 3], edge_type=edge_type)
    out = bias(structure.hops, structure.edges)
    none = (structure.edges == 0).all(-1).all(-1)
    assert none.any()
    assert not out.permute(0, 2, 3, 1)[none].any()
    assert out.any()
    out.square().sum().backward()
    assert not bias.table.weight.grad[0].any()
    assert bias.table.weight.grad[1:].any()


def test_max_spd_masks_far_pairs_but_never_the_token() -> None:
    mask, structure = random_graph([6])
    none = structure.hops < 0
    for max_spd, far in ((2, structure.hops >= 2), (None, none), (511, none)):
        hidden = StructuralBias(HEADS, **BIAS, max_spd=max_spd)(mask, structure) == LOWEST
        assert (hidden[..., 1:, 1:] == far[:, None]).all()
        assert not hidden[..., 0].any()
        assert not hidden[..., 0, :].any()
    assert StructuralBias(HEADS, **BIAS).half()(mask, structure).dtype == torch.float32


SIZES = [6, 1, 9, 4]


def search(edges: Tensor, start: int) -> dict[int, int]:
    """Hops from ``start`` to every reachable node."""
    hops_to = {start: 0}
    front = [start]
    while front:
        node = front.pop(0)
        for sender, receiver in edges.T.tolist():
            if sender == node and receiver not in hops_to:
                hops_to[receiver] = hops_to[node] + 1
                front.append(receiver)
    return hops_to


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 1.0])
def test_hops_and_paths_are_those_of_a_plain_search(share: float) -> None:
    edges = random_edges(SIZES, share)
    padding = Layout.of_counts(SIZES)
    hops, first = shortest_paths(edges, padding)
    path = path_edges(first, edges, padding, length=8)
    for i in range(sum(SIZES)):
        hops_to = search(edges, i)
        for place in range(padding.size):
            j = i - int(padding.within[i]) + place
            length = hops_to.get(j, UNREACHABLE)
            steps = [edges[:, e].tolist() for e in path[i, place].tolist() if e >= 0]
            assert hops[i, place] == length
            assert len(steps) == (0 if length == UNREACHABLE else length)
            assert [a for a, _ in steps] + [j] == [i] + [b for _, b in steps] or not steps


def test_paths_are_cut_off_and_far_nodes_unreachable() -> None:
    edges = torch.stack((torch.arange(5), torch.arange(1, 6)))
    padding = Layout.of_counts([6])
    assert path_edges(shortest_paths(edges, padding)[1], edges, padding, 2)[0, 5].tolist() == [0, 1]
    near = shortest_paths(edges, padding, max_hops=2)[0][0]
    assert near.tolist() == [0, 1, 2, UNREACHABLE, UNREACHABLE, UNREACHABLE]


def test_parallel_edges_self_loops_and_padding() -> None:
    edges = torch.tensor([[0, 0, 1, 0], [1, 1, 1, 1]])
    types = torch.arange(5, 9)
    padding = Layout.of_counts([2, 1])
    assert direct_edges(edges, padding)[:2].tolist() == [[-1, 3], [-1, 2]]
    many = GraphStructure.of(edges, types, padding)
    assert many.hops.tolist() == [[[0, 1], [UNREACHABLE, 0]], [[0, -1], [-1, -1]]]
    assert many.edges.shape == (2, 2, 2, 5, 1)
    assert many.edges[0, :, :, 0, 0].tolist() == [[0, 8], [0, 0]]
    assert many.out_degree.tolist() == [[1, 1], [0, -1]]
    assert many.in_degree.tolist() == [[0, 2], [0, -1]]
    single = GraphStructure.of(edges, types, padding, edge_type="single")
    assert single.edges[0, :, :, 0, 0].tolist() == [[0, 8], [0, 7]]
    wrong: Any = "two"
    with pytest.raises(ValueError, match="multi_hop"):
        GraphStructure.of(edges, types, padding, edge_type=wrong)


def random_edges(sizes: list[int], share: float = 0.2) -> Tensor:
    """Draw a share of all edges within graphs of these sizes, self loops among them, in any order."""
    graph = torch.repeat_interleave(torch.tensor(sizes))
    within = graph[:, None] == graph
    drawn = torch.rand(len(graph), len(graph)) < share
    edges = (within & drawn).nonzero().T
    return edges[:, torch.randperm(edges.shape[1])]


def random_graph(sizes: list[int], **options: Any) -> tuple[Tensor, GraphStructure]:
    """Return the mask of the nodes of graphs of these sizes, and their structure."""
    edges = random_edges(sizes, 0.3)
    types = torch.randint(1, TYPES + 1, (edges.shape[1], 2))
    mask = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
    padding = Layout.of_counts(sizes)
    return mask, GraphStructure.of(edges, types, padding, **options)


def test_gaussians_and_their_gradients_are_those_of_the_formula() -> None:
    kernel = GaussianDistanceKernel(K=5, edge_types=4).double()
    nn.init.normal_(kernel.scale)
    nn.init.normal_(kernel.offset)
    distance = 3 * torch.rand(2, 6, 6).double()
    types = torch.randint(4, (2, 6))
    pairs = torch.stack(torch.broadcast_tensors(types[:, :, None], types[:, None]), -1)
    scaled = kernel.scale[pairs].sum(-1) * distance + kernel.offset[pairs].sum(-1)
    std = kernel.std.abs() + 0.01
    deviation = (scaled[..., None] - kernel.mean) / std
    expected = torch.exp(-(deviation**2) / 2) / (math.sqrt(2 * 3.14159) * std)
    cotangent = torch.randn(2, 6, 6, 5).double()
    gradients = torch.autograd.grad(expected, tuple(kernel.parameters()), cotangent)
    for pair_type in (pairs, (types[:, :, None], types[:, None])):
        out = kernel(distance, pair_type)
        assert_close(out, expected)
        assert_close(torch.autograd.grad(out, tuple(kernel.parameters()), cotangent), gradients)
