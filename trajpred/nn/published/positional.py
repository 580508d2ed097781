"""Positional encodings from the structure of graphs alone, for a whole flattened batch at once.

Each is computed on adjacency matrices padded to the largest graph, in float64, without gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.utils import to_dense_adj

#: Diagonal of the padding: eigenvalues of graphs lie in [0, 2], so those of the padding come last.
BEYOND_SPECTRUM = 4.0


def adjacency(edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Padded adjacency matrices A and the mask of the true nodes.

    Args:
        edge_index: ``[2, E]`` int64 in the flattened batch, in any order.
        batch: ``[N]`` int64, ascending, the graph of each node.

    Returns:
        ``[B, n, n]`` float64, A[b, j, i] the number of edges j → i; ``[B, n]`` bool.
    """
    sizes = torch.bincount(batch)
    n = int(sizes.max()) if len(batch) else 0
    mask = torch.arange(n, device=batch.device) < sizes[:, None]
    if not edge_index.numel():
        return torch.zeros(len(sizes), n, n, dtype=torch.float64, device=batch.device), mask
    ones = torch.ones(edge_index.shape[1], dtype=torch.float64, device=batch.device)
    return to_dense_adj(edge_index, batch, ones, n, len(sizes)), mask


def normalized_laplacian(edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    r"""The symmetric Laplacian of each graph and the mask of the true nodes.

    .. math:: L = I - D^{-1/2} A D^{-1/2}, \quad D = \mathrm{diag}(\max(1, \text{in-degree}))

    A directed edge counts in both directions; self loops are kept. Arguments and shapes as of
    :func:`adjacency`; zero on the padding.
    """
    directed, mask = adjacency(edge_index, batch)
    either = torch.maximum(directed, directed.mT)
    scale = either.sum(-1).clamp(min=1).rsqrt()
    return torch.diag_embed(mask.double()) - scale[..., :, None] * either * scale[..., None, :], mask


@torch.no_grad()
def laplacian_positional_encoding(edge_index: Tensor, batch: Tensor, k: int) -> Tensor:
    r"""Eigenvectors of the Laplacian as node features (Dwivedi & Bresson 2020).

    .. math:: L u_l = λ_l u_l, \quad λ_0 ≤ λ_1 ≤ …, \quad \text{node } i \text{ gets } (u_{1,i}, …, u_{k,i})

    Exactly one vector is left out, also of graphs in several parts. The sign of a column, and the basis
    within equal eigenvalues, are arbitrary. A graph of n nodes has n - 1 columns; further ones are 0.

    Args:
        edge_index: ``[2, E]`` int64 in the flattened batch.
        batch: ``[N]`` int64, ascending, the graph of each node.
        k: number of columns.

    Returns:
        ``[N, k]`` in torch's default dtype.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])  # two graphs of two joined nodes
        >>> encoding = laplacian_positional_encoding(edge_index, torch.tensor([0, 0, 1, 1]), k=2)
        >>> encoding.abs().allclose(torch.tensor([0.5**0.5, 0.0]))
        True
    """
    _check_positive("k", k)
    laplacian, mask = normalized_laplacian(edge_index, batch)
    apart = laplacian + BEYOND_SPECTRUM * torch.diag_embed((~mask).double())
    vectors = torch.linalg.eigh(apart).eigenvectors[..., 1 : k + 1]
    # The eigenvectors of the padding come after the n of the graph.
    vectors = vectors * mask[:, None, 1 : k + 1]
    return F.pad(vectors, (0, k - vectors.shape[-1]))[mask].to(torch.get_default_dtype())


@torch.no_grad()
def random_walk_positional_encoding(edge_index: Tensor, batch: Tensor, walk_length: int) -> Tensor:
    r"""Probabilities of being back after 1, 2, … steps (Dwivedi et al. 2022, arXiv:2110.07875).

    .. math:: \text{node } i \text{ gets } (P_{ii}, (P^2)_{ii}, …), \quad P = D^{-1} A

    with the walk along the edges and the out-degree D at least 1. PyG's ``AddRandomWalkPE`` is the same for
    one graph without parallel edges.

    Args:
        edge_index: ``[2, E]`` int64 in the flattened batch.
        batch: ``[N]`` int64, ascending, the graph of each node.
        walk_length: number of columns.

    Returns:
        ``[N, walk_length]`` in torch's default dtype.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])  # a path of three nodes
        >>> random_walk_positional_encoding(edge_index, torch.tensor([0, 0, 0]), walk_length=2)
        tensor([[0.0000, 0.5000],
                [0.0000, 1.0000],
                [0.0000, 0.5000]])
    """
    _check_positive("walk_length", walk_length)
    count, mask = adjacency(edge_index, batch)
    step = count / count.sum(-1, keepdim=True).clamp(min=1)
    walk, back = step, [step.diagonal(dim1=-2, dim2=-1)]
    for _ in range(walk_length - 1):
        walk = walk @ step
        back.append(walk.diagonal(dim1=-2, dim2=-1))
    return torch.stack(back, -1)[mask].to(torch.get_default_dtype())


def flip_signs(encoding: Tensor) -> Tensor:
    """Each column of ``[N, k]`` times +1 or -1, drawn from torch's generator: signs carry no meaning."""
    sign = 2 * torch.randint(0, 2, encoding.shape[-1:], device=encoding.device) - 1
    return encoding * sign


class LaplacianPositionalEncoding(nn.Module):
    """:func:`laplacian_positional_encoding`, with :func:`flip_signs` in training so that no sign is learned.

    Args:
        k: number of columns.

    Shapes: ``[2, E]``, ``[N]`` -> ``[N, k]``.
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        _check_positive("k", k)
        self.k = k

    def forward(self, edge_index: Tensor, batch: Tensor) -> Tensor:
        encoding = laplacian_positional_encoding(edge_index, batch, self.k)
        return flip_signs(encoding) if self.training else encoding

    def extra_repr(self) -> str:
        return f"k={self.k}"


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
