"""The splits of a data set, their parts, and the names of the groups of agents for means.

It imports nothing but the standard library.
"""

from __future__ import annotations

from typing import Literal, get_args
from zlib import crc32

Split = Literal["train", "val", "test"]
SPLITS: tuple[str, ...] = get_args(Split)
#: The halves of a split: the first is for decisions, the second for published results.
Half = Literal["deciding", "reporting"]
HALVES: tuple[str, ...] = get_args(Half)
#: The text to hash, by purpose. CRC-32 is linear: text *before* an id would change the numbers of all ids
#: alike, so that one choice would determine another. Each purpose therefore has a text of its own length
#: *after* the id.
HOLD_OUT = "hold out {}"
HALF = "{} half"
CALIBRATION_PART = "{} calibration"
PERTURBATION = "{}"
#: Focal agents; scored agents, including the focal one; moving agents; all. See ``agent_groups`` in
#: ``metrics``.
Group = Literal["focal", "scored", "moving", "all"]
GROUPS: tuple[str, ...] = get_args(Group)
#: Groups by which models are compared scenario by scenario.
PAIRED_GROUPS: tuple[str, ...] = ("focal", "moving")


def hashed_id(name: str, purpose: str) -> int:
    """Hash the name of a recording or a scenario into 32 bits: the CRC-32 of ``purpose`` with it filled in.

    Every choice of scenarios uses this function. Parts of a split are chosen by recording, since windows of
    one recording may overlap. The result depends neither on a store's order nor on its other scenarios.
    """
    return crc32(purpose.format(name).encode())


def draw(name: str, purpose: str) -> float:
    """Draw a number in [0, 1) for a recording or scenario and a purpose, such as :data:`HALF`."""
    return hashed_id(name, purpose) / 2**32


def half_of(recording: str) -> str:
    """Return which of :data:`HALVES` the scenarios of a recording belong to.

    Example:
        >>> half_of("0a1e6f0a-1817-4a98-b02e-db8c9327d151")
        'deciding'
    """
    return HALVES[int(draw(recording, HALF) * len(HALVES))]
