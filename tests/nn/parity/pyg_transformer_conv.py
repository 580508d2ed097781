from __future__ import annotations

from tests.nn.parity.case import Case
from tests.nn.parity.transformer_conv import load_attention
from trajpred.nn.published.transformer_conv import TransformerConv


def check(case: Case) -> None:
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
