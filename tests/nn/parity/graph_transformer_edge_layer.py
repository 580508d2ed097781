"""``DwivediGraphTransformerEdgeLayer`` against the vectors of graphdeeplearning/graphtransformer."""

from __future__ import annotations

from tests.nn.parity.case import Case
from tests.nn.parity.graph_transformer_layer import (
    check_statistics,
    layer_options,
    load_attention,
    load_update,
)
from trajpred.nn.published.graph_transformer import DwivediGraphTransformerEdgeLayer


def check(case: Case) -> None:
    layer = DwivediGraphTransformerEdgeLayer(**layer_options(case)).double()
    assert layer.edges is not None
    load_attention(case, layer.attention)
    load_update(case, layer.nodes, "node")
    load_update(case, layer.edges, "edge")
    layer.train(case.options["training"])
    inputs = case["x"], case["edge_index"], case["edge_attr"]

    attended, score, attention = layer.attention(*inputs)
    case.close(attended, "attn_out")
    case.close(score, "score_vec")
    out, out_edge, weight = layer(*inputs, return_attention=True)
    case.close(out, "out")
    case.close(out_edge, "out_edge")
    assert weight.equal(attention)
    check_statistics(case, layer.nodes, "node")
    check_statistics(case, layer.edges, "edge")
