from __future__ import annotations

from torch_geometric.nn import GATv2Conv

from tests.nn.parity.case import Case
from tests.nn.parity.gat_conv import arguments, compare, load_rest


def check(case: Case) -> None:
    conv = GATv2Conv(**arguments(case), share_weights=case.options["share_weights"])
    load(conv, case)
    compare(conv, case)


def load(conv: GATv2Conv, case: Case, prefix: str = "") -> None:
    conv.double()
    case.load_linear(conv.lin_l, "source", prefix)
    case.load_linear(conv.lin_r, "target", prefix)
    case.load(conv.att[0], f"{prefix}att")
    load_rest(conv, case, prefix)
