"""``PaddedAttention`` of each sample to itself against the vectors of DenseTNT."""

from __future__ import annotations

from tests.nn.parity.case import Case
from tests.nn.parity.cross_attention import check_attention


def check(case: Case) -> None:
    assert not case.options["cross"]
    assert case.options["key_lengths"] is None
    case.options.ignore("lengths")  # array of the same name
    check_attention(case, key=None, key_mask=None)
