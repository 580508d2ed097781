"""Transformer-M's encodings of graph (2-D) and geometry (3-D): biases ``[B, H, i, j]`` for query i, key j.

The 2-D structure of a batch of graphs is found first: hop distances, edges along shortest paths, and degrees.

Luo et al. 2022, "One Transformer Can Understand Both 2D & 3D Molecular Data"; Ying et al. 2021, "Do
Transformers Really Perform Badly for Graph Representation?".
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from trajpred.nn.attention import Layout, mlp
from trajpred.nn.segment import LOWEST

#: Published hop count that stands for "no path".
UNREACHABLE = 510

EdgeEncoding = Literal["multi_hop", "single"]
Mode = Literal["2d", "3d", "2d+3d"]
#: π as truncated in the published code.
PUBLISHED_PI = 3.14159
#: exp(-50) is 2e-22. Below it, exponentials and products would be subnormal numbers, which are slow.
LEAST_EXPONENT = -50.0


def shortest_paths(
    edge_index: Tensor, padding: Layout, max_hops: int = UNREACHABLE - 1
) -> tuple[Tensor, Tensor]:
    r"""Search breadth-first from every node to every node of its graph, in all graphs at once.

    .. math::
        d_{ii} = 0, \quad d_{ij} = 1 + \min_{i → k} d_{kj}

    One step per hop: each edge i → k offers i the nodes that k reaches, in O(E · n). Among several shortest
    paths, the one whose first edge comes last in ``edge_index`` is taken.

    Args:
        edge_index: ``[2, E]`` int64 of the flattened batch, each edge within one graph.
        padding: place of each of the N nodes among graphs of ``n`` places.
        max_hops: nodes farther apart count as unreachable.

    Returns:
        hops ``[N, n]`` int64 from each node to each place of its graph (``UNREACHABLE``: no path), and the
        first edge of the path ``[N, n]`` int64, a column of ``edge_index`` (-1: no edge).
    """
    sender, receiver = edge_index
    n = padding.size
    place = padding.within
    hops = edge_index.new_full((place.shape[0], n), UNREACHABLE)
    hops = hops.scatter(1, place[:, None], 0)
    exporting = torch.compiler.is_exporting()  # the number of steps may then depend on no data
    if not exporting:
        max_hops = min(max_hops, n - 1)
    for hop in range(1, max_hops + 1):
        front = (hops == hop - 1).float()
        steps_to_front = front.index_select(0, receiver)
        reached = torch.zeros_like(front).index_add(0, sender, steps_to_front) > 0
        new = reached & (hops == UNREACHABLE)
        if not exporting and not new.any():
            break
        hops = hops.masked_fill(new, hop)
    # The first edge of a path i → j: the last i → k of those with d_kj = d_ij - 1.
    before = hops.index_select(0, sender)
    after = hops.index_select(0, receiver)
    is_first = (after == before - 1) & (before < UNREACHABLE)
    edge = torch.arange(sender.shape[0], device=hops.device)[:, None]
    candidate = torch.where(is_first, edge, -1)
    node = sender[:, None].expand_as(candidate)
    no_edge = torch.full_like(hops, -1)
    first_edge = no_edge.scatter_reduce(0, node, candidate, "amax")
    return hops, first_edge


def path_edges(first: Tensor, edge_index: Tensor, padding: Layout, length: int) -> Tensor:
    """List the edges of all shortest paths by following ``first``: ``[N, n, length]``, -1 after the end."""
    receiver = torch.cat((edge_index[1], edge_index.new_zeros(1)))  # the last one stands in for edge -1
    place = torch.arange(padding.size, device=first.device)
    node = torch.arange(first.shape[0], device=first.device)[:, None].expand_as(first)
    path = first.new_full((*first.shape, length), -1)
    for hop in range(length):
        edge = first[node, place]
        path[..., hop] = edge
        node = torch.where(edge < 0, node, receiver[edge])
    return path


def direct_edges(edge_index: Tensor, padding: Layout) -> Tensor:
    """Find the edge from each node to each place of its graph: column ``[N, n]`` int64, -1 if none.

    The last of parallel edges counts; a self loop is an edge.
    """
    sender, receiver = edge_index
    N = padding.within.shape[0]
    n = padding.size
    cell = sender * n + padding.within.index_select(0, receiver)
    edge = torch.arange(sender.shape[0], device=sender.device)
    no_edge = edge_index.new_full((N * n,), -1)
    return no_edge.scatter_reduce(0, cell, edge, "amax").reshape(N, n)


class GraphStructure(NamedTuple):
    """2-D structure of a padded batch of B graphs with at most n nodes; integers, computed once per batch.

    Attributes:
        hops: ``[B, n, n]`` hops from i to j, ``UNREACHABLE`` without a path, -1 at padding.
        edges: ``[B, n, n, L, F]`` types of the first L edges on a shortest path from i to j, or (L = 1) of
            the direct edge; 0 where there is none.
        in_degree: ``[B, n]`` number of nodes with an edge to this one, -1 at padding.
        out_degree: ``[B, n]`` number of nodes this one has an edge to, -1 at padding.
    """

    hops: Tensor
    edges: Tensor
    in_degree: Tensor
    out_degree: Tensor

    @classmethod
    def of(
        cls,
        edge_index: Tensor,
        edge_attr: Tensor,
        padding: Layout,
        *,
        edge_type: EdgeEncoding = "multi_hop",
        multi_hop_max_dist: int = 5,
        max_hops: int = UNREACHABLE - 1,
    ) -> GraphStructure:
        """Build from flattened edges.

        Args:
            edge_index: ``[2, E]`` int64 of the flattened batch; undirected edges in both directions.
            edge_attr: ``[E]`` or ``[E, F]`` int64 edge types from 1 on, all columns from one table.
            padding: place of each node in the padded batch.
            edge_type: ``multi_hop`` (edges along the path) or ``single`` (the direct edge).
            multi_hop_max_dist: L, the cut-off of the path.
            max_hops: nodes farther apart count as unreachable.

        Example: a path of three nodes and an isolated node; edge types 3 and 4.
            >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
            >>> one_graph = Layout.of_counts([4])
            >>> graph = GraphStructure.of(edges, torch.tensor([3, 3, 4, 4]), one_graph, multi_hop_max_dist=2)
            >>> graph.hops[0, 0], graph.edges[0, 0, 2, :, 0], graph.in_degree[0]
            (tensor([  0,   1,   2, 510]), tensor([3, 4]), tensor([1, 2, 1, 0]))
        """
        if edge_type not in ("multi_hop", "single"):
            raise ValueError(f"edge_type must be 'multi_hop' or 'single', not {edge_type!r}")
        hops, first = shortest_paths(edge_index, padding, max_hops)
        direct = direct_edges(edge_index, padding)
        if edge_type == "single":
            path = direct[..., None]
        else:
            path = path_edges(first, edge_index, padding, multi_hop_max_dist)
        types = edge_attr
        if types.ndim == 1:
            types = types[:, None]
        no_type = types.new_zeros(1, types.shape[1])
        types = torch.cat((types, no_type))  # the last row belongs to edge -1
        valid = padding.pad(torch.ones_like(padding.within)).bool()
        valid_pair = valid[:, None] & valid[:, :, None]
        adjacent = padding.pad((direct >= 0).long())
        return cls(
            hops=padding.pad(hops).masked_fill(~valid_pair, -1),
            edges=padding.pad(types[path]),
            in_degree=adjacent.sum(1).masked_fill(~valid, -1),
            out_degree=adjacent.sum(2).masked_fill(~valid, -1),
        )

    def graph(self, index: int, size: int) -> GraphStructure:
        """Return one graph, of ``size`` nodes, as a batch without padding."""
        places = slice(size)
        return GraphStructure(
            hops=self.hops[index, places, places][None],
            edges=self.edges[index, places, places][None],
            in_degree=self.in_degree[index, places][None],
            out_degree=self.out_degree[index, places][None],
        )


def table(rows: int, channels: int) -> nn.Embedding:
    """Create an embedding from N(0, 0.02²) whose row 0, for padding, is zero and stays zero."""
    embedding_table = nn.Embedding(rows, channels, padding_idx=0)
    nn.init.normal_(embedding_table.weight, std=0.02)
    with torch.no_grad():
        embedding_table.weight[0].zero_()
    return embedding_table


def pair_distances(positions: Tensor) -> Tensor:
    """Compute the distances |r_j - r_i|: ``[B, n, 2 or 3]`` -> ``[B, n, n]``."""
    difference = positions[:, None] - positions[:, :, None]
    return torch.linalg.vector_norm(difference, dim=-1)


def mask_graphs(term: Tensor, keep: Tensor | None) -> Tensor:
    """Zero the graphs of ``[B, ...]`` whose ``keep`` ``[B]`` is False."""
    if keep is None:
        return term
    one_per_axis = [1] * (term.ndim - 1)
    return term * keep.to(term.dtype).reshape(-1, *one_per_axis)


def look_up(rows: Tensor, index: Tensor) -> Tensor:
    """Return ``rows[index]`` with the channels first: ``[R, H]`` and ``[B, ...]`` int64 -> ``[H, B, ...]``.

    The gradient of a gather is a few times as fast as that of an embedding, and all pairs are looked up.
    """
    channels = rows.shape[1]
    places = index.reshape(1, -1).expand(channels, -1)
    return rows.T.gather(1, places).reshape(channels, *index.shape)


def trainable_rows(embedding_table: nn.Embedding) -> Tensor:
    """Return all rows of a table; the one for padding gets no gradient."""
    number = torch.arange(embedding_table.num_embeddings, device=embedding_table.weight.device)
    return embedding_table(number)


class ShortestPathBias(nn.Module):
    r"""Φ^SPD_ij: one learnable scalar per head and hop count.

    The table has ``num_spatial`` rows: 0 for padding, h + 1 for h hops (the last but one also for more), the
    last for pairs without a path.

    Shapes: hops ``[B, n, n]`` (``UNREACHABLE``: no path, -1: padding) -> ``[B, H, n, n]``.
    """

    def __init__(self, num_heads: int, num_spatial: int = 512) -> None:
        super().__init__()
        if num_spatial < 3:
            raise ValueError(f"num_spatial {num_spatial} leaves no row between padding and unreachable")
        self.table = table(num_spatial, num_heads)

    def forward(self, hops: Tensor) -> Tensor:
        last = self.table.num_embeddings - 1
        reachable_row = (hops + 1).clamp(max=last - 1)
        row = torch.where(hops >= UNREACHABLE, last, reachable_row)
        return look_up(trainable_rows(self.table), row).transpose(0, 1)


class EdgeBias2D(nn.Module):
    r"""Φ^Edge_ij from the types of the edges on a shortest path i → j.

    .. math::
        Φ^{Edge}_{ij} = \frac1N \sum_{k ≤ L} \Big(\frac1F \sum_f T[e_{kf}]\Big) M_k, \quad
        N = \mathrm{clamp}(d_{ij}, 1, L)

    with one row of T per type, an H × H matrix M_k per hop and the hop count d. As in the published code; the
    paper has inner products with one vector per hop instead. ``single``: the mean of T over the direct edge.

    Args:
        num_heads: H.
        num_edges: number of edge types, 1 to ``num_edges``; 0 is "no edge", a zero row.
        edge_type: ``multi_hop`` or ``single``.
        multi_hop_max_dist: cut-off L.
        num_edge_dis: number of matrices M_k.

    Shapes: hops ``[B, n, n]``, edges ``[B, n, n, L', F]`` -> ``[B, H, n, n]``.
    """

    def __init__(
        self,
        num_heads: int,
        num_edges: int = 512 * 3,
        edge_type: EdgeEncoding = "multi_hop",
        multi_hop_max_dist: int = 5,
        num_edge_dis: int = 128,
    ) -> None:
        super().__init__()
        if edge_type not in ("multi_hop", "single"):
            raise ValueError(f"edge_type must be 'multi_hop' or 'single', not {edge_type!r}")
        if not 1 <= multi_hop_max_dist <= num_edge_dis:
            problem = f"multi_hop_max_dist {multi_hop_max_dist} must be in 1..num_edge_dis {num_edge_dis}"
            raise ValueError(problem)
        self.multi_hop_max_dist = multi_hop_max_dist
        self.table = table(num_edges + 1, num_heads)
        self.hop = None
        if edge_type == "multi_hop":
            self.hop = nn.Parameter(0.02 * torch.randn(num_edge_dis, num_heads, num_heads))

    def forward(self, hops: Tensor, edges: Tensor) -> Tensor:
        """Return the bias ``[B, H, n, n]`` of the edges along each path of ``hops`` ``[B, n, n]`` edges."""
        if self.hop is None:
            if edges.shape[3] != 1:
                raise ValueError("edge_type 'single' takes the direct edges [B, n, n, 1, F]")
            return look_up(trainable_rows(self.table), edges[..., 0, :]).mean(-1).transpose(0, 1)
        # M_k is applied to the table instead of to the pairs.
        rows = trainable_rows(self.table)
        total = rows.new_zeros(rows.shape[1], *hops.shape)
        for k in range(min(edges.shape[3], self.multi_hop_max_dist)):
            of_hop = look_up(rows @ self.hop[k], edges[..., k, :])
            total = total + of_hop.mean(-1)
        steps = hops.clamp(1, self.multi_hop_max_dist)
        return (total / steps).transpose(0, 1)


class _Gaussians(torch.autograd.Function):
    """Densities of x ``[N]`` under K Gaussians, ``[N, K]``.

    Deviations are one product, and so is each gradient: N · K numbers are read and written a third as often
    as with single operations.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        height = 1 / ((2 * PUBLISHED_PI) ** 0.5 * std)
        exponent = _deviations(x, mean, std).square_().mul_(-0.5)
        density = exponent.clamp_(min=LEAST_EXPONENT).exp_().mul_(height)
        ctx.save_for_backward(x, mean, std, density)
        return density

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, mean, std, density = ctx.saved_tensors
        weighted = gradient * density
        total = weighted.sum(0)
        slope = _deviations(x, mean, std).mul_(weighted)
        slope_total, slope_times_x = torch.stack((torch.ones_like(x), x)) @ slope
        of_mean = slope_total / std
        squares = (slope_times_x - mean * slope_total) / std  # Σ of weighted squared deviations
        of_x = -(slope @ (1 / std)[:, None])
        return of_x[:, 0], of_mean, (squares - total) / std


def _deviations(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Compute (x - μ) / σ: ``[N]`` and ``[K]`` twice -> ``[N, K]``."""
    terms = torch.stack((x, torch.ones_like(x)), -1)
    return terms @ torch.stack((1 / std, -mean / std))


class GaussianDistanceKernel(nn.Module):
    r"""K Gaussians of the distance, scaled and shifted per type of pair.

    .. math::
        ψ^k_{ij} = \frac{1}{\sqrt{2π}\, σ_k}
                   \exp\Big(-\frac12 \Big(\frac{γ_{ij} d_{ij} + β_{ij} - μ_k}{σ_k}\Big)^2\Big),
        \quad σ_k = |s_k| + 10^{-2}

    γ and β, shared by all k, are sums of two rows, one per end of the pair, so γ is 2 before training. The
    sign is that of the published code: positive. Computed in float32 or wider.

    γ and β have ``edge_types`` rows.

    Shapes: distance ``[B, n, n]``, pair_type ``[B, n, n, 2]`` int64 -> ``[B, n, n, K]``. Two tensors that
    broadcast, ``[B, n, 1]`` and ``[B, 1, n]`` if types belong to nodes, are faster.

    Example:
        >>> kernel = GaussianDistanceKernel(K=4, edge_types=3)
        >>> kernel(torch.rand(1, 5, 5), torch.zeros(1, 5, 5, 2, dtype=torch.long)).shape
        torch.Size([1, 5, 5, 4])
    """

    def __init__(self, K: int = 128, edge_types: int = 512 * 3) -> None:
        super().__init__()
        self.mean = nn.Parameter(3 * torch.rand(K))
        self.std = nn.Parameter(3 * torch.rand(K))
        self.scale = nn.Parameter(torch.ones(edge_types))
        self.offset = nn.Parameter(torch.zeros(edge_types))

    def forward(self, distance: Tensor, pair_type: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        first, second = pair_type.unbind(-1) if isinstance(pair_type, Tensor) else pair_type
        with torch.autocast(distance.device.type, enabled=False):
            dtype = torch.promote_types(self.mean.dtype, torch.float32)
            std = self.std.to(dtype).abs() + 1e-2
            scale = self.scale[first] + self.scale[second]
            offset = self.offset[first] + self.offset[second]
            scaled = scale * distance.to(dtype) + offset
            density = _Gaussians.apply(scaled.flatten(), self.mean.to(dtype), std)
            return density.to(self.mean.dtype).unflatten(0, distance.shape)


class DistanceBias(nn.Module):
    """Φ^3D = W₂ GELU(W₁ ψ + b₁) + b₂ for Gaussians ψ, with the exact GELU and W₁ shared by the heads.

    Shapes: ``[B, n, n, num_kernel]`` -> ``[B, num_heads, n, n]``.
    """

    def __init__(self, num_heads: int, num_kernel: int = 128) -> None:
        super().__init__()
        self.net = mlp(num_kernel, num_kernel, num_heads)

    def forward(self, gaussians: Tensor) -> Tensor:
        return self.net(gaussians).permute(0, 3, 1, 2)


class StructuralBias(nn.Module):
    r"""Φ = Φ^SPD + Φ^Edge + Φ^3D, the terms whose input is given, masked.

    Every graph starts with a graph token.

    Row 0 and column 0 (the token as query and as key) get t_h, one scalar per head. Padded keys and pairs
    that are ``max_spd`` or more hops apart get :data:`~trajpred.nn.segment.LOWEST`.

    Args:
        num_heads: H.
        num_edges: see :class:`EdgeBias2D`.
        num_spatial: see :class:`ShortestPathBias`.
        num_edge_dis: see :class:`EdgeBias2D`.
        edge_type: see :class:`EdgeBias2D`.
        multi_hop_max_dist: see :class:`EdgeBias2D`.
        num_3d_bias_kernel: number of Gaussians K.
        mode: terms to build, ``2d``, ``3d`` or ``2d+3d``.
        max_spd: None masks no pair; unreachable pairs then have a bias of their own. The mask applies in
            every mode if hop counts are given.

    Shapes: mask ``[B, n]`` bool, True = valid; structure of ``[B, n, n]``; gaussians ``[B, n, n, K]``;
    keep_2d, keep_3d ``[B]`` bool, False omits that term of a graph -> ``[B, H, 1 + n, 1 + n]``.
    """

    def __init__(
        self,
        num_heads: int,
        num_edges: int = 512 * 3,
        num_spatial: int = 512,
        num_edge_dis: int = 128,
        edge_type: EdgeEncoding = "multi_hop",
        multi_hop_max_dist: int = 5,
        num_3d_bias_kernel: int = 128,
        mode: Mode = "2d+3d",
        max_spd: int | None = None,
    ) -> None:
        super().__init__()
        if mode not in ("2d", "3d", "2d+3d"):
            raise ValueError(f"mode must be '2d', '3d' or '2d+3d', not {mode!r}")
        if max_spd is not None and max_spd < 1:
            raise ValueError(f"max_spd must be at least 1, is {max_spd}")
        self.max_spd = max_spd
        self.path: ShortestPathBias | None = None
        self.edge: EdgeBias2D | None = None
        if "2d" in mode:
            self.path = ShortestPathBias(num_heads, num_spatial)
            self.edge = EdgeBias2D(num_heads, num_edges, edge_type, multi_hop_max_dist, num_edge_dis)
        self.distance: DistanceBias | None = None
        if "3d" in mode:
            self.distance = DistanceBias(num_heads, num_3d_bias_kernel)
        self.graph_token = nn.Parameter(0.02 * torch.randn(num_heads))

    def forward(
        self,
        mask: Tensor,
        structure: GraphStructure | None = None,
        gaussians: Tensor | None = None,
        keep_2d: Tensor | None = None,
        keep_3d: Tensor | None = None,
    ) -> Tensor:
        """Return the sum of all biases ``[B, H, n + 1, n + 1]``; the graph token comes first."""
        B, n = mask.shape
        pairs = self.graph_token.new_zeros(B, self.graph_token.shape[0], n, n)
        if self.path is not None and self.edge is not None and structure is not None:
            in_plane = self.path(structure.hops) + self.edge(structure.hops, structure.edges)
            pairs = pairs + mask_graphs(in_plane, keep_2d)
        if self.distance is not None and gaussians is not None:
            pairs = pairs + mask_graphs(self.distance(gaussians), keep_3d)
        pairs = pairs.to(torch.promote_types(pairs.dtype, torch.float32))  # float16 cannot hold LOWEST
        token = self.graph_token.to(pairs.dtype)[None, :, None, None]
        first_column = token.expand(B, -1, n, 1)
        first_row = token.expand(B, -1, 1, n + 1)
        bias = torch.cat((first_row, torch.cat((first_column, pairs), -1)), -2)
        hidden = pad(~mask, (1, 0))[:, None, None]
        if self.max_spd is not None and structure is not None:
            is_far = pad(structure.hops >= self.max_spd, (1, 0, 1, 0))
            hidden = hidden | is_far[:, None]
        return bias.masked_fill(hidden, LOWEST)
