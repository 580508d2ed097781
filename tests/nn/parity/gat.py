"""GAT and GATv2 of PyG, and the article's stack of them."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch_geometric.nn import GATConv, GATv2Conv

from tests.nn.parity.case import Case
from trajpred.nn.published.gat import GATEncoder, GATLayer

NAMES = "heads concat negative_slope add_self_loops edge_dim fill_value bias residual"


def check_gat_conv(case: Case) -> None:
    conv = GATConv(**arguments(case))
    load_gat(conv, case)
    compare(conv, case)


def arguments(case: Case) -> dict[str, Any]:
    """Those that both of PyG's classes have, under the names of the options."""
    case.options.ignore("graph", "sizes", "self_loops_in_input")
    named = {name: case.options[name] for name in NAMES.split()}
    channels = case.options["in_dim"]
    if case.options["bipartite"]:
        channels = (case["x"].shape[1], case["x_target"].shape[1])
    return {"in_channels": channels, "out_channels": case.options["out_dim"], **named}


def load_gat(conv: GATConv, case: Case, prefix: str = "") -> None:
    conv.double()
    for linear, name in ((conv.lin, "shared"), (conv.lin_src, "source"), (conv.lin_dst, "target")):
        case.load(None if linear is None else linear.weight, f"{prefix}W_{name}")
    case.load(conv.att_src[0], f"{prefix}att_source")
    case.load(conv.att_dst[0], f"{prefix}att_target")
    case.load(None if conv.att_edge is None else conv.att_edge[0], f"{prefix}att_edge")
    load_rest(conv, case, prefix)


def load_rest(conv: nn.Module, case: Case, prefix: str) -> None:
    """What GAT and GATv2 have in common."""
    case.load(conv.lin_edge and conv.lin_edge.weight, f"{prefix}W_edge")
    case.load(conv.res and conv.res.weight, f"{prefix}W_residual")
    case.load(conv.bias, f"{prefix}b_out")


def compare(conv: nn.Module, case: Case) -> None:
    x = (case["x"], case["x_target"]) if case.options["bipartite"] else case["x"]
    edge_attr = case["edge_attr"] if case.options["edge_dim"] else None
    out, (edges, attention) = conv(x, case["edge_index"], edge_attr, return_attention_weights=True)
    case.close(out, "out")
    case.close(edges, "attention_edge_index")
    case.close(attention, "attention")


def check_gatv2_conv(case: Case) -> None:
    conv = GATv2Conv(**arguments(case), share_weights=case.options["share_weights"])
    load_gatv2(conv, case)
    compare(conv, case)


def load_gatv2(conv: GATv2Conv, case: Case, prefix: str = "") -> None:
    conv.double()
    case.load_linear(conv.lin_l, "source", prefix)
    case.load_linear(conv.lin_r, "target", prefix)
    case.load(conv.att[0], f"{prefix}att")
    load_rest(conv, case, prefix)


def check_gat_transformer_layer(case: Case) -> None:
    options = case.options
    options.ignore("graphs")
    encoder = GATEncoder(
        options["encoder_size"],
        options["heads"],
        options["num_layers"],
        conv=options["conv"],
        leaky_slope=options["leaky_slope"],
        repeat_input=options["repeat_input"],
    ).double()
    for number, layer in enumerate(encoder.layers):
        load_layer(layer, case, f"layer{number}_")
        layer.norm1.eps = layer.norm2.eps = options["layer_norm_eps"]
    case.load_linear(encoder.out[0], "fc")

    x = case["x"]
    edge_index = case["edge_index"]
    target = case["target_index"]
    case.close(encoder.encode(x, edge_index)[0], "out_nodes")
    case.close(encoder(x, edge_index, target), "out_target")
    x = x.repeat(1, encoder.repeats)
    for number, layer in enumerate(encoder.layers):
        x, _ = layer(x, edge_index)
        case.close(x, f"layer{number}_out")


def load_layer(layer: GATLayer, case: Case, prefix: str) -> None:
    load = load_gat if case.options["conv"] == "gat" else load_gatv2
    load(layer.conv, case, prefix)
    case.load_linear(layer.feed_forward[0], "ff_1", prefix)
    case.load_linear(layer.feed_forward[-1], "ff_2", prefix)
    case.load_norm(layer.norm1, f"{prefix}ln1")
    case.load_norm(layer.norm2, f"{prefix}ln2")
