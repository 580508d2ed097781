"""Transformer-M (Luo et al. 2022): one encoder for graphs (2-D), point sets (3-D), and graphs in space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isclose
from typing import Literal

import torch
from torch import Tensor, nn

from trajpred.nn.attention import DropPath, GraphTransformerLayer
from trajpred.nn.published.graph_structure import EdgeEncoding, GraphStructure
from trajpred.nn.published.padded_attention import BiasedAttention, additive, require_bool
from trajpred.nn.published.structural_bias import (
    GaussianDistanceKernel,
    Mode,
    NodeEncoding,
    StructuralBias,
    pair_distances,
)

Norm = Literal["pre", "post", "sandwich"]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_accurate": lambda: nn.GELU(approximate="tanh"),
    "gelu_fast": lambda: nn.GELU(approximate="tanh"),
    "tanh": nn.Tanh,
    "linear": nn.Identity,
}


class BiasedEncoderLayer(nn.Module):
    """Residual biased self-attention A, then a residual feed-forward network F.

    pre (the paper):  x ← x + A(LN x);          x ← x + F(LN x)
    post:             x ← LN(x + A(x));         x ← LN(x + F(x))
    sandwich:         x ← x + LN(A(LN x));      x ← x + LN(F(LN x))

    with F(x) = W₂ act(W₁ x + b₁) + b₂. The published code has post (its default) and sandwich
    (``sandwich_ln``) only, and draws dropped paths per token position; here they are drawn per sample.

    Args:
        embedding_dim, ffn_embedding_dim: channels D and width of W₁.
        dropout: rate on both residual branches; unused if ``droppath_prob`` is positive.
        attention_dropout: rate on the attention.
        activation_dropout: rate after the activation.
        activation_fn: ``relu``, ``gelu`` (exact), ``gelu_accurate`` or ``gelu_fast`` (tanh form), ``tanh``,
            ``linear``.
        droppath_prob: stochastic depth, see :class:`~trajpred.nn.attention.DropPath`.

    Shapes: x ``[B, n, D]``, attn_bias ``[B, H, n, n]`` (i query, j key), mask ``[B, n]`` bool, True = valid
    -> ``[B, n, D]``, finite at padding too. Invalid keys are masked; a bias may mask them instead.

    Example:
        >>> layer = BiasedEncoderLayer(8, 16, num_attention_heads=2, activation_fn="gelu").eval()
        >>> x, mask = torch.randn(1, 5, 8), torch.arange(5)[None] < 3
        >>> torch.allclose(layer(x, mask=mask)[:, :3], layer(x[:, :3]), atol=1e-5)
        True
    """

    def __init__(
        self,
        embedding_dim: int = 768,
        ffn_embedding_dim: int = 3072,
        num_attention_heads: int = 8,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        activation_dropout: float = 0.1,
        activation_fn: str = "relu",
        droppath_prob: float = 0.0,
        norm: Norm = "pre",
    ) -> None:
        super().__init__()
        if norm not in ("pre", "post", "sandwich"):
            raise ValueError(f"norm must be 'pre', 'post' or 'sandwich', not {norm!r}")
        if activation_fn not in ACTIVATIONS:
            raise ValueError(f"activation_fn must be one of {', '.join(ACTIVATIONS)}, not {activation_fn!r}")
        attention = BiasedAttention(embedding_dim, num_attention_heads, attention_dropout)
        drop = DropPath(droppath_prob) if droppath_prob > 0 else nn.Dropout(dropout)
        ends = [[drop, nn.LayerNorm(embedding_dim)] if norm == "sandwich" else [drop] for _ in range(2)]
        feed_forward = nn.Sequential(
            nn.Linear(embedding_dim, ffn_embedding_dim),
            ACTIVATIONS[activation_fn](),
            nn.Dropout(activation_dropout),
            nn.Linear(ffn_embedding_dim, embedding_dim),
            *ends[1],
        )
        self.block = GraphTransformerLayer(
            _Branch(attention, *ends[0]),
            embedding_dim,
            norm="post" if norm == "post" else "pre",
            feed_forward=feed_forward,
        )

    def forward(self, x: Tensor, attn_bias: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            require_bool(mask, "mask")
            dtype = torch.promote_types(x.dtype, torch.float32)
            bias = x.new_zeros(1, 1, 1, 1, dtype=dtype) if attn_bias is None else additive(attn_bias, dtype)
            attn_bias = torch.where(mask[:, None, None], bias, -torch.inf)
        return self.block(x, attn_bias)


class _Branch(nn.Module):
    """Attention and the modules after it on the residual branch."""

    def __init__(self, attention: BiasedAttention, *after: nn.Module) -> None:
        super().__init__()
        self.attention, self.after = attention, nn.Sequential(*after)

    def forward(self, receiver: Tensor, sender: Tensor, bias: Tensor | None) -> Tensor:
        return self.after(self.attention(receiver, sender, bias))


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
        num_atoms, num_in_degree, num_out_degree: see
            :class:`~trajpred.nn.published.structural_bias.NodeEncoding`.
        num_edges, num_spatial, num_edge_dis, edge_type, multi_hop_max_dist, max_spd: see
            :class:`~trajpred.nn.published.structural_bias.StructuralBias`.
        embedding_dim, ffn_embedding_dim, num_attention_heads, dropout, attention_dropout,
            activation_dropout, activation_fn, norm: see :class:`BiasedEncoderLayer`.
        droppath_prob: stochastic depth of the last layer, growing linearly from 0.
        encoder_normalize_before: LayerNorm before the first layer.
        num_3d_bias_kernel: number of Gaussians K; memory grows with B · n² · K.
        num_pair_types: rows of the distance scale and offset. By default one per node type and end: the pair
            (i, j) has rows (t_i, 1 + num_atoms + t_j), t the first column of ``node_type``.
        mode: ``2d``, ``3d`` or ``2d+3d``.
        mode_prob: three probabilities that sum to 1, as a sequence or a comma-separated string.

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
        bias = num_edges, num_spatial, num_edge_dis, edge_type, multi_hop_max_dist, num_3d_bias_kernel
        self.biases = nn.ModuleList(
            StructuralBias(num_attention_heads, *bias, mode, max_spd)
            for _ in range(1 if share_bias_across_layers else num_encoder_layers)
        )
        self.nodes = NodeEncoding(
            num_atoms, num_in_degree, num_out_degree, embedding_dim, num_3d_bias_kernel, mode
        )
        pair_types = 2 * (num_atoms + 1) if num_pair_types is None else num_pair_types
        self.kernel = GaussianDistanceKernel(num_3d_bias_kernel, pair_types) if "3d" in mode else None
        self.norm = nn.LayerNorm(embedding_dim) if encoder_normalize_before else None
        self.dropout = nn.Dropout(dropout)
        rates, last = (dropout, attention_dropout, activation_dropout), max(num_encoder_layers - 1, 1)
        sizes = embedding_dim, ffn_embedding_dim, num_attention_heads
        self.layers = nn.ModuleList(
            BiasedEncoderLayer(*sizes, *rates, activation_fn, droppath_prob * layer / last, norm)
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
        """Encode; with ``return_states`` list the input of the first layer and the output of each."""
        node_type = node_type[..., None] if node_type.ndim == 2 else node_type
        mask = node_type[..., 0] != 0 if mask is None else mask
        gaussians = self._gaussians(node_type[..., 0], positions, pair_type)
        keep_2d, keep_3d = self._draw_modes(structure, gaussians)
        inputs = structure, gaussians
        x = self.nodes(node_type, mask, *inputs, features=features, keep_2d=keep_2d, keep_3d=keep_3d)
        x = self.dropout(x if self.norm is None else self.norm(x))
        biases = [bias(mask, *inputs, keep_2d, keep_3d) for bias in self.biases]
        states = [x]
        for i, layer in enumerate(self.layers):
            states.append(layer(states[-1], biases[i % len(biases)]))
        return states if return_states else states[-1]

    def _gaussians(self, types: Tensor, positions: Tensor | None, pair_type: Tensor | None) -> Tensor | None:
        if self.kernel is None or positions is None:
            return None
        if pair_type is None:
            n = types.shape[1]
            ends = types[:, :, None].expand(-1, n, n), (1 + self.num_atoms + types)[:, None].expand(-1, n, n)
            pair_type = torch.stack(ends, -1)
        return self.kernel(pair_distances(positions), pair_type)

    def _draw_modes(
        self, structure: GraphStructure | None, gaussians: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Draw which graphs keep their 2-D and their 3-D terms, ``[B]`` bool each; None keeps all."""
        if not self.training or structure is None or gaussians is None or self.nodes.in_degree is None:
            return None, None
        both, plane, _ = self.mode_prob
        bounds = torch.tensor((both, both + plane), device=gaussians.device)
        draw = torch.rand(gaussians.shape[0], device=gaussians.device)
        choice = torch.bucketize(draw, bounds, right=True)  # 0 both, 1 2-D, 2 3-D
        return choice != 2, choice != 1


def probabilities(mode_prob: str | Sequence[float]) -> tuple[float, ...]:
    """Parse ``"0.2,0.2,0.6"`` or a sequence; raise ValueError unless three probabilities that sum to 1."""
    text = mode_prob.split(",") if isinstance(mode_prob, str) else mode_prob
    chances = tuple(float(chance) for chance in text)
    if len(chances) != 3 or min(chances) < 0 or not isclose(sum(chances), 1):
        raise ValueError(f"mode_prob must be three probabilities that sum to 1, not {mode_prob!r}")
    return chances
