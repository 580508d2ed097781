from __future__ import annotations

from typing import Any

from torch import nn
from torch_geometric.nn import GATConv

from tests.nn.parity.case import Case

NAMES = "heads concat negative_slope add_self_loops edge_dim fill_value bias residual"


def check(case: Case) -> None:
    conv = GATConv(**arguments(case))
    load(conv, case)
    compare(conv, case)


def arguments(case: Case) -> dict[str, Any]:
    """Those that both of PyG's classes have, under the names of the options."""
    case.options.ignore("graph", "sizes", "self_loops_in_input")
    named = {name: case.options[name] for name in NAMES.split()}
    channels = case.options["in_dim"]
    if case.options["bipartite"]:
        channels = (case["x"].shape[1], case["x_target"].shape[1])
    return {"in_channels": channels, "out_channels": case.options["out_dim"], **named}


def load(conv: GATConv, case: Case, prefix: str = "") -> None:
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
