"""``DwivediGraphTransformerLayer`` against the vectors of graphdeeplearning/graphtransformer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tests.nn.parity.case import Case
from trajpred.nn.published.graph_transformer import (
    ClampedAttention,
    DwivediGraphTransformerLayer,
    StreamUpdate,
)

CONSTRUCTOR = "in_dim", "out_dim", "num_heads", "dropout", "layer_norm", "batch_norm", "residual", "use_bias"


def check(case: Case) -> None:
    layer = DwivediGraphTransformerLayer(**layer_options(case)).double()
    load_attention(case, layer.attention)
    load_update(case, layer.nodes, "node")
    layer.train(case.options["training"])

    attended, _, attention = layer.attention(case["x"], case["edge_index"])
    case.close(attended, "attn_out")
    out, weight = layer(case["x"], case["edge_index"], return_attention=True)
    case.close(out, "out")
    assert weight.equal(attention)
    check_statistics(case, layer.nodes, "node")


def layer_options(case: Case) -> dict[str, Any]:
    """The constructor's arguments."""
    case.options.ignore("sizes", "isolated", "scale")
    return {name: case.options[name] for name in CONSTRUCTOR}


def load_attention(case: Case, attention: ClampedAttention, prefix: str = "") -> None:
    """W_query, W_key, W_value and, where the operator has one, W_edge, with their biases."""
    for name in ("query", "key", "value"):
        load_linear(case, getattr(attention, name), prefix, name)
    if attention.edge is not None:
        load_linear(case, attention.edge, prefix, "edge")
    else:
        assert f"{prefix}W_edge" not in case


def load_update(case: Case, update: StreamUpdate, stream: str, prefix: str = "") -> None:
    """O, the feed-forward network and the norms of ``stream`` (node or edge)."""
    load_linear(case, update.out, prefix, f"out_{stream}")
    load_linear(case, update.ffn1, prefix, f"ffn_{stream}_1")
    load_linear(case, update.ffn2, prefix, f"ffn_{stream}_2")
    for i, norms in enumerate((update.norm1, update.norm2), 1):
        for kind, name in (("layer", "ln"), ("batch", "bn")):
            load_norm(case, getattr(norms, kind, None), f"{prefix}{name}{i}_{stream}")


def load_linear(case: Case, linear: nn.Linear, prefix: str, name: str) -> None:
    case.load(linear.weight, f"{prefix}W_{name}")
    case.load(linear.bias, f"{prefix}b_{name}")


def load_norm(case: Case, norm: nn.Module | None, name: str) -> None:
    norm = getattr(norm, "module", norm)  # PyG's BatchNorm holds torch's
    for ours, theirs in (("weight", "gamma"), ("bias", "beta")):
        case.load(getattr(norm, ours, None), f"{name}_{theirs}")
    for statistic in ("running_mean", "running_var"):
        case.load(getattr(norm, statistic, None), f"{name}_{statistic}")


def check_statistics(case: Case, update: StreamUpdate, stream: str) -> None:
    """The running statistics after one forward in training."""
    for i, norms in enumerate((update.norm1, update.norm2), 1):
        for statistic in ("running_mean", "running_var"):
            name = f"after_bn{i}_{stream}_{statistic}"
            batch_norm = getattr(norms, "batch", None)
            assert (name in case) == (batch_norm is not None and update.training)
            if name in case:
                found: Tensor = getattr(batch_norm.module, statistic)
                case.close(found, name)
