from __future__ import annotations

import torch
from torch import nn

from tests.nn.parity.case import Case
from tests.nn.parity.gaussian_distance_kernel import load_kernel
from trajpred.nn import Layout
from trajpred.nn.published.structural_bias import (
    UNREACHABLE,
    GaussianDistanceKernel,
    GraphStructure,
    Mode,
    StructuralBias,
    pair_distances,
)
from trajpred.nn.published.transformer_m import NodeEncoding
from trajpred.nn.segment import LOWEST


def check(case: Case) -> None:
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
