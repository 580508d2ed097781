from __future__ import annotations

import torch

from tests.nn.parity.case import Case
from trajpred.nn.published.transformer_m import BiasedEncoderLayer


def load_layer(layer: BiasedEncoderLayer, case: Case, prefix: str = "") -> None:
    attention, feed_forward = layer.block.attention.attention, layer.block.feed_forward
    for name in ("query", "key", "value", "out"):
        linear = getattr(attention, name)
        case.load(linear.weight, f"{prefix}W_{name}")
        case.load(linear.bias, f"{prefix}b_{name}")
    for i, name in ((0, "ff_1"), (3, "ff_2")):
        case.load(feed_forward[i].weight, f"{prefix}W_{name}")
        case.load(feed_forward[i].bias, f"{prefix}b_{name}")
    norms = {"ln1": layer.block.norm1, "ln2": layer.block.norm2}
    closed = len(layer.block.attention.after) > 1
    assert closed == (f"{prefix}ln1_post_gamma" in case), "the operator and the case disagree"
    if closed:
        norms |= {"ln1_post": layer.block.attention.after[-1], "ln2_post": feed_forward[-1]}
    for name, norm in norms.items():
        case.load(norm.weight, f"{prefix}{name}_gamma")
        case.load(norm.bias, f"{prefix}{name}_beta")


def check(case: Case) -> None:
    options = case.options
    sizes = options["dim"], options["ffn_dim"], options["num_heads"]
    norm, activation = options["norm"], options["activation"]
    mask = ~case["padding_mask"]
    assert mask.sum(1).tolist() == options["sizes"]
    given = options["with_bias"]
    for name, dtype in (("out", torch.float32), ("out_float64", torch.float64)):
        layer = BiasedEncoderLayer(*sizes, norm=norm, activation_fn=activation)
        load_layer(layer, case)
        bias = case["attn_bias"].to(dtype) if given else None
        assert given or "attn_bias" not in case or (case["attn_bias"] == 0).all()
        out = layer.eval().to(dtype)(case["x"].to(dtype), bias, mask)
        assert out.isfinite().all() and out.dtype == dtype
        case.close(out, name, mask)
