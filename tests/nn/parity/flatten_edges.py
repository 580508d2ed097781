from __future__ import annotations

import torch

from tests.nn.parity.case import Case
from trajpred.nn.segment import flatten_edges


def check(case: Case) -> None:
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
