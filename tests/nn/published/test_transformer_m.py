"""The whole encoder: inputs at hand, batches, sharing, modes, gradients, export."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.nn.published.test_structural_bias import graph
from trajpred.nn.published import transformer_m
from trajpred.nn.published.graph_structure import GraphStructure
from trajpred.nn.published.structural_bias import NodeEncoding
from trajpred.nn.published.transformer_m import TransformerMEncoder, probabilities

DIM, TYPES = 8, 3
SMALL: dict[str, Any] = {
    "num_atoms": TYPES,
    "num_in_degree": 6,
    "num_out_degree": 6,
    "num_edges": 4,
    "num_spatial": 8,
    "num_edge_dis": 5,
    "num_encoder_layers": 2,
    "embedding_dim": DIM,
    "ffn_embedding_dim": 12,
    "num_attention_heads": 2,
    "num_3d_bias_kernel": 6,
    "activation_fn": "gelu",
}


def encoder_of(**options: Any) -> TransformerMEncoder:
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    encoder = TransformerMEncoder(**(SMALL | rates | options))
    for parameter in encoder.parameters():  # what starts as 0, 1 or 0.02 would hide much
        nn.init.normal_(parameter, std=0.5)
    return encoder.double().eval()


def batch_of(sizes: list[int], dim: int = 3) -> dict[str, Any]:
    mask, structure = graph(sizes)
    kind = torch.randint(1, TYPES + 1, (*mask.shape, 2)) * mask[..., None]
    positions = torch.randn(*mask.shape, dim).double() * mask[..., None]
    return {"node_type": kind, "mask": mask, "structure": structure, "positions": positions}


def cut(batch: dict[str, Any], b: int, nodes: Any) -> dict[str, Any]:
    """The ``nodes`` of graph b as a batch of its own."""
    hops, edges, *degrees = (x[b] for x in batch["structure"])
    pairs = hops[nodes][:, nodes][None], edges[nodes][:, nodes][None]
    own = GraphStructure(*pairs, *(degree[nodes][None] for degree in degrees))
    rest = {name: batch[name][b, nodes][None] for name in ("node_type", "mask", "positions")}
    return rest | {"structure": own}


def test_doctests() -> None:
    assert doctest.testmod(transformer_m).failed == 0


def test_names_and_defaults_are_the_publication_s() -> None:
    defaults = {name: p.default for name, p in inspect.signature(TransformerMEncoder).parameters.items()}
    assert defaults == {
        "num_atoms": 4608,
        "num_in_degree": 512,
        "num_out_degree": 512,
        "num_edges": 1536,
        "num_spatial": 512,
        "num_edge_dis": 128,
        "edge_type": "multi_hop",
        "multi_hop_max_dist": 5,
        "num_encoder_layers": 6,
        "embedding_dim": 768,
        "ffn_embedding_dim": 3072,
        "num_attention_heads": 8,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "encoder_normalize_before": False,
        "activation_fn": "relu",
        "droppath_prob": 0.0,
        "num_3d_bias_kernel": 128,
        "mode_prob": "0.2,0.2,0.6",
        "mode": "2d+3d",
        "norm": "pre",
        "max_spd": None,
        "share_bias_across_layers": True,
        "num_pair_types": None,
    }


@pytest.mark.parametrize("wrong", ["0.2,0.8", "0.5,0.5,0.5", (0.6, 0.6, -0.2), "a,b,c"])
def test_mode_probabilities_must_be_three(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"mode_prob|float"):
        TransformerMEncoder(**SMALL, mode_prob=wrong)
    assert probabilities("0.2,0.2,0.6") == probabilities([0.2, 0.2, 0.6]) == (0.2, 0.2, 0.6)


@pytest.mark.parametrize(
    "wrong", [{"mode": "4d"}, {"norm": "none"}, {"activation_fn": "swish"}, {"max_spd": 0}]
)
def test_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong)))):
        TransformerMEncoder(**(SMALL | wrong))


@pytest.mark.parametrize("num_kernel", [6, DIM])  # the publication fails where it equals embedding_dim
def test_node_encoding_formula(num_kernel: int) -> None:
    nodes = NodeEncoding(TYPES, 6, 6, DIM, num_kernel)
    batch = batch_of([4, 2])
    structure, mask, kind = batch["structure"], batch["mask"], batch["node_type"]
    psi = torch.rand(2, 4, 4, num_kernel)
    out = nodes(kind, mask, structure, psi)
    assert nodes.in_degree is not None and nodes.out_degree is not None and nodes.distance is not None
    for b, i in mask.nonzero().tolist():
        total = psi[b, i, mask[b]].sum(0) @ nodes.distance.weight.T + nodes.distance.bias
        expected = nodes.kind.weight[kind[b, i]].sum(0) + 0.01 * total
        expected = expected + nodes.in_degree.weight[structure.in_degree[b, i] + 1]
        expected = expected + nodes.out_degree.weight[structure.out_degree[b, i] + 1]
        torch.testing.assert_close(out[b, i + 1], expected)
    torch.testing.assert_close(out[:, 0], nodes.graph_token.expand(2, -1))


def test_high_degrees_share_the_last_row() -> None:
    nodes, batch = NodeEncoding(TYPES, 3, 3, DIM, mode="2d"), batch_of([4])
    high = batch["structure"]._replace(in_degree=torch.full((1, 4), 99), out_degree=torch.full((1, 4), 99))
    last = high._replace(in_degree=torch.full((1, 4), 1), out_degree=torch.full((1, 4), 1))
    found = (nodes(batch["node_type"], batch["mask"], structure) for structure in (high, last))
    torch.testing.assert_close(*found)


def test_untrained_padding_rows_are_zero() -> None:
    nodes = NodeEncoding(TYPES, 6, 6, DIM)
    for rows in (nodes.kind, nodes.in_degree, nodes.out_degree):
        assert rows is not None and not rows.weight[0].any() and rows.weight[1:].all()


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize(
    "options", [{}, {"max_spd": 2}, {"norm": "sandwich", "encoder_normalize_before": True}]
)
def test_a_batch_is_its_graphs_one_by_one(dim: int, options: dict[str, Any]) -> None:
    sizes = [5, 1, 3]
    encoder, batch = encoder_of(**options), batch_of(sizes, dim)
    out = encoder(**batch)
    assert out.shape == (3, 6, DIM) and out.isfinite().all()
    for b, n in enumerate(sizes):
        torch.testing.assert_close(out[b, : n + 1], encoder(**cut(batch, b, slice(n)))[0])


def test_permuting_the_nodes_permutes_the_output() -> None:
    encoder, batch, order = encoder_of(), batch_of([6]), torch.randperm(6)
    expected = encoder(**batch)[:, torch.cat((torch.zeros(1).long(), order + 1))]
    torch.testing.assert_close(encoder(**cut(batch, 0, order)), expected)


def test_distances_only_matter() -> None:
    encoder, batch = encoder_of(), batch_of([5, 3])
    turn = torch.linalg.qr(torch.randn(3, 3).double()).Q
    moved = batch | {"positions": batch["positions"] @ turn + 10}
    torch.testing.assert_close(encoder(**moved), encoder(**batch))


@pytest.mark.parametrize("absent", ["structure", "positions"])
def test_one_description_alone(absent: str) -> None:
    """What is not given is as if it had not been built."""
    both, batch = encoder_of(), batch_of([5, 3]) | {absent: None}
    alone = encoder_of(mode="3d" if absent == "structure" else "2d")
    missing, extra = alone.load_state_dict(both.state_dict(), strict=False)
    assert not missing and extra
    torch.testing.assert_close(both(**batch), alone(**batch))
    torch.testing.assert_close(both.train()(**batch), alone(**batch))  # and no mode is drawn


def test_types_tell_padding_and_features_are_added() -> None:
    encoder, batch = encoder_of(), batch_of([5, 3])
    torch.testing.assert_close(encoder(**(batch | {"mask": None})), encoder(**batch))
    one = batch["node_type"][..., 0]
    torch.testing.assert_close(encoder(one), encoder(one[..., None]))
    features = torch.randn(2, 5, DIM).double()
    states = encoder(**batch, features=features, return_states=True)
    torch.testing.assert_close(states[0][:, 1:], encoder(**batch, return_states=True)[0][:, 1:] + features)
    assert len(states) == 3


def test_pair_types_tell_the_two_ends_apart() -> None:
    encoder, batch = encoder_of(), batch_of([5, 3])
    kind = batch["node_type"][..., 0]
    ends = kind[:, :, None].expand(-1, -1, 5), (kind + TYPES + 1)[:, None].expand(-1, 5, -1)
    torch.testing.assert_close(encoder(**batch, pair_type=torch.stack(ends, -1)), encoder(**batch))
    other_way = torch.stack(ends, -1).transpose(1, 2)
    assert not torch.allclose(encoder(**batch, pair_type=other_way), encoder(**batch))


def test_every_layer_its_own_bias() -> None:
    shared, own, batch = encoder_of(), encoder_of(share_bias_across_layers=False), batch_of([5, 3])
    assert len(shared.biases) == 1 and len(own.biases) == 2
    own.load_state_dict(
        shared.state_dict() | {k.replace("biases.0", "biases.1"): v for k, v in shared.state_dict().items()}
    )
    torch.testing.assert_close(own(**batch), shared(**batch))
    states = own(**batch, return_states=True)
    nn.init.normal_(own.biases[1].path.table.weight)
    changed = own(**batch, return_states=True)
    torch.testing.assert_close(changed[1], states[1])
    assert not torch.allclose(changed[2], states[2])


def test_training_draws_a_mode_for_every_graph() -> None:
    encoder = encoder_of(mode_prob=(0.5, 0.3, 0.2))
    one = batch_of([4])
    repeat = 2000
    many = {name: x.expand(repeat, *x.shape[1:]) for name, x in one.items() if name != "structure"}
    many["structure"] = GraphStructure(*(x.expand(repeat, *x.shape[1:]) for x in one["structure"]))
    drawn = encoder.train()(**many)[:, 0]
    encoder.eval()
    # A graph shown in 3-D only has no path or degree terms; in 2-D only, no distances.
    modes = [encoder(**(one | hide))[:, 0] for hide in ({}, {"positions": None}, {"structure": None})]
    share = [(drawn - mode).abs().amax(-1).lt(1e-9).double().mean().item() for mode in modes]
    assert share == pytest.approx([0.5, 0.3, 0.2], abs=0.05) and sum(share) == pytest.approx(1)


@pytest.mark.parametrize("mode", ["2d", "3d", "2d+3d"])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("edge_type", ["multi_hop", "single"])
def test_every_parameter_learns(mode: str, share: bool, edge_type: str) -> None:
    encoder = encoder_of(mode=mode, share_bias_across_layers=share, edge_type=edge_type)
    batch = batch_of([5, 3])
    if edge_type == "single":
        batch["structure"] = batch["structure"]._replace(edges=batch["structure"].edges[..., :1, :])
    encoder(**batch).square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or name.endswith("key.bias"), name


@pytest.mark.parametrize("sizes", [[1], [0, 2]])
def test_lonely_nodes_and_empty_graphs(sizes: list[int]) -> None:
    n = max(sizes)
    mask = torch.arange(n) < torch.tensor(sizes)[:, None]
    lonely = GraphStructure(
        torch.where(torch.eye(n).bool(), 0, 510).expand(len(sizes), n, n),
        torch.zeros(len(sizes), n, n, 0, 1).long(),
        torch.zeros(len(sizes), n).long(),
        torch.zeros(len(sizes), n).long(),
    )
    encoder = encoder_of(max_spd=3)
    positions = torch.zeros(len(sizes), n, 3).double().requires_grad_()  # all in one place
    out = encoder(mask.long(), mask, lonely, positions)
    out.sum().backward()
    assert out.isfinite().all() and positions.grad is not None and positions.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in encoder.parameters() if p.grad is not None)


def test_no_graph_at_all() -> None:
    encoder, batch = encoder_of().train(), batch_of([3])
    none = {name: batch[name][:0] for name in ("node_type", "mask", "positions")}
    nothing = encoder(**none, structure=GraphStructure(*(x[:0] for x in batch["structure"])))
    assert nothing.shape == (0, 4, DIM)
    nothing.sum().backward()


def test_gradients() -> None:
    encoder, batch = encoder_of(norm="sandwich"), batch_of([3, 2])

    def run(positions: Tensor) -> Tensor:
        return encoder(**(batch | {"positions": positions}))[:, :3]

    positions = torch.randn(2, 3, 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(run, positions)


def test_the_same_seed_makes_the_same_weights() -> None:
    made = []
    for _ in range(2):
        torch.manual_seed(3)
        made.append(TransformerMEncoder(**SMALL).state_dict())
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])


def test_it_trains_in_half_precision() -> None:
    encoder, batch = encoder_of().float().train(), batch_of([5, 3])
    batch["positions"] = batch["positions"].float()
    with torch.autocast("cpu", torch.bfloat16):
        encoder(**batch).float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


def test_the_encoder_exports() -> None:
    encoder, batch = encoder_of(), batch_of([5, 3])
    inputs = batch["node_type"], batch["mask"], batch["structure"], batch["positions"]
    exported = torch.export.export(encoder, inputs).module()
    torch.testing.assert_close(exported(*inputs), encoder(*inputs))
