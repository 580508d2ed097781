"""The small network of Graph Transformer layers: embed nodes and edges, stack layers, read out each graph."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from torch import Tensor, nn
from torch_geometric.utils import scatter

from trajpred.nn.published.graph_transformer import DwivediGraphTransformerEdgeLayer
from trajpred.nn.published.positional import LaplacianPositionalEncoding

READOUTS = ("mean", "sum", "max")


class GraphTransformerNet(nn.Module):
    r"""The network of Dwivedi & Bresson (2020) for one value, or several, per graph.

    .. math::
        x^0 = \mathrm{drop}(\mathrm{in}(x)) + W_p λ + b_p, \qquad e^0 = \mathrm{in}_e(e), \qquad
        (x^{l+1}, e^{l+1}) = \mathrm{layer}_l(x^l, e^l), \qquad
        y_g = \mathrm{MLP}\big(\mathrm{readout}_{i ∈ g}\, x_i^L\big)

    in and in_e are embeddings of types or linear maps of features; λ is the Laplacian positional encoding,
    at the input only. The arguments are the publication's ``net_params`` (hence their names), to which
    ``in_dim``, ``edge_dim`` (features instead of types) and ``n_classes`` are added. The last layer leaves
    its edges alone, because nothing would read them.

    Args:
        hidden_dim: channels of all layers but the last.
        out_dim: channels of the last layer; other than ``hidden_dim`` only without ``residual``.
        n_heads: heads of every layer.
        L: number of layers.
        num_atom_type: nodes are types below this; either this or ``in_dim``.
        num_bond_type: edges are types below this; either this or ``edge_dim``, neither needed without
            ``edge_feat``.
        in_dim: nodes are this many features.
        edge_dim: edges are this many features.
        in_feat_dropout: on the embedded nodes.
        dropout, layer_norm, batch_norm, residual: of the layers.
        readout: ``mean``, ``sum`` or ``max`` over the nodes of a graph; a graph without nodes gives zeros.
        edge_feat: False: in_e is a linear map of the constant 1.
        lap_pos_enc: add the positional encoding.
        pos_enc_dim: its number of columns.
        n_classes: values per graph.

    Example:
        >>> import torch
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
        if readout not in READOUTS:
            raise ValueError(f"readout must be one of {READOUTS}, not {readout!r}")
        if L < 1:
            raise ValueError(f"L must be at least 1, not {L}")
        self.readout, self.edge_feat = readout, edge_feat
        self.node_in = _projection(hidden_dim, num_atom_type, in_dim, "num_atom_type or in_dim")
        if edge_feat:
            self.edge_in = _projection(hidden_dim, num_bond_type, edge_dim, "num_bond_type or edge_dim")
        else:
            self.edge_in = nn.Linear(1, hidden_dim)
        self.position = LaplacianPositionalEncoding(pos_enc_dim) if lap_pos_enc else None
        self.position_in = nn.Linear(pos_enc_dim, hidden_dim) if lap_pos_enc else None
        self.dropout = nn.Dropout(in_feat_dropout)
        self.layers = nn.ModuleList(
            DwivediGraphTransformerEdgeLayer(
                hidden_dim,
                out_dim if last else hidden_dim,
                n_heads,
                dropout,
                layer_norm,
                batch_norm,
                residual,
                update_edges=not last,
            )
            for last in [False] * (L - 1) + [True]
        )
        self.mlp = mlp_readout(out_dim, n_classes)

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
        """One row per graph.

        Args:
            x: ``[N]`` int64 types, or ``[N, in_dim]``.
            edge_index: ``[2, E]`` int64, row 0 sender, row 1 receiver.
            edge_attr: ``[E]`` int64 types, or ``[E, edge_dim]``; not read without ``edge_feat``.
            batch: ``[N]`` int64, ascending, the graph of each node; None: one graph.
            pos_enc: ``[N, pos_enc_dim]``, used as it is; None: computed here, signs random in training.
            batch_size: number of graphs; None: as many as ``batch`` names.

        Returns:
            ``[batch_size, n_classes]``.
        """
        batch = edge_index.new_zeros(len(x)) if batch is None else batch
        if batch_size is None:
            batch_size = int(batch.max()) + 1 if len(batch) else 0
        x = self.encode(x, edge_index, edge_attr, batch, pos_enc=pos_enc)
        return self.mlp(scatter(x, batch, dim=0, dim_size=batch_size, reduce=self.readout))

    def encode(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None,
        batch: Tensor,
        *,
        pos_enc: Tensor | None = None,
    ) -> Tensor:
        """The nodes after the last layer, ``[N, out_dim]``; arguments as of :meth:`forward`."""
        x = self.dropout(self.node_in(x))
        if self.position is not None and self.position_in is not None:
            pos_enc = self.position(edge_index, batch) if pos_enc is None else pos_enc
            x = x + self.position_in(pos_enc.to(self.position_in.weight.dtype))
        if not self.edge_feat:
            edge_attr = self.edge_in.weight.new_ones(edge_index.shape[1], 1)
        elif edge_attr is None:
            raise ValueError("this network needs edge_attr (edge_feat is True)")
        edge = self.edge_in(edge_attr)
        for layer in self.layers:
            x, edge = layer(x, edge_index, edge)
        return x


def mlp_readout(in_dim: int, out_dim: int, L: int = 2) -> nn.Sequential:
    """``L`` linear layers that halve the width, with ReLU, then one to ``out_dim``."""
    if in_dim >> L < 1:
        raise ValueError(f"a width of {in_dim} cannot be halved {L} times")
    widths = [in_dim >> i for i in range(L + 1)]
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], out_dim))


def _projection(width: int, types: int | None, features: int | None, names: str) -> nn.Embedding | nn.Linear:
    if types is not None and features is None:
        return nn.Embedding(types, width)
    if features is not None and types is None:
        return nn.Linear(features, width)
    raise ValueError(f"give either {names}")
