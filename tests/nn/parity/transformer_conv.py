"""TransformerConv of GraphNeuralNetworks.jl and of PyG."""

from __future__ import annotations

from tests.nn.parity.case import Case
from trajpred.nn.published.transformer_conv import TransformerConv

NAMES = (
    "out heads concat add_self_loops bias_qkv bias_root root_weight gating "
    "skip_connection batch_norm ff_channels"
)


def check_transformer_conv(case: Case) -> None:
    options = case.options
    options.ignore("sizes", "input_self_loops")
    named = {name: options[name] for name in NAMES.split()}
    conv = TransformerConv(options["in"], ein=options["ein"], **named)
    load_attention(conv, case)
    if conv.feed_forward is not None:
        case.load_linear(conv.feed_forward[0], "ff_1")
        case.load_linear(conv.feed_forward[2], "ff_2")
    norms = [(conv.norm1, "bn1"), (conv.norm2, "bn2")]
    for norm, name in norms:
        case.load_norm(norm, name)
    conv.train(options["training"])
    edge_attr = case["edge_attr"] if conv.ein else None
    out, attention = conv(case["x"], case["edge_index"], edge_attr, return_attention=True)
    aggregated, again = conv.attend(case["x"], case["edge_index"], edge_attr)
    case.close(out, "out")
    case.close(attention, "attention")
    case.close(again, "attention")
    case.close(aggregated, "aggregated")
    for norm, name in norms:
        case.close_statistics(norm, name, conv.training)


def load_attention(conv: TransformerConv, case: Case) -> None:
    conv.double()
    for name in ("query", "key", "value", "edge", "root"):
        linear = getattr(conv, name)
        assert linear is not None or name == "root" or f"W_{name}" not in case
        if linear is not None:
            case.load_linear(linear, name)
    if conv.gate is not None:  # without a root the case may have a gate that nothing uses
        case.load_linear(conv.gate, "gate")


def check_pyg_transformer_conv(case: Case) -> None:
    options = case.options
    options.ignore("sizes")
    in_: int | tuple[int, int] = options["in_dim"]
    x = case["x"]
    if options["bipartite"]:
        x = (x, case["x_target"])
        in_ = (x[0].shape[1], x[1].shape[1])
    conv = TransformerConv(
        in_,
        options["out_dim"],
        options["edge_dim"] or 0,
        heads=options["heads"],
        concat=options["concat"],
        gating=options["beta"],
        bias_qkv=options["bias"],
        bias_root=options["bias"],
        root_weight=options["root_weight"],
        edge_bias=False,
    )
    load_attention(conv, case)
    edge_attr = case["edge_attr"] if conv.ein else None
    out, attention = conv(x, case["edge_index"], edge_attr, return_attention=True)
    case.close(out, "out")
    case.close(attention, "attention")
