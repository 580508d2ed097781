"""Attention and padding of DenseTNT, and flattening of graphs."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.nn.parity.case import Case
from trajpred.nn.published.padded_attention import PaddedAttention, merge_tensors, pad_samples
from trajpred.nn.segment import flatten_edges

#: Argument by name in the vectors.
CONSTRUCTOR = {
    "hidden": "hidden_size",
    "num_heads": "num_attention_heads",
    "head_size": "attention_head_size",
    "query_hidden": "query_hidden_size",
    "key_hidden": "key_hidden_size",
}


def check_cross_attention(case: Case) -> None:
    options = case.options
    assert options["cross"]
    options.ignore("lengths", "key_lengths")  # arrays of the same names
    key_mask = mask_of(case["key_lengths"], case["key_padded"])
    check_attention(case, case["key_padded"], key_mask)


def check_attention(case: Case, key: Tensor | None, key_mask: Tensor | None) -> None:
    """With and without the reference's key bias; masked by rows and by pairs; with and without weights."""
    x = case["x_padded"]
    mask = mask_of(case["lengths"], case["x_padded"])
    assert mask.equal(case["valid"])
    allowed = case["attention_mask"].bool()
    reached = allowed.any(-1)  # the reference lets a query without any valid key attend to the padding
    for key_bias in (True, False):
        arguments = {name: case.options[option] for option, name in CONSTRUCTOR.items()}
        attend = PaddedAttention(**arguments, key_bias=key_bias).double()
        case.load_linear(attend.query, "query")
        case.load_linear(attend.value, "value")
        case.load(attend.key.weight, "W_key")
        if key_bias:  # softmax cancels it
            case.load(attend.key.bias, "b_key")
        out, weight = attend(x, key, mask=mask, key_mask=key_mask, return_attention=True)
        fused = attend(x, key, mask=mask, key_mask=key_mask)
        masked = attend(x, key, attention_mask=allowed)
        for result in (out, fused, masked):
            case.close(result, "out_per_sample_padded")
            case.close(result, "out_reference_correct_mask", rows=reached)
            assert not result[~reached].any()
        if "attention" in case:  # given for one head
            case.close(weight[:, 0], "attention", rows=reached)


def mask_of(lengths: Tensor, padded: Tensor) -> Tensor:
    return torch.arange(padded.shape[1]) < lengths[:, None]


def check_global_attention(case: Case) -> None:
    assert not case.options["cross"]
    assert case.options["key_lengths"] is None
    case.options.ignore("lengths")  # array of the same name
    check_attention(case, key=None, key_mask=None)


def check_merge_tensors(case: Case) -> None:
    case.options.ignore("lengths", "hidden")  # seen in the arrays
    padded, mask = pad_samples(case["flat"], case["lengths"])
    samples = case["flat"].split(case["lengths"].tolist())
    published, lengths = merge_tensors(
        [sample if len(sample) else None for sample in samples], hidden_size=case["flat"].shape[1]
    )
    assert published.equal(padded)
    assert lengths == case["lengths"].tolist()
    case.close(padded, "padded")
    assert mask.sum(1).equal(case["lengths"])
    assert padded[mask].equal(case["flat"])


def check_flatten_edges(case: Case) -> None:
    case.options.ignore("kind", "B", "n", "E", "sizes")
    edges = [case[f"edge_index_{graph}"] for graph in range(len(case["num_nodes"]))]
    forms = [edges]
    if len({graph.shape for graph in edges}) == 1:
        forms.append(torch.stack(edges))
    for form in forms:
        flat = flatten_edges(form, case["num_nodes"], case["target_local"])
        for name in ("edge_index", "batch", "ptr", "offsets", "target_index"):
            out = getattr(flat, name)
            assert out.dtype == case[name].dtype
            case.close(out, name)
