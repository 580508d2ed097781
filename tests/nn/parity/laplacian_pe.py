"""``laplacian_positional_encoding`` against the vectors of graphdeeplearning/graphtransformer."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.nn.parity.case import Case
from trajpred.data.geometry import normalized_laplacian
from trajpred.nn.published.graph_transformer import adjacency, laplacian_positional_encoding


def check(case: Case) -> None:
    options = case.options
    assert options["normalization"] == "sym"
    assert options["drop_first"]
    options.ignore("isolated", "self_loops")  # seen in edge_index
    n = options["num_nodes"]
    k = options["k"]
    batch = torch.zeros(n, dtype=torch.int64)
    directed = adjacency(case["edge_index"], batch)[0][0]
    laplacian = torch.from_numpy(normalized_laplacian(directed.numpy()))
    case.close(laplacian, "laplacian")
    case.close(torch.linalg.eigvalsh(laplacian), "eigenvalues")

    out = laplacian_positional_encoding(case["edge_index"], batch, k)
    columns = min(k, n - 1)
    assert out.shape == (n, k)
    assert not out[:, columns:].any()
    check_columns(case, out[:, :columns].double(), laplacian)


def check_columns(case: Case, out: Tensor, laplacian: Tensor) -> None:
    """Columns of simple eigenvalues up to sign; of the others, that they are eigenvectors and orthonormal."""
    expected = case["lap_pe"].double()
    tolerance = case.tolerance
    simple = case["column_is_simple"]
    sign = (out * expected).sum(0).sign()
    torch.testing.assert_close((out * sign)[:, simple], expected[:, simple], **tolerance)
    values = case["eigenvalues"][1 : 1 + out.shape[1]]
    torch.testing.assert_close(laplacian @ out, out * values, **tolerance)
    torch.testing.assert_close(out.T @ out, torch.eye(out.shape[1]).double(), **tolerance)
