"""MultiHeadAttentionConv of TensorFlow GNN."""

from __future__ import annotations

import warnings

from torch import Tensor
from torch.testing import assert_close

from tests.nn.parity.case import Case
from trajpred.nn.published.multi_head_attention import MultiHeadAttentionConv

#: Options that are constructor arguments of the same name.
SAME = (
    "num_heads per_head_channels use_bias attention_activation activation transform_keys share_key_transform "
    "score_scaling transform_values_after_pooling"
)


def check_mha_conv(case: Case) -> None:
    case.options.ignore("sizes", "elup1_value")  # the values are in score_scaling_weight
    (sender, receiver), call = inputs(case)
    conv = build(case, receiver.shape[-1])
    load(conv, case)
    case.close(conv((sender, receiver), **call), "out")
    if sender is not None:
        sender = sender.double()
    if "edge_attr" in call:
        call["edge_attr"] = call["edge_attr"].double()
    out = conv.double()((sender, receiver.double()), **call)
    assert_close(out.detach(), case["out_float64"], rtol=1e-9, atol=1e-9)


def inputs(case: Case) -> tuple[tuple[Tensor | None, Tensor], dict[str, Tensor]]:
    o = case.options
    of_context = case.options["receiver"] == "CONTEXT"
    separate = o["separate_receiver_feature"] and not of_context
    receiver = case["x_receiver" if separate else "x"]
    index = "edge_index"
    of_items = {"nodes": "batch", "edges": "edge_batch"}[o["over"]]
    if of_context:
        receiver = case["context"]
        index = of_items
    call = {index: case[index]}
    if o["use_edge"]:
        call["edge_attr"] = case["edge_attr"]
    sender = case["x"] if o["use_node"] else None
    return (sender, receiver), call


def build(case: Case, receiver_channels: int) -> MultiHeadAttentionConv:
    o = case.options
    options = {name: o[name] for name in SAME.split()}
    options |= {"sender_node_feature": None, "sender_edge_feature": None}
    if o["use_node"]:
        options["sender_node_feature"] = "x"
        options["sender_node_channels"] = case["x"].shape[-1]
    if o["use_edge"]:
        options["sender_edge_feature"] = "edge_attr"
        options["sender_edge_channels"] = case["edge_attr"].shape[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an attention_activation with score_scaling
        conv = MultiHeadAttentionConv(
            receiver_tag=o["receiver"], receiver_channels=receiver_channels, **options
        )
    return conv.eval()


def load(conv: MultiHeadAttentionConv, case: Case) -> None:
    for name in ("query", "key_node", "key_edge", "value_node", "value_edge", "value_pooled"):
        linear = getattr(conv, name)
        for letter, parameter in (("W", "weight"), ("b", "bias")):
            value = getattr(linear, parameter, None)
            if value is not None and name == "value_pooled":  # the case has it by heads: the same memory
                value = value.detach().unflatten(0, (conv.num_heads, conv.per_head_channels))
            case.load(value, f"{letter}_{name}")
    case.load(conv.score_scaling_weight, "score_scaling_weight")
