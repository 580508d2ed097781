from __future__ import annotations

import torch

from tests.nn.parity.biased_encoder_layer import load_layer
from tests.nn.parity.case import Case
from tests.nn.parity.gaussian_distance_kernel import load_kernel
from tests.nn.parity.structural_bias import load_bias, load_nodes, num_edge_dis, structure_of
from trajpred.nn.published.transformer_m import TransformerMEncoder
from trajpred.nn.segment import LOWEST


def check(case: Case) -> None:
    mask = ~case["padding_mask"]
    structure = structure_of(case, "multi_hop")
    assert mask.sum(1).tolist() == case.options["sizes"] == case["num_nodes"].tolist()
    case.options.ignore("isolated")
    inputs = {"pair_type": case.get("pair_type"), "return_states": True}
    for share in (True, False):  # with equal weights in every layer it must not matter
        encoder = encoder_of(case, share)
        hidden = encoder.biases[0](mask, structure) <= LOWEST
        assert (hidden == (case["base_attn_bias"] < 0)[:, None]).all()
        states = encoder(case["node_index"], mask, structure, case["pos"], **inputs)
        rows = ~case["padding_mask_with_token"]
        assert len(states) == len(case.names("state_"))
        for k, state in enumerate(states):
            assert state.isfinite().all()
            case.close(state, f"state_{k}", rows)
    if case.options["mode"] == "2d+3d":
        _check_one_input_path(case)


def _check_one_input_path(case: Case) -> None:
    """Without positions, or without a graph, the weights for both are those for one."""
    mask = ~case["padding_mask"]
    both = encoder_of(case, True)
    structure = structure_of(case, "multi_hop")
    last = {"pair_type": case["pair_type"]}
    alone = {mode: encoder_of(case, True, mode) for mode in ("2d", "3d")}
    torch.testing.assert_close(
        both(case["node_index"], mask, structure), alone["2d"](case["node_index"], mask, structure)
    )
    space = (case["node_index"], mask, None, case["pos"])
    torch.testing.assert_close(both(*space, **last), alone["3d"](*space, **last))


def encoder_of(case: Case, share: bool, mode: str | None = None) -> TransformerMEncoder:
    options = case.options
    pair_types = len(case["gamma_table"]) if "gamma_table" in case else None
    encoder = TransformerMEncoder(
        num_atoms=len(case["node_table"]) - 1,
        num_in_degree=len(case["in_degree_table"]),
        num_out_degree=len(case["out_degree_table"]),
        num_edges=len(case["edge_table"]) - 1,
        num_edge_dis=num_edge_dis(case, options["multi_hop_max_dist"]),
        multi_hop_max_dist=options["multi_hop_max_dist"],
        num_encoder_layers=options["num_layers"],
        embedding_dim=options["dim"],
        ffn_embedding_dim=options["ffn_dim"],
        num_attention_heads=options["num_heads"],
        encoder_normalize_before=options["encoder_normalize_before"],
        activation_fn="gelu",
        num_3d_bias_kernel=options["K"],
        num_pair_types=pair_types,
        mode=mode or options["mode"],
        norm="sandwich" if options["sandwich"] else "post",
        max_spd=options["spatial_pos_max"],
        share_bias_across_layers=share,
    ).eval()
    load_nodes(encoder.nodes, case)
    if encoder.kernel is not None:
        load_kernel(encoder.kernel, case, "kernel_")
    for bias in encoder.biases:
        load_bias(bias, case)
    case.load_norm(encoder.norm, "ln_in")
    for i, layer in enumerate(encoder.layers):
        load_layer(layer, case, f"layer{i}_")
    return encoder
