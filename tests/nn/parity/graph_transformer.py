"""The Graph Transformer of graphdeeplearning/graphtransformer: layers, network, encodings (also PyG's)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.nn.parity.case import Case
from trajpred.data.geometry import normalized_laplacian
from trajpred.nn.published.graph_transformer import (
    ClampedAttention,
    DwivediGraphTransformerEdgeLayer,
    DwivediGraphTransformerLayer,
    GraphTransformerNet,
    StreamUpdate,
    adjacency,
    laplacian_positional_encoding,
    random_walk_positional_encoding,
)

CONSTRUCTOR = "in_dim out_dim num_heads dropout layer_norm batch_norm residual use_bias"


def check_graph_transformer_layer(case: Case) -> None:
    compare_layer(case, DwivediGraphTransformerLayer, case["x"], case["edge_index"])


def check_graph_transformer_edge_layer(case: Case) -> None:
    compare_layer(case, DwivediGraphTransformerEdgeLayer, case["x"], case["edge_index"], case["edge_attr"])


def compare_layer(case: Case, kind: type[Any], *inputs: Tensor) -> None:
    """Compare a layer, with an edge stream if there are edge features among the ``inputs``."""
    case.options.ignore("sizes", "isolated", "scale")
    layer = kind(**{name: case.options[name] for name in CONSTRUCTOR.split()}).double()
    streams = {"node": layer.nodes}
    if len(inputs) == 3:
        streams["edge"] = layer.edges
    load_attention(case, layer.attention)
    for stream, update in streams.items():
        load_update(case, update, stream)
    layer.train(case.options["training"])
    attended, score, attention = layer.attention(*inputs)
    case.close(attended, "attn_out")
    *out, weight = layer(*inputs, return_attention=True)
    case.close(out[0], "out")
    if "edge" in streams:
        case.close(score, "score_vec")
        case.close(out[1], "out_edge")
    assert weight.equal(attention)
    for stream, update in streams.items():
        check_statistics(case, update, stream)


def load_attention(case: Case, attention: ClampedAttention, prefix: str = "") -> None:
    for name in ("query", "key", "value", "edge"):
        linear = getattr(attention, name)
        assert (linear is None) == (f"{prefix}W_{name}" not in case)
        if linear is not None:
            case.load_linear(linear, name, prefix)


def load_update(case: Case, update: StreamUpdate, stream: str, prefix: str = "") -> None:
    """Load O, the feed-forward network and the norms of ``stream`` (node or edge)."""
    case.load_linear(update.out, f"out_{stream}", prefix)
    case.load_linear(update.ffn1, f"ffn_{stream}_1", prefix)
    case.load_linear(update.ffn2, f"ffn_{stream}_2", prefix)
    for i, norms in enumerate((update.norm1, update.norm2), 1):
        for ours, theirs in (("layer", "ln"), ("batch", "bn")):
            case.load_norm(getattr(norms, ours, None), f"{prefix}{theirs}{i}_{stream}")


def check_statistics(case: Case, update: StreamUpdate, stream: str) -> None:
    for i, norms in enumerate((update.norm1, update.norm2), 1):
        case.close_statistics(getattr(norms, "batch", None), f"bn{i}_{stream}", update.training)


def check_graph_transformer_net(case: Case) -> None:
    assert not case.options["wl_pos_enc"], "only the Laplacian positional encoding is built"
    options = {name: case.options[name] for name in case.options if name != "wl_pos_enc"}
    net = GraphTransformerNet(**options).double().eval()
    load_net(case, net)
    inputs = case["node_type"], case["edge_index"], case["edge_type"], case["batch"]
    # Without lap_pos_enc the network does not look at it.
    case.close(net.encode(*inputs, pos_enc=case.get("pos_enc")), "node_out")
    case.close(net(*inputs, pos_enc=case.get("pos_enc")), "out")


def load_net(case: Case, net: GraphTransformerNet) -> None:
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


def check_laplacian_pe(case: Case) -> None:
    options = case.options
    assert options["normalization"] == "sym"
    assert options["drop_first"]
    options.ignore("isolated", "self_loops")  # seen in edge_index
    n = options["num_nodes"]
    k = options["k"]
    batch = torch.zeros(n, dtype=torch.int64)
    directed = adjacency(case["edge_index"], batch)[0][0]
    laplacian = torch.from_numpy(normalized_laplacian(directed.numpy()))
    case.close(laplacian, "laplacian")
    case.close(torch.linalg.eigvalsh(laplacian), "eigenvalues")

    out = laplacian_positional_encoding(case["edge_index"], batch, k)
    columns = min(k, n - 1)
    assert out.shape == (n, k)
    assert not out[:, columns:].any()
    check_columns(case, out[:, :columns].double(), laplacian)


def check_columns(case: Case, out: Tensor, laplacian: Tensor) -> None:
    """Columns of simple eigenvalues up to sign; of the others, that they are eigenvectors and orthonormal."""
    expected = case["lap_pe"].double()
    tolerance = case.tolerance
    simple = case["column_is_simple"]
    sign = (out * expected).sum(0).sign()
    torch.testing.assert_close((out * sign)[:, simple], expected[:, simple], **tolerance)
    values = case["eigenvalues"][1 : 1 + out.shape[1]]
    torch.testing.assert_close(laplacian @ out, out * values, **tolerance)
    torch.testing.assert_close(out.T @ out, torch.eye(out.shape[1]).double(), **tolerance)


def check_random_walk_pe(case: Case) -> None:
    batch = torch.zeros(case.options["num_nodes"], dtype=torch.int64)
    out = random_walk_positional_encoding(case["edge_index"], batch, case.options["walk_length"])
    case.close(out, "random_walk_pe")
    if "random_walk_pe_float64" in case:
        case.close(out, "random_walk_pe_float64")
