from __future__ import annotations

import torch

from tests.nn.parity.case import Case
from trajpred.nn.published.padded_attention import BiasedEncoderLayer


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


def check(case: Case) -> None:
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
