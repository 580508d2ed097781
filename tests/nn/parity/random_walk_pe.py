"""``random_walk_positional_encoding`` against the vectors of PyG."""

from __future__ import annotations

import torch

from tests.nn.parity.case import Case
from trajpred.nn.published.graph_transformer import random_walk_positional_encoding


def check(case: Case) -> None:
    batch = torch.zeros(case.options["num_nodes"], dtype=torch.int64)
    out = random_walk_positional_encoding(case["edge_index"], batch, case.options["walk_length"])
    case.close(out, "random_walk_pe")
    if "random_walk_pe_float64" in case:
        case.close(out, "random_walk_pe_float64")
