"""Transformer-M: shortest paths, biases, distances, the layer and the encoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.nn.parity.case import Case
from trajpred.nn import Layout
from trajpred.nn.published.padded_attention import BiasedEncoderLayer
from trajpred.nn.published.structural_bias import (
    UNREACHABLE,
    GaussianDistanceKernel,
    GraphStructure,
    Mode,
    StructuralBias,
    pair_distances,
)
from trajpred.nn.published.transformer_m import NodeEncoding, TransformerMEncoder
from trajpred.nn.segment import LOWEST


def load_kernel(kernel: GaussianDistanceKernel, case: Case, prefix: str = "") -> None:
    case.load(kernel.mean, f"{prefix}mean")
    case.load(kernel.std, f"{prefix}std_raw")
    case.load(kernel.scale, "gamma_table")
    case.load(kernel.offset, "beta_table")


def check_gaussian_distance_kernel(case: Case) -> None:
    case.options.ignore("B", "n")
    for name, dtype in (("out", torch.float32), ("out_float64", torch.float64)):
        kernel = GaussianDistanceKernel(case.options["K"], case.options["edge_types"])
        load_kernel(kernel, case)
        out = kernel.to(dtype)(case["dist"].to(dtype), case["pair_type"])
        assert out.dtype == dtype
        case.close(out, name)


def load_layer(layer: BiasedEncoderLayer, case: Case, prefix: str = "") -> None:
    attention = layer.block.attention.attention
    feed_forward = layer.block.feed_forward
    for name in ("query", "key", "value", "out"):
        case.load_linear(getattr(attention, name), name, prefix)
    case.load_linear(feed_forward[0], "ff_1", prefix)
    case.load_linear(feed_forward[3], "ff_2", prefix)
    sandwich = len(layer.block.attention.after) > 1
    norms = {"ln1": layer.block.norm1, "ln2": layer.block.norm2}
    norms["ln1_post"] = layer.block.attention.after[-1] if sandwich else None
    norms["ln2_post"] = feed_forward[-1] if sandwich else None
    for name, norm in norms.items():
        case.load_norm(norm, f"{prefix}{name}")


def check_biased_encoder_layer(case: Case) -> None:
    options = case.options
    sizes = options["dim"], options["ffn_dim"], options["num_heads"]
    norm = options["norm"]
    activation = options["activation"]
    mask = ~case["padding_mask"]
    assert mask.sum(1).tolist() == options["sizes"]
    with_bias = options["with_bias"]
    for name, dtype in (("out", torch.float32), ("out_float64", torch.float64)):
        layer = BiasedEncoderLayer(*sizes, norm=norm, activation_fn=activation)
        load_layer(layer, case)
        bias = case["attn_bias"].to(dtype) if with_bias else None
        assert with_bias or "attn_bias" not in case or (case["attn_bias"] == 0).all()
        out = layer.eval().to(dtype)(case["x"].to(dtype), bias, mask)
        assert out.isfinite().all()
        assert out.dtype == dtype
        case.close(out, name, mask)


def check_shortest_path(case: Case) -> None:
    n = case.options["num_nodes"]
    assert case.options["unreachable_value"] == UNREACHABLE
    case.options.ignore("isolated")
    edges = case["edge_index"]
    dense = case["edge_type_dense"]
    spd = case["spd"]
    # The publication gives each column of edge types its own range of rows and counts them from 2.
    types = case["edge_attr"] + 2 + 512 * torch.arange(case["edge_attr"].shape[1])
    padding = Layout.of_counts([n])
    reference = case["path_edge_input"]
    longest = max(reference.shape[2], int(spd[spd < UNREACHABLE].max()))

    structure = GraphStructure.of(edges, types, padding, multi_hop_max_dist=longest)
    case.close(structure.hops[0], "spd")
    case.close(structure.out_degree[0], "degree")
    case.close(structure.in_degree[0], "degree")
    case.close(
        GraphStructure.of(edges, types, padding, edge_type="single").edges[0, :, :, 0], "edge_type_dense"
    )

    # Where there is one shortest path only, it is the publication's. Its recursion takes node 0 in the
    # middle of a path for the end of it and then finds no edge (type 0): those paths are not comparable.
    same = (_path_counts(dense, spd) == 1) & (reference != 0).all(-1).all(-1)
    assert (structure.edges[0, :, :, : reference.shape[2]][same] == reference[same].clamp(min=0)).all()


def _path_counts(dense: Tensor, spd: Tensor) -> Tensor:
    """Number of shortest paths: walks of ``spd`` steps."""
    adjacency = (dense > 0).any(-1).double()
    counts = torch.zeros_like(adjacency)
    walks = torch.eye(len(spd), dtype=torch.double)
    for hop in range(len(spd)):
        counts = torch.where(spd == hop, walks, counts)
        walks = walks @ adjacency
    return counts


def check_structural_bias(case: Case) -> None:
    options = case.options
    heads = options["num_heads"]
    K = options["K"]
    edge_type = options["edge_type"]
    cut = options["multi_hop_max_dist"]
    max_spd = options["spatial_pos_max"]
    dim = options["embed_dim"]
    options.ignore("isolated")
    assert case["num_nodes"].tolist() == options["sizes"]
    mask = ~case["padding_mask"]
    structure = structure_of(case, edge_type)
    _check_raw_graphs(case, structure)

    bias = structural_bias(case, heads, K, cut, max_spd, "2d+3d", edge_type)
    flat = bias(mask, structure)
    hidden = flat == LOWEST
    assert (hidden == (case["base_attn_bias"] < 0)[:, None]).all()
    case.close(flat.masked_fill(hidden, -torch.inf), "out_attn_bias_2d")

    kernel = GaussianDistanceKernel(K, len(case["gamma_table"]))
    load_kernel(kernel, case, "kernel_")
    gaussians = kernel(pair_distances(case["pos"]), case["pair_type"])
    assert bias.distance is not None
    space = bias.distance(gaussians).masked_fill(~mask[:, None, None], -torch.inf)
    case_rows = mask[:, None].expand(-1, heads, -1)
    case.close(space, "out_attn_bias_3d", case_rows)
    both = flat[..., 1:, 1:] + space
    out = bias(mask, structure, gaussians)[..., 1:, 1:]
    torch.testing.assert_close(*(x.masked_fill(x <= LOWEST, -torch.inf) for x in (out, both)))

    degrees = len(case["in_degree_table"]), len(case["out_degree_table"])
    nodes = NodeEncoding(len(case["node_table"]) - 1, *degrees, dim, K)
    load_nodes(nodes, case)
    case.close(nodes.summed_distance(gaussians, mask), "out_sum3d")
    case.close(nodes(case["node_index"], mask, structure), "out_node_features")


def structure_of(case: Case, edge_type: str) -> GraphStructure:
    """The inputs of the case in our form: unreachable pairs 510, padding -1."""
    assert (case["spd_index"] <= UNREACHABLE + 1).all()
    edges = case["path_edge_index"] if edge_type == "multi_hop" else case["direct_edge_index"][:, :, :, None]
    degree = case["degree_index"] - 1
    return GraphStructure(case["spd_index"] - 1, edges, degree, degree)


def structural_bias(
    case: Case, heads: int, K: int, cut: int, max_spd: int, mode: Mode, edge_type: str = "multi_hop"
) -> StructuralBias:
    bias = StructuralBias(
        heads,
        num_edges=len(case["edge_table"]) - 1,
        num_edge_dis=num_edge_dis(case, cut),
        edge_type=edge_type,  # type: ignore[arg-type]
        multi_hop_max_dist=cut,
        num_3d_bias_kernel=K,
        mode=mode,
        max_spd=max_spd,
    )
    load_bias(bias, case)
    return bias


def load_bias(bias: StructuralBias, case: Case) -> None:
    case.load(bias.graph_token, "graph_token_bias")
    if bias.path is not None and bias.edge is not None:
        rows = case["spd_table"]  # the first rows of the published table; its last row is apart
        with torch.no_grad():
            bias.path.table.weight[: len(rows)] = rows
            bias.path.table.weight[-1] = case["spd_table_unreachable"]
        case.load(bias.edge.table.weight, "edge_table")
        hop = None if bias.edge.hop is None else bias.edge.hop[: len(case["path_hop_table"])]
        case.load(hop, "path_hop_table")
    if bias.distance is not None:
        linear = [layer for layer in bias.distance.net if isinstance(layer, nn.Linear)]
        assert len(linear) == 2
        case.load_linear(linear[0], "dist_1")
        case.load_linear(linear[1], "dist_2")


def num_edge_dis(case: Case, cut: int) -> int:
    """Matrices to make; the case may have fewer than the cut-off if its paths are shorter."""
    return max(cut, len(case["path_hop_table"])) if "path_hop_table" in case else cut


def load_nodes(nodes: NodeEncoding, case: Case) -> None:
    case.load(nodes.kind.weight, "node_table")
    case.load(nodes.graph_token, "graph_token")
    if nodes.in_degree is not None and nodes.out_degree is not None:
        case.load(nodes.in_degree.weight, "in_degree_table")
        case.load(nodes.out_degree.weight, "out_degree_table")
    if nodes.distance is not None:
        case.load_linear(nodes.distance, "sum3d")


def _check_raw_graphs(case: Case, expected: GraphStructure) -> None:
    """Hop counts and degrees of the whole batch from its raw graphs, where they are given."""
    sizes = case["num_nodes"]
    n = case["padding_mask"].shape[1]
    if "graph0_edge_index" not in case:
        return
    pointer = torch.cat((torch.zeros(1, dtype=torch.long), sizes.cumsum(0)))
    padding = Layout.of_counts(sizes.tolist())
    assert padding.size == n
    edges = torch.cat([case[f"graph{b}_edge_index"] + pointer[b] for b in range(len(sizes))], 1)
    out = GraphStructure.of(edges, torch.ones_like(edges[0]), padding)
    for name in ("hops", "in_degree", "out_degree"):
        assert (getattr(out, name) == getattr(expected, name)).all(), name


def check_transformer_m_encoder(case: Case) -> None:
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
