"""``DwivediGraphTransformerLayer`` against the vectors of graphdeeplearning/graphtransformer."""

from __future__ import annotations

from typing import Any

from tests.nn.parity.case import Case
from trajpred.nn.published.graph_transformer import (
    ClampedAttention,
    DwivediGraphTransformerLayer,
    StreamUpdate,
)

CONSTRUCTOR = (
    "in_dim",
    "out_dim",
    "num_heads",
    "dropout",
    "layer_norm",
    "batch_norm",
    "residual",
    "use_bias",
)


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
