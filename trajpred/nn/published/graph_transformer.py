"""The Graph Transformer layer, without and with an edge stream.

V. P. Dwivedi, X. Bresson: A Generalization of Transformer Networks to Graphs (2020),
https://arxiv.org/abs/2012.09699, as implemented in github.com/graphdeeplearning/graphtransformer.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch_geometric.nn import BatchNorm
from torch_geometric.utils import scatter, to_dense_adj

from trajpred.data.geometry import laplacian_eigenvectors
from trajpred.nn.segment import both, segment_sum


def clamped_softmax(score: Tensor, receiver: Tensor, num_receivers: int, epsilon: float = 0.0) -> Tensor:
    r"""Normalise clamped scores over the edges of each receiver.

    .. math:: α_e = \frac{w_e}{ε + \sum_{e' \to i(e)} w_{e'}}, \qquad w_e = \exp(\mathrm{clamp}(s_e, -5, 5))

    Shapes: score ``[E, ...]``, receiver i(e) ``[E]`` int64 -> ``[E, ...]``.
    """
    weight = torch.exp(score.clamp(-5, 5))  # no maximum needs to be subtracted
    total = segment_sum(weight, receiver, num_receivers) + epsilon
    return weight / total.index_select(0, receiver)


class ClampedAttention(nn.Module):
    r"""Attention of both layers.

    .. math::
        \hat s_{ij} = \frac{q_i ⊙ k_j}{\sqrt C} \,(⊙\, W_E e_{ij}), \qquad
        α_{ij} = \mathrm{clamped\,softmax}_j \sum_c \hat s_{ij,c}, \qquad
        m_i = \sum_j α_{ij} v_j

    per head of C channels, q = W_Q x_i, k = W_K x_j, v = W_V x_j. The clamp acts on the sum over channels.
    Parallel edges count separately; m is exactly 0 for a receiver without edges.

    Takes the arguments of the layers. Without ``edge_dim`` there is no W_E.

    Shapes: x ``[N, in]`` or (``[S, in_s]``, ``[R, in_r]``), edge_index ``[2, E]`` (sender, receiver),
    edge_attr ``[E, edge_dim]`` if and only if there is a W_E -> m ``[R, out]`` and ŝ ``[E, out]``, heads
    concatenated, and α ``[E, H]``.
    """

    def __init__(
        self,
        in_dim: int | tuple[int, int],
        out_dim: int,
        num_heads: int,
        use_bias: bool = False,
        edge_dim: int | None = None,
        epsilon: float = 0.0,
    ) -> None:
        super().__init__()
        if num_heads < 1 or out_dim % num_heads:
            raise ValueError(f"out_dim {out_dim} must be a multiple of num_heads {num_heads}")
        sender_dim, receiver_dim = both(in_dim)
        self.num_heads = num_heads
        self.epsilon = epsilon
        self.query = nn.Linear(receiver_dim, out_dim, bias=use_bias)
        self.key = nn.Linear(sender_dim, out_dim, bias=use_bias)
        self.value = nn.Linear(sender_dim, out_dim, bias=use_bias)
        self.edge: nn.Linear | None = None
        if edge_dim is not None:
            self.edge = nn.Linear(edge_dim, out_dim, bias=use_bias)

    def forward(
        self, x: Tensor | tuple[Tensor, Tensor], edge_index: Tensor, edge_attr: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return messages m, vector scores ŝ and weights α."""
        x_sender, x_receiver = both(x)
        sender, receiver = edge_index
        q = self._by_head(self.query(x_receiver))
        k = self._by_head(self.key(x_sender))
        v = self._by_head(self.value(x_sender))
        edge = None
        if self.edge is not None:
            edge = self._by_head(self.edge(edge_attr))
        # Exponentials and sums over many edges stay out of half precision.
        with torch.autocast(q.device.type, enabled=False):
            dtype = torch.promote_types(q.dtype, torch.float32)
            query = q.to(dtype) / q.shape[-1] ** 0.5
            score = query.index_select(0, receiver) * k.to(dtype).index_select(0, sender)
            if edge is not None:
                score = score * edge
            weight = clamped_softmax(score.sum(-1), receiver, q.shape[0], self.epsilon)
            message = weight[..., None] * v.to(dtype).index_select(0, sender)
            pooled = segment_sum(message, receiver, q.shape[0])
        return pooled.flatten(1).to(q.dtype), score.flatten(1).to(q.dtype), weight

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1))


class StreamUpdate(nn.Module):
    r"""Update of one stream (nodes or edges) from the messages m of the attention.

    .. math::
        x ← N_1(x + O\,\mathrm{drop}(m)), \qquad x ← N_2(x + W_2\,\mathrm{drop}(\mathrm{ReLU}(W_1 x)))

    O, W₁ (to twice the width) and W₂ have biases. N is layer normalisation, then batch normalisation.

    Args:
        dropout: rate before O and within the feed-forward network.
        layer_norm: normalise each row; precedes batch normalisation if both are on.
        batch_norm: normalise each channel.
        residual: add x twice, as above, which needs equal widths; False omits both ``x +``.

    Shapes: x ``[N, in_dim]``, m ``[N, out_dim]`` -> ``[N, out_dim]``.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        dropout: float = 0.0,
        layer_norm: bool = False,
        batch_norm: bool = True,
        residual: bool = True,
    ) -> None:
        super().__init__()
        if residual and in_dim != out_dim:
            raise ValueError(f"a residual connection needs equal widths, not {in_dim} and {out_dim}")
        self.residual = residual
        self.out = nn.Linear(out_dim, out_dim)
        self.norm1 = _norms(out_dim, layer_norm, batch_norm)
        self.ffn1 = nn.Linear(out_dim, 2 * out_dim)
        self.ffn2 = nn.Linear(2 * out_dim, out_dim)
        self.norm2 = _norms(out_dim, layer_norm, batch_norm)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, message: Tensor) -> Tensor:
        out = self.out(self.dropout(message))
        if self.residual:
            out = x + out
        x = self.norm1(out)
        # In place, because streams of edges are long: dropout commutes with ReLU.
        hidden = dropout(self.ffn1(x), self.dropout.p, self.training, inplace=True).relu_()
        out = self.ffn2(hidden)
        if self.residual:
            out = x + out
        return self.norm2(out)


class DwivediGraphTransformerLayer(nn.Module):
    """Graph Transformer layer without edge features: attention (ε = 0), then the update of the nodes.

    Args:
        in_dim: channels of the nodes, or of (senders, receivers).
        out_dim: H · C.
        num_heads: number of heads H.
        use_bias: biases of W_Q, W_K, W_V and W_E.
        update: dropout, norms and residual connections, see :class:`StreamUpdate`.

    Example:
        >>> layer = DwivediGraphTransformerLayer(in_dim=8, out_dim=8, num_heads=2)
        >>> layer(torch.randn(4, 8), torch.tensor([[0, 1, 2], [1, 2, 1]])).shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        in_dim: int | tuple[int, int],
        out_dim: int,
        num_heads: int,
        use_bias: bool = False,
        **update: Any,
    ) -> None:
        super().__init__()
        self.attention = ClampedAttention(in_dim, out_dim, num_heads, use_bias)
        _, receiver_dim = both(in_dim)
        self.nodes = StreamUpdate(receiver_dim, out_dim, **update)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor,
        edge_attr: None = None,
        *,
        return_attention: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return nodes ``[R, out_dim]``, with ``return_attention`` also α ``[E, H]``."""
        if edge_attr is not None:
            raise ValueError("this layer has no edge stream: use DwivediGraphTransformerEdgeLayer")
        message, _, weight = self.attention(x, edge_index)
        _, receiver = both(x)
        out = self.nodes(receiver, message)
        if return_attention:
            return out, weight
        return out


class DwivediGraphTransformerEdgeLayer(nn.Module):
    """Graph Transformer layer with an edge stream.

    Attention uses edge features (ε = 1e-6). The nodes are updated from its messages m; the edges, with their
    own weights, from its vector scores ŝ before the clamp.

    Args:
        in_dim, out_dim, num_heads, use_bias: see :class:`DwivediGraphTransformerLayer`.
        edge_dim: channels of the edges, by default those of the receivers; ``out_dim`` with ``residual``.
        update_edges: False returns the edges unchanged and creates no weights for them (for a last layer).
        update: dropout, norms and residual connections of both streams, see :class:`StreamUpdate`.

    Example:
        >>> layer = DwivediGraphTransformerEdgeLayer(in_dim=8, out_dim=8, num_heads=2)
        >>> x, edge_index = torch.randn(4, 8), torch.tensor([[0, 1, 2], [1, 2, 1]])
        >>> x, edge_attr = layer(x, edge_index, torch.randn(3, 8))
        >>> x.shape, edge_attr.shape
        (torch.Size([4, 8]), torch.Size([3, 8]))
    """

    def __init__(
        self,
        in_dim: int | tuple[int, int],
        out_dim: int,
        num_heads: int,
        use_bias: bool = False,
        *,
        edge_dim: int | None = None,
        update_edges: bool = True,
        **update: Any,
    ) -> None:
        super().__init__()
        _, receiver_dim = both(in_dim)
        if edge_dim is None:
            edge_dim = receiver_dim
        self.attention = ClampedAttention(in_dim, out_dim, num_heads, use_bias, edge_dim, epsilon=1e-6)
        self.nodes = StreamUpdate(receiver_dim, out_dim, **update)
        self.edges: StreamUpdate | None = None
        if update_edges:
            self.edges = StreamUpdate(edge_dim, out_dim, **update)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        *,
        return_attention: bool = False,
    ) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
        """Return nodes ``[R, out_dim]`` and edges ``[E, out_dim]``; with ``return_attention`` also α."""
        if edge_attr is None:
            raise ValueError("edge_attr is required: without edge features use DwivediGraphTransformerLayer")
        message, score, weight = self.attention(x, edge_index, edge_attr)
        _, receiver = both(x)
        out = self.nodes(receiver, message)
        edges = edge_attr
        if self.edges is not None:
            edges = self.edges(edge_attr, score)
        if return_attention:
            return out, edges, weight
        return out, edges


def _norms(width: int, layer_norm: bool, batch_norm: bool) -> nn.Sequential:
    norms = nn.Sequential()
    if layer_norm:
        norms.add_module("layer", nn.LayerNorm(width))
    if batch_norm:  # a single row has no variance: it is normalised by the running statistics
        norms.add_module("batch", BatchNorm(width, allow_single_element=True))
    return norms


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
        readout: ``mean``, ``sum`` or ``max`` over the nodes of a graph; 0 for a graph without nodes.
        edge_feat: False replaces edge features by the constant 1.
        lap_pos_enc: add the positional encoding.
        pos_enc_dim: number of its columns.
        n_classes: values per graph.
        update: dropout, norms and residual connections of all layers, see :class:`StreamUpdate`.

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
        readout: Literal["mean", "sum", "max"] = "mean",
        edge_feat: bool = True,
        lap_pos_enc: bool = True,
        pos_enc_dim: int = 8,
        n_classes: int = 1,
        **update: Any,
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
        self.position_in: nn.Linear | None = None
        if lap_pos_enc:
            self.position_in = nn.Linear(pos_enc_dim, hidden_dim)
        self.dropout = nn.Dropout(in_feat_dropout)
        self.layers = nn.ModuleList()
        for number in range(L):
            is_last = number == L - 1
            width = out_dim if is_last else hidden_dim
            layer = DwivediGraphTransformerEdgeLayer(
                hidden_dim, width, n_heads, update_edges=not is_last, **update
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
            batch_size: number of graphs, by default those that ``batch`` names.
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
        if self.position_in is not None:
            if pos_enc is None:
                pos_enc = laplacian_positional_encoding(edge_index, batch, self.position_in.in_features)
                if self.training:
                    pos_enc = with_random_signs(pos_enc)
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
    """Embed ``types`` or map ``features``, whichever is given: the arguments ``names``."""
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

    Exactly one eigenvector is dropped, also for disconnected graphs. Signs and the basis of a repeated
    eigenvalue are arbitrary. A graph of n nodes has n - 1 columns; further columns are 0. Computed in float64
    by :func:`trajpred.data.geometry.laplacian_eigenvectors`, which onboard bundles use, too.

    Shapes: edge_index ``[2, E]`` of the flattened batch; batch ``[N]``, ascending, graph of each node ->
    ``[N, k]`` in torch's default dtype.
    """
    _check_positive("k", k)
    count, mask = adjacency(edge_index, batch)
    vectors = [torch.zeros(0, k, dtype=torch.float64)]
    for graph, n in zip(count.cpu().numpy(), mask.sum(1).tolist(), strict=True):
        vectors.append(torch.from_numpy(laplacian_eigenvectors(graph[:n, :n], k)))
    return torch.cat(vectors).to(count.device, torch.get_default_dtype())


@torch.no_grad()
def random_walk_positional_encoding(edge_index: Tensor, batch: Tensor, walk_length: int) -> Tensor:
    r"""Compute the probabilities of return after 1, 2, … steps (Dwivedi et al. 2022, arXiv:2110.07875).

    .. math:: \text{node } i \text{ gets } (P_{ii}, (P^2)_{ii}, …), \quad P = D^{-1} A

    where the walk follows the edges and the out-degree D is at least 1. Equals PyG's ``AddRandomWalkPE`` for
    one graph without parallel edges.

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
    returns: list[Tensor] = []
    for _ in range(walk_length):
        returns.append(walk.diagonal(dim1=-2, dim2=-1))
        walk = walk @ step
    return torch.stack(returns, -1)[mask].to(torch.get_default_dtype())


def with_random_signs(encoding: Tensor) -> Tensor:
    """Draw a sign for each column of a Laplacian encoding, as is done in training."""
    bit = torch.randint(0, 2, encoding.shape[-1:], device=encoding.device)
    return encoding * (2 * bit - 1)


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
