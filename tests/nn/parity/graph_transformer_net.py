"""``GraphTransformerNet`` against the vectors of graphdeeplearning/graphtransformer."""

from __future__ import annotations

import torch
from torch import nn

from tests.nn.parity.case import Case
from tests.nn.parity.graph_transformer_layer import load_attention, load_update
from trajpred.nn.published.graph_transformer import GraphTransformerNet


def check(case: Case) -> None:
    assert not case.options["wl_pos_enc"], "only the Laplacian positional encoding is built"
    options = {name: case.options[name] for name in case.options if name != "wl_pos_enc"}
    net = GraphTransformerNet(**options).double().eval()
    load(case, net)
    inputs = case["node_type"], case["edge_index"], case["edge_type"], case["batch"]
    # Without lap_pos_enc the network does not look at it.
    case.close(net.encode(*inputs, pos_enc=case.get("pos_enc")), "node_out")
    case.close(net(*inputs, pos_enc=case.get("pos_enc")), "out")


def load(case: Case, net: GraphTransformerNet) -> None:
    case.load(net.node_in.weight, "emb_node")
    if isinstance(net.edge_in, nn.Embedding):
        case.load(net.edge_in.weight, "emb_edge")
    else:
        case.load_linear(net.edge_in, "edge_in")
    if net.position_in is not None:
        case.load_linear(net.position_in, "pe")
    for i, layer in enumerate(net.layers):
        load_attention(case, layer.attention, f"layer{i}_")
        load_update(case, layer.nodes, "node", f"layer{i}_")
        if layer.edges is not None:  # the last layer does not update them
            load_update(case, layer.edges, "edge", f"layer{i}_")
    linears = [module for module in net.mlp if isinstance(module, nn.Linear)]
    assert len(linears) == len(case.names("W_readout_"))
    for i, linear in enumerate(linears):
        case.load_linear(linear, f"readout_{i}")
    assert all(p.dtype == torch.float64 for p in net.parameters())
