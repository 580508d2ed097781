"""Transformer-M (Luo et al. 2022): one encoder for graphs (2-D), point sets (3-D), and graphs in space."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

import torch
from torch import Tensor, nn

from trajpred.nn.published.padded_attention import BiasedEncoderLayer, Norm
from trajpred.nn.published.structural_bias import (
    EdgeEncoding,
    GaussianDistanceKernel,
    GraphStructure,
    Mode,
    StructuralBias,
    mask_graphs,
    pair_distances,
    table,
)


class NodeEncoding(nn.Module):
    r"""Input of the first layer: types and centralities of the nodes, after a learnable graph token.

    .. math::
        x_i = \sum_f E[t_{if}] + z_i + E_{in}[d^{in}_i + 1] + E_{out}[d^{out}_i + 1]
            + 0.01\, \Big(W \sum_j ψ_{ij} + b\Big)

    The sum over j includes i and excludes padding. Degrees beyond the table share its last row. z is further
    node features, if any.

    Args:
        num_atoms: number of node types, 1 to ``num_atoms``; 0 is padding, a zero row.
        num_in_degree: rows of the table of in-degrees.
        num_out_degree: rows of the table of out-degrees.
        embedding_dim: channels D.
        num_3d_bias_kernel: see :class:`~trajpred.nn.StructuralBias`.
        mode: see :class:`~trajpred.nn.StructuralBias`.

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
        """Embed the nodes, with the graph token first: ``[B, n + 1, dim]``."""
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


class TransformerMEncoder(nn.Module):
    r"""Transformer-M: structural biases and centralities around a plain transformer encoder.

    .. math::
        x^0 = \mathrm{NodeEncoding}, \quad x^{l+1} = \mathrm{BiasedEncoderLayer}_l(x^l, Φ)

    One set of weights encodes graphs without positions, positions without a graph, or both: a term is used
    if it was built (``mode``) and its input is given. If a batch has both, training draws for each graph
    which terms to use, with probabilities ``mode_prob`` for (both, 2-D, 3-D). The mask of ``max_spd`` and the
    bias of the graph token apply in every mode, as in the published code.

    Names and defaults are those of the published encoder, table sizes those of its task. Additions: ``norm``
    (published: ``sandwich_ln``), ``mode`` (``add_3d``, ``no_2d``), ``max_spd`` (of the data there),
    ``share_bias_across_layers`` (True: the published code; False: the paper, one Φ per layer) and
    ``num_pair_types``. Omitted: quantisation noise, layer drop, the force head.

    Args:
        num_atoms: see :class:`NodeEncoding`.
        num_in_degree: see :class:`NodeEncoding`.
        num_out_degree: see :class:`NodeEncoding`.
        num_edges: see :class:`~trajpred.nn.published.structural_bias.StructuralBias`.
        num_spatial: see :class:`~trajpred.nn.published.structural_bias.StructuralBias`.
        num_edge_dis: see :class:`~trajpred.nn.published.structural_bias.StructuralBias`.
        edge_type: see :class:`~trajpred.nn.published.structural_bias.StructuralBias`.
        multi_hop_max_dist: see :class:`~trajpred.nn.published.structural_bias.StructuralBias`.
        max_spd: see :class:`~trajpred.nn.published.structural_bias.StructuralBias`.
        num_encoder_layers: number of layers.
        embedding_dim: see :class:`BiasedEncoderLayer`.
        ffn_embedding_dim: see :class:`BiasedEncoderLayer`.
        num_attention_heads: see :class:`BiasedEncoderLayer`.
        dropout: see :class:`BiasedEncoderLayer`.
        attention_dropout: see :class:`BiasedEncoderLayer`.
        activation_dropout: see :class:`BiasedEncoderLayer`.
        activation_fn: see :class:`BiasedEncoderLayer`.
        norm: see :class:`BiasedEncoderLayer`.
        droppath_prob: stochastic depth of the last layer, growing linearly from 0.
        encoder_normalize_before: LayerNorm before the first layer.
        num_3d_bias_kernel: number of Gaussians K; memory grows with B · n² · K.
        num_pair_types: rows of the distance scale and offset. By default one per node type and end: the pair
            (i, j) has rows (t_i, 1 + num_atoms + t_j), t the first column of ``node_type``.
        mode: ``2d``, ``3d`` or ``2d+3d``.
        mode_prob: three probabilities that sum to 1, as a sequence or a comma-separated string.
        share_bias_across_layers: see above.

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
        self.mode_prob = probabilities(mode_prob)
        self.num_atoms = num_atoms
        num_biases = 1 if share_bias_across_layers else num_encoder_layers
        self.biases = nn.ModuleList()
        for _ in range(num_biases):
            bias = StructuralBias(
                num_attention_heads,
                num_edges,
                num_spatial,
                num_edge_dis,
                edge_type,
                multi_hop_max_dist,
                num_3d_bias_kernel,
                mode,
                max_spd,
            )
            self.biases.append(bias)
        self.nodes = NodeEncoding(
            num_atoms, num_in_degree, num_out_degree, embedding_dim, num_3d_bias_kernel, mode
        )
        if num_pair_types is None:
            num_pair_types = 2 * (num_atoms + 1)
        self.kernel = GaussianDistanceKernel(num_3d_bias_kernel, num_pair_types) if "3d" in mode else None
        self.norm = nn.LayerNorm(embedding_dim) if encoder_normalize_before else None
        self.dropout = nn.Dropout(dropout)
        last = max(num_encoder_layers - 1, 1)
        self.layers = nn.ModuleList()
        for number in range(num_encoder_layers):
            layer = BiasedEncoderLayer(
                embedding_dim,
                ffn_embedding_dim,
                num_attention_heads,
                dropout,
                attention_dropout,
                activation_dropout,
                activation_fn,
                droppath_prob * number / last,
                norm,
            )
            self.layers.append(layer)

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
        """Encode; with ``return_states`` list the input of the first layer and the output of each."""
        if node_type.ndim == 2:
            node_type = node_type[..., None]
        first_type = node_type[..., 0]
        if mask is None:
            mask = first_type != 0
        gaussians = self._gaussians(first_type, positions, pair_type)
        keep_2d, keep_3d = self._draw_modes(structure, gaussians)
        x = self.nodes(
            node_type,
            mask,
            structure,
            gaussians,
            features=features,
            keep_2d=keep_2d,
            keep_3d=keep_3d,
        )
        if self.norm is not None:
            x = self.norm(x)
        x = self.dropout(x)
        biases = [bias(mask, structure, gaussians, keep_2d, keep_3d) for bias in self.biases]
        states = [x]
        for i, layer in enumerate(self.layers):
            states.append(layer(states[-1], biases[i % len(biases)]))
        if return_states:
            return states
        return states[-1]

    def _gaussians(self, types: Tensor, positions: Tensor | None, pair_type: Tensor | None) -> Tensor | None:
        """Return the Gaussians of the distances ``[B, n, n, K]``; None without kernel or positions."""
        if self.kernel is None or positions is None:
            return None
        distances = pair_distances(positions)
        if pair_type is not None:
            return self.kernel(distances, pair_type)
        first_end = types[:, :, None]
        second_end = (1 + self.num_atoms + types)[:, None]
        return self.kernel(distances, (first_end, second_end))

    def _draw_modes(
        self, structure: GraphStructure | None, gaussians: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Draw which graphs keep their 2-D and their 3-D terms, ``[B]`` bool each; None keeps all."""
        if not self.training or structure is None or gaussians is None or self.nodes.in_degree is None:
            return None, None
        both, only_2d, _ = self.mode_prob
        bounds = torch.tensor((both, both + only_2d), device=gaussians.device)
        draw = torch.rand(gaussians.shape[0], device=gaussians.device)
        choice = torch.bucketize(draw, bounds, right=True)  # 0 both, 1 2-D, 2 3-D
        return choice != 2, choice != 1


def probabilities(mode_prob: str | Sequence[float]) -> tuple[float, ...]:
    """Parse ``"0.2,0.2,0.6"`` or a sequence; raise ValueError unless three probabilities that sum to 1."""
    values = mode_prob.split(",") if isinstance(mode_prob, str) else mode_prob
    chances = tuple(float(value) for value in values)
    if len(chances) != 3 or min(chances) < 0 or not isclose(sum(chances), 1):
        raise ValueError(f"mode_prob must be three probabilities that sum to 1, not {mode_prob!r}")
    return chances
