"""``PaddedAttention`` from queries to other keys against the vectors of DenseTNT."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.nn.parity.case import Case
from trajpred.nn.published.padded_attention import PaddedAttention

#: Argument by name in the vectors.
CONSTRUCTOR = {
    "hidden": "hidden_size",
    "num_heads": "num_attention_heads",
    "head_size": "attention_head_size",
    "query_hidden": "query_hidden_size",
    "key_hidden": "key_hidden_size",
}


def check(case: Case) -> None:
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
