"""The network of Graph Transformer layers (Dwivedi & Bresson 2020), and graph-based positional encodings."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter, to_dense_adj

from trajpred.laplacian import laplacian_eigenvectors
from trajpred.nn.published.graph_transformer import DwivediGraphTransformerEdgeLayer


class GraphTransformerNet(nn.Module):
    r"""Network that predicts one or more values per graph.

    .. math::
        x^0 = \mathrm{drop}(\mathrm{in}(x)) + W_p λ + b_p, \qquad e^0 = \mathrm{in}_e(e), \qquad
        (x^{l+1}, e^{l+1}) = \mathrm{layer}_l(x^l, e^l), \qquad
        y_g = \mathrm{MLP}\big(\mathrm{readout}_{i ∈ g}\, x_i^L\big)

    in and in_e are embeddings of types or linear maps of features; λ is the Laplacian positional encoding.
    The arguments are the published ``net_params``, plus ``in_dim``, ``edge_dim`` and ``n_classes``. The
    last layer does not update the edges.

    Args:
        hidden_dim: channels of all layers but the last.
        out_dim: channels of the last layer; ``hidden_dim`` with ``residual``.
        n_heads: heads of every layer.
        L: number of layers.
        num_atom_type: number of node types; either this or ``in_dim``.
        num_bond_type: number of edge types; with ``edge_feat``, either this or ``edge_dim``.
        in_dim: channels of the nodes.
        edge_dim: channels of the edges.
        in_feat_dropout: rate on the embedded nodes.
        dropout: see :class:`DwivediGraphTransformerLayer`.
        layer_norm: likewise.
        batch_norm: likewise.
        residual: likewise.
        readout: ``mean``, ``sum`` or ``max`` over the nodes of a graph; 0 for a graph without nodes.
        edge_feat: False replaces edge features by the constant 1.
        lap_pos_enc: add the positional encoding.
        pos_enc_dim: number of its columns.
        n_classes: values per graph.

    Example:
        >>> net = GraphTransformerNet(hidden_dim=8, out_dim=8, n_heads=2, L=2, num_atom_type=5, edge_dim=3)
        >>> atoms, edge_index = torch.tensor([0, 4, 2, 1]), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> net(atoms, edge_index, torch.randn(4, 3), torch.tensor([0, 0, 1, 1])).shape  # two graphs
        torch.Size([2, 1])
    """

    def __init__(
        self,
        *,
        hidden_dim: int,
        out_dim: int,
        n_heads: int,
        L: int,
        num_atom_type: int | None = None,
        num_bond_type: int | None = None,
        in_dim: int | None = None,
        edge_dim: int | None = None,
        in_feat_dropout: float = 0.0,
        dropout: float = 0.0,
        readout: Literal["mean", "sum", "max"] = "mean",
        layer_norm: bool = False,
        batch_norm: bool = True,
        residual: bool = True,
        edge_feat: bool = True,
        lap_pos_enc: bool = True,
        pos_enc_dim: int = 8,
        n_classes: int = 1,
    ) -> None:
        super().__init__()
        if readout not in ("mean", "sum", "max"):
            raise ValueError(f"readout must be mean, sum or max, not {readout!r}")
        _check_positive("L", L)
        self.readout = readout
        self.edge_feat = edge_feat
        if not edge_feat:  # the constant 1 instead
            num_bond_type = None
            edge_dim = 1
        self.node_in = _embed(hidden_dim, num_atom_type, in_dim, "num_atom_type or in_dim")
        self.edge_in = _embed(hidden_dim, num_bond_type, edge_dim, "num_bond_type or edge_dim")
        self.position: LaplacianPositionalEncoding | None = None
        self.position_in: nn.Linear | None = None
        if lap_pos_enc:
            self.position = LaplacianPositionalEncoding(pos_enc_dim)
            self.position_in = nn.Linear(pos_enc_dim, hidden_dim)
        self.dropout = nn.Dropout(in_feat_dropout)
        self.layers = nn.ModuleList()
        for number in range(L):
            is_last = number == L - 1
            layer = DwivediGraphTransformerEdgeLayer(
                hidden_dim,
                out_dim if is_last else hidden_dim,
                n_heads,
                dropout,
                layer_norm,
                batch_norm,
                residual,
                update_edges=not is_last,
            )
            self.layers.append(layer)
        self.mlp = _read_out(out_dim, n_classes)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        pos_enc: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        """Return one row per graph, ``[batch_size, n_classes]``.

        Args:
            x: ``[N]`` int64 types, or ``[N, in_dim]``.
            edge_index: ``[2, E]`` int64, row 0 sender, row 1 receiver.
            edge_attr: ``[E]`` int64 types, or ``[E, edge_dim]``; ignored without ``edge_feat``.
            batch: ``[N]`` int64, ascending, graph of each node; None: one graph.
            pos_enc: ``[N, pos_enc_dim]``; None: computed here, with random signs in training.
            batch_size: number of graphs, by default as many as ``batch`` names.
        """
        if batch is None:
            batch = edge_index.new_zeros(x.shape[0])
        if batch_size is None:
            batch_size = int(batch.max()) + 1 if batch.shape[0] else 0
        x = self.encode(x, edge_index, edge_attr, batch, pos_enc)
        graphs = scatter(x, batch, dim=0, dim_size=batch_size, reduce=self.readout)
        return self.mlp(graphs)

    def encode(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None,
        batch: Tensor,
        pos_enc: Tensor | None = None,
    ) -> Tensor:
        """Return the nodes after the last layer, ``[N, out_dim]``."""
        x = self.dropout(self.node_in(x))
        if self.position is not None and self.position_in is not None:
            if pos_enc is None:
                pos_enc = self.position(edge_index, batch)
            x = x + self.position_in(pos_enc.to(self.position_in.weight.dtype))
        if not self.edge_feat:
            edge_attr = self.edge_in.weight.new_ones(edge_index.shape[1], 1)
        elif edge_attr is None:
            raise ValueError("edge_attr is required (edge_feat is True)")
        edge = self.edge_in(edge_attr)
        for layer in self.layers:
            x, edge = layer(x, edge_index, edge)
        return x


def _read_out(width: int, values: int) -> nn.Sequential:
    """Stack two linear layers that halve the width, with ReLU, and one to ``values``."""
    if width < 4:
        raise ValueError(f"a width of {width} cannot be halved twice")
    return nn.Sequential(
        nn.Linear(width, width // 2),
        nn.ReLU(),
        nn.Linear(width // 2, width // 4),
        nn.ReLU(),
        nn.Linear(width // 4, values),
    )


def _embed(width: int, types: int | None, features: int | None, names: str) -> nn.Embedding | nn.Linear:
    if types is not None and features is None:
        return nn.Embedding(types, width)
    if features is not None and types is None:
        return nn.Linear(features, width)
    raise ValueError(f"give either {names}")


def adjacency(edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Count the edges j → i as A[b, j, i] ``[B, n, n]`` float64; mark the real nodes ``[B, n]`` bool."""
    sizes = torch.bincount(batch)
    n = int(sizes.max()) if batch.shape[0] else 0
    mask = torch.arange(n, device=batch.device) < sizes[:, None]
    if not edge_index.numel():
        return torch.zeros(len(sizes), n, n, dtype=torch.float64, device=batch.device), mask
    ones = torch.ones(edge_index.shape[1], dtype=torch.float64, device=batch.device)
    return to_dense_adj(edge_index, batch, ones, n, len(sizes)), mask


@torch.no_grad()
def laplacian_positional_encoding(edge_index: Tensor, batch: Tensor, k: int) -> Tensor:
    r"""Compute eigenvectors of the Laplacian as node features (Dwivedi & Bresson 2020).

    .. math:: L u_l = λ_l u_l, \quad λ_0 ≤ λ_1 ≤ …, \quad \text{node } i \text{ gets } (u_{1,i}, …, u_{k,i})

    Exactly one eigenvector is dropped, also for disconnected graphs. Signs, and the basis of a repeated
    eigenvalue, are arbitrary. A graph of n nodes has n - 1 columns; further columns are 0. Computed in
    float64 by :func:`trajpred.laplacian.laplacian_eigenvectors`, which onboard bundles use, too.

    Shapes: edge_index ``[2, E]`` of the flattened batch; batch ``[N]``, ascending, graph of each node ->
    ``[N, k]`` in torch's default dtype.
    """
    _check_positive("k", k)
    count, mask = adjacency(edge_index, batch)
    vectors = [np.zeros((0, k))]
    for graph, n in zip(count.cpu().numpy(), mask.sum(1).tolist(), strict=True):
        vectors.append(laplacian_eigenvectors(graph[:n, :n], k))
    stacked = np.concatenate(vectors)
    return torch.from_numpy(stacked).to(count.device, torch.get_default_dtype())


@torch.no_grad()
def random_walk_positional_encoding(edge_index: Tensor, batch: Tensor, walk_length: int) -> Tensor:
    r"""Compute the probabilities of return after 1, 2, … steps (Dwivedi et al. 2022, arXiv:2110.07875).

    .. math:: \text{node } i \text{ gets } (P_{ii}, (P^2)_{ii}, …), \quad P = D^{-1} A

    with the walk along the edges and the out-degree D at least 1. Equals PyG's ``AddRandomWalkPE`` for one
    graph without parallel edges.

    Shapes: edge_index ``[2, E]`` of the flattened batch; batch ``[N]``, ascending, graph of each node ->
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
    out_degree = count.sum(-1, keepdim=True).clamp(min=1)
    step = count / out_degree
    walk = step
    returns = [walk.diagonal(dim1=-2, dim2=-1)]
    for _ in range(walk_length - 1):
        walk = walk @ step
        returns.append(walk.diagonal(dim1=-2, dim2=-1))
    return torch.stack(returns, -1)[mask].to(torch.get_default_dtype())


class LaplacianPositionalEncoding(nn.Module):
    """:func:`laplacian_positional_encoding` with ``k`` columns, of random signs in training."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.signed(laplacian_positional_encoding(edge_index, batch, self.k))

    def signed(self, encoding: Tensor) -> Tensor:
        """Give the columns random signs in training."""
        if not self.training:
            return encoding
        bit = torch.randint(0, 2, encoding.shape[-1:], device=encoding.device)
        sign = 2 * bit - 1
        return encoding * sign


class RandomWalkPositionalEncoding(nn.Module):
    """:func:`random_walk_positional_encoding` with ``k`` columns."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, edge_index: Tensor, batch: Tensor) -> Tensor:
        return random_walk_positional_encoding(edge_index, batch, self.k)


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
