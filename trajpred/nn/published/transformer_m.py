"""Transformer-M (Luo et al. 2022): one encoder for graphs (2-D), point sets (3-D), and graphs in space."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trajpred.nn.published.biased_encoder import BiasedEncoderLayer, Norm
from trajpred.nn.published.shortest_path import EdgeEncoding, GraphStructure
from trajpred.nn.published.structural_bias import (
    GaussianDistanceKernel,
    Mode,
    StructuralBias,
    kept,
    relative_positions,
    table,
)


class NodeEncoding(nn.Module):
    r"""What the first layer reads: types and centralities of the nodes, after a learnable graph token.

    .. math::
        x_i = \sum_f E[t_{if}] + z_i + E_{in}[d^{in}_i + 1] + E_{out}[d^{out}_i + 1]
            + 0.01\, \Big(W \sum_j ψ_{ij} + b\Big)

    The sum of distance Gaussians runs over all nodes, i itself included, padding excluded. Degrees beyond
    the table share its last row. z are features of the nodes beyond their types, if any.

    Args:
        num_atoms: node types, 1 to ``num_atoms``; 0 is padding, a zero row. (In the publication, atoms.)
        num_in_degree, num_out_degree: rows of the degree tables.
        embedding_dim: channels D.
        num_3d_bias_kernel: Gaussians K.
        mode: the terms to build, ``2d``, ``3d`` or ``2d+3d``.

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
        self.in_degree = table(num_in_degree, embedding_dim) if "2d" in mode else None
        self.out_degree = table(num_out_degree, embedding_dim) if "2d" in mode else None
        self.distance = nn.Linear(num_3d_bias_kernel, embedding_dim) if "3d" in mode else None
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
            into = _row(self.in_degree, structure.in_degree + 1)
            x = x + kept(into + _row(self.out_degree, structure.out_degree + 1), keep_2d)
        if gaussians is not None and self.distance is not None:
            x = x + kept(0.01 * self.summed_distance(gaussians, mask), keep_3d)
        return torch.cat((self.graph_token.to(x.dtype).expand(len(x), 1, -1), x), 1)

    def summed_distance(self, gaussians: Tensor, mask: Tensor) -> Tensor:
        """W Σ_j ψ_ij + b: ``[B, n, D]``."""
        assert self.distance is not None, "this encoding was built without distances"
        return self.distance(torch.einsum("bijk,bj->bik", gaussians, mask.to(gaussians.dtype)))


class TransformerMEncoder(nn.Module):
    r"""Transformer-M: structural biases and centralities around a plain transformer encoder.

    .. math::
        x^0 = \mathrm{NodeEncoding}, \quad x^{l+1} = \mathrm{BiasedEncoderLayer}_l(x^l, Φ)

    One set of weights reads graphs without positions, positions without a graph, or both: a term is used if
    it was built (``mode``) and its input is given. Where a batch brings both, training chooses for every
    graph which of them it shows, with probabilities ``mode_prob`` for (both, 2-D, 3-D). Hop counts used by
    ``max_spd`` and the graph token's bias stay in every mode, as in the publication's code.

    Names and defaults are those of the publication's encoder, table sizes those of its task. Beyond it:
    ``norm`` (there ``sandwich_ln``), ``mode`` (there ``add_3d``, ``no_2d``), ``max_spd`` (there of the data),
    ``share_bias_across_layers`` (false: the paper's text, every layer its own Φ; true: its code, one for
    all) and ``num_pair_types``. Left out: quantisation noise, layer drop, the force head.

    Args:
        num_atoms, num_in_degree, num_out_degree: see :class:`NodeEncoding`.
        num_edges, num_spatial, num_edge_dis, edge_type, multi_hop_max_dist, max_spd: see
            :class:`~trajpred.nn.published.structural_bias.StructuralBias`.
        num_encoder_layers: number of layers.
        embedding_dim, ffn_embedding_dim, num_attention_heads, dropout, attention_dropout,
            activation_dropout, activation_fn, norm: see
            :class:`~trajpred.nn.published.biased_encoder.BiasedEncoderLayer`.
        droppath_prob: stochastic depth of the last layer, growing linearly from 0.
        encoder_normalize_before: LayerNorm before the first layer.
        num_3d_bias_kernel: Gaussians K; memory grows with B · n² · K.
        num_pair_types: rows of the distance scale and offset. By default one per node type and end:
            the pair (i, j) has rows (t_i, 1 + num_atoms + t_j), t the first column of ``node_type``.
        mode: ``2d``, ``3d`` or ``2d+3d``.
        mode_prob: three probabilities that sum to 1, or such a list as a string.

    Shapes: node_type ``[B, n]`` or ``[B, n, F]`` int64 from 1 on (0: padding), mask ``[B, n]`` bool (True:
    valid; by default where the first type is not 0), structure of ``[B, n, n]``, positions
    ``[B, n, 2 or 3]``, pair_type ``[B, n, n, 2]``, features ``[B, n, D]`` -> ``[B, 1 + n, D]``, row 0 the
    graph token; finite at padding too.

    Example:
        >>> sizes = dict(num_atoms=4, num_edges=3, embedding_dim=8, ffn_embedding_dim=16)
        >>> encoder = TransformerMEncoder(**sizes, num_attention_heads=2, num_encoder_layers=2).eval()
        >>> node_type = torch.tensor([[1, 4, 2]])
        >>> encoder(node_type, positions=torch.randn(1, 3, 3)).shape
        torch.Size([1, 4, 8])
    """

    def __init__(
        self,
        num_atoms: int = 512 * 9,
        num_in_degree: int = 512,
        num_out_degree: int = 512,
        num_edges: int = 512 * 3,
        num_spatial: int = 512,
        num_edge_dis: int = 128,
        edge_type: EdgeEncoding = "multi_hop",
        multi_hop_max_dist: int = 5,
        num_encoder_layers: int = 6,
        embedding_dim: int = 768,
        ffn_embedding_dim: int = 3072,
        num_attention_heads: int = 8,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        activation_dropout: float = 0.1,
        encoder_normalize_before: bool = False,
        activation_fn: str = "relu",
        droppath_prob: float = 0.0,
        num_3d_bias_kernel: int = 128,
        mode_prob: str | Sequence[float] = "0.2,0.2,0.6",
        *,
        mode: Mode = "2d+3d",
        norm: Norm = "pre",
        max_spd: int | None = None,
        share_bias_across_layers: bool = True,
        num_pair_types: int | None = None,
    ) -> None:
        super().__init__()
        self.mode_prob, self.num_atoms = probabilities(mode_prob), num_atoms
        biases = 1 if share_bias_across_layers else num_encoder_layers
        self.biases = nn.ModuleList(
            StructuralBias(
                num_attention_heads,
                num_edges=num_edges,
                num_spatial=num_spatial,
                num_edge_dis=num_edge_dis,
                edge_type=edge_type,
                multi_hop_max_dist=multi_hop_max_dist,
                num_3d_bias_kernel=num_3d_bias_kernel,
                mode=mode,
                max_spd=max_spd,
            )
            for _ in range(biases)
        )
        self.nodes = NodeEncoding(
            num_atoms, num_in_degree, num_out_degree, embedding_dim, num_3d_bias_kernel, mode
        )
        pair_types = 2 * (num_atoms + 1) if num_pair_types is None else num_pair_types
        self.kernel = GaussianDistanceKernel(num_3d_bias_kernel, pair_types) if "3d" in mode else None
        self.norm = nn.LayerNorm(embedding_dim) if encoder_normalize_before else None
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            BiasedEncoderLayer(
                embedding_dim,
                ffn_embedding_dim,
                num_attention_heads,
                dropout,
                attention_dropout,
                activation_dropout,
                activation_fn,
                droppath_prob * layer / max(num_encoder_layers - 1, 1),
                norm,
            )
            for layer in range(num_encoder_layers)
        )

    def forward(
        self,
        node_type: Tensor,
        mask: Tensor | None = None,
        structure: GraphStructure | None = None,
        positions: Tensor | None = None,
        *,
        pair_type: Tensor | None = None,
        features: Tensor | None = None,
        return_states: bool = False,
    ) -> Tensor | list[Tensor]:
        """With ``return_states`` the input of the first layer and the output of each: a list of tensors."""
        node_type = node_type[..., None] if node_type.ndim == 2 else node_type
        mask = node_type[..., 0] != 0 if mask is None else mask
        gaussians = self._gaussians(node_type[..., 0], positions, pair_type)
        shown = self._shown(structure, gaussians)
        x = self.nodes(node_type, mask, structure, gaussians, features=features, **shown._asdict())
        x = self.dropout(x if self.norm is None else self.norm(x))
        biases = [bias(mask, structure, gaussians, *shown) for bias in self.biases]
        states = [x]
        for i, layer in enumerate(self.layers):
            states.append(layer(states[-1], biases[i % len(biases)]))
        return states if return_states else states[-1]

    def _gaussians(self, kind: Tensor, positions: Tensor | None, pair_type: Tensor | None) -> Tensor | None:
        if self.kernel is None or positions is None:
            return None
        if pair_type is None:
            n = kind.shape[1]
            ends = kind[:, :, None].expand(-1, n, n), (1 + self.num_atoms + kind)[:, None].expand(-1, n, n)
            pair_type = torch.stack(ends, -1)
        return self.kernel(relative_positions(positions)[0], pair_type)

    def _shown(self, structure: GraphStructure | None, gaussians: Tensor | None) -> _Shown:
        """Which of its two descriptions each graph shows."""
        if not self.training or structure is None or gaussians is None or self.nodes.in_degree is None:
            return _Shown(None, None)
        both, plane, _ = self.mode_prob
        bounds = torch.tensor((both, both + plane), device=gaussians.device)
        draw = torch.rand(len(gaussians), device=gaussians.device)
        choice = torch.bucketize(draw, bounds, right=True)  # 0 both, 1 2-D, 2 3-D
        return _Shown(choice != 2, choice != 1)


class _Shown(NamedTuple):
    keep_2d: Tensor | None
    keep_3d: Tensor | None


def probabilities(mode_prob: str | Sequence[float]) -> tuple[float, ...]:
    """``"0.2,0.2,0.6"`` or its numbers, as numbers. (The publication takes its default for a bad string.)"""
    text = mode_prob.split(",") if isinstance(mode_prob, str) else mode_prob
    chances = tuple(float(chance) for chance in text)
    if len(chances) != 3 or min(chances) < 0 or not isclose(sum(chances), 1):
        raise ValueError(f"mode_prob must be three probabilities that sum to 1, not {mode_prob!r}")
    return chances


def _row(rows: nn.Embedding, index: Tensor) -> Tensor:
    return rows(index.clamp(max=rows.num_embeddings - 1))
