from __future__ import annotations

import torch

from tests.nn.parity.case import Case
from trajpred.nn.published.structural_bias import GaussianDistanceKernel


def load_kernel(kernel: GaussianDistanceKernel, case: Case, prefix: str = "") -> None:
    case.load(kernel.mean, f"{prefix}mean")
    case.load(kernel.std, f"{prefix}std_raw")
    case.load(kernel.scale, "gamma_table")
    case.load(kernel.offset, "beta_table")


def check(case: Case) -> None:
    case.options.ignore("B", "n")
    for name, dtype in (("out", torch.float32), ("out_float64", torch.float64)):
        kernel = GaussianDistanceKernel(case.options["K"], case.options["edge_types"])
        load_kernel(kernel, case)
        out = kernel.to(dtype)(case["dist"].to(dtype), case["pair_type"])
        assert out.dtype == dtype
        case.close(out, name)
