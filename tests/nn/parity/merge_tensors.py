"""``merge_tensors`` against the vectors of DenseTNT."""

from __future__ import annotations

from tests.nn.parity.case import Case
from trajpred.nn.published.padded_attention import merge_tensors, pad_samples


def check(case: Case) -> None:
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
