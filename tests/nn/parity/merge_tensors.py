"""``merge_tensors`` against the vectors of DenseTNT."""

from __future__ import annotations

from tests.nn.parity.case import Case
from trajpred.nn.published.padded_attention import merge_tensors


def check(case: Case) -> None:
    case.options.ignore("lengths", "hidden")  # seen in the arrays
    padded, mask = merge_tensors(case["flat"], case["lengths"])
    case.close(padded, "padded")
    assert mask.sum(1).equal(case["lengths"])
    assert padded[mask].equal(case["flat"])
