"""Transformer-M's input: types, centralities and summed distances of the nodes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trajpred.nn.published.graph_structure import GraphStructure
from trajpred.nn.published.structural_bias import Mode, mask_graphs, table


class NodeEncoding(nn.Module):
    r"""Input of the first layer: types and centralities of the nodes, after a learnable graph token.

    .. math::
        x_i = \sum_f E[t_{if}] + z_i + E_{in}[d^{in}_i + 1] + E_{out}[d^{out}_i + 1]
            + 0.01\, \Big(W \sum_j ψ_{ij} + b\Big)

    The sum over j includes i and excludes padding. Degrees beyond the table share its last row. z are further
    features of the nodes, if any.

    Args:
        num_atoms: number of node types, 1 to ``num_atoms``; 0 is padding, a zero row.
        num_in_degree: rows of the table of in-degrees.
        num_out_degree: rows of the table of out-degrees.
        embedding_dim: channels D.
        num_3d_bias_kernel: see :class:`~trajpred.nn.published.structural_bias.StructuralBias`.
        mode: likewise.

    Shapes: node_type ``[B, n, F]`` int64, features ``[B, n, D]``, gaussians ``[B, n, n, K]``, mask ``[B, n]``
    bool, True = valid, keep_2d, keep_3d ``[B]`` bool -> ``[B, 1 + n, D]``.
    """

    def __init__(
        self,
        num_atoms: int = 512 * 9,
        num_in_degree: int = 512,
        num_out_degree: int = 512,
        embedding_dim: int = 768,
        num_3d_bias_kernel: int = 128,
        mode: Mode = "2d+3d",
    ) -> None:
        super().__init__()
        self.kind = table(num_atoms + 1, embedding_dim)
        self.in_degree: nn.Embedding | None = None
        self.out_degree: nn.Embedding | None = None
        if "2d" in mode:
            self.in_degree = table(num_in_degree, embedding_dim)
            self.out_degree = table(num_out_degree, embedding_dim)
        self.distance: nn.Linear | None = None
        if "3d" in mode:
            self.distance = nn.Linear(num_3d_bias_kernel, embedding_dim)
        self.graph_token = nn.Parameter(0.02 * torch.randn(embedding_dim))

    def forward(
        self,
        node_type: Tensor,
        mask: Tensor,
        structure: GraphStructure | None = None,
        gaussians: Tensor | None = None,
        *,
        features: Tensor | None = None,
        keep_2d: Tensor | None = None,
        keep_3d: Tensor | None = None,
    ) -> Tensor:
        x = self.kind(node_type).sum(-2)
        if features is not None:
            x = x + features
        if structure is not None and self.in_degree is not None and self.out_degree is not None:
            into = _encode_degree(self.in_degree, structure.in_degree)
            out = _encode_degree(self.out_degree, structure.out_degree)
            x = x + mask_graphs(into + out, keep_2d)
        if gaussians is not None and self.distance is not None:
            distances = 0.01 * self.summed_distance(gaussians, mask)
            x = x + mask_graphs(distances, keep_3d)
        token = self.graph_token.to(x.dtype).expand(x.shape[0], 1, -1)
        return torch.cat((token, x), 1)

    def summed_distance(self, gaussians: Tensor, mask: Tensor) -> Tensor:
        """Compute W Σ_j ψ_ij + b: ``[B, n, D]``."""
        assert self.distance is not None, "this encoding was built without distances"
        total = torch.einsum("bijk,bj->bik", gaussians, mask.to(gaussians.dtype))
        return self.distance(total)


def _encode_degree(rows: nn.Embedding, degree: Tensor) -> Tensor:
    """Look up degrees; those beyond the table share its last row."""
    last = rows.num_embeddings - 1
    return rows((degree + 1).clamp(max=last))
