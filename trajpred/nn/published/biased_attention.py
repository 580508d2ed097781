"""Attention with an additive bias per pair and head, and the encoder layer around it (Transformer-M)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from trajpred.nn.attention import DropPath, GraphTransformerLayer
from trajpred.nn.published.padded_attention import require_bool

Norm = Literal["pre", "post", "sandwich"]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_accurate": lambda: nn.GELU(approximate="tanh"),
    "gelu_fast": lambda: nn.GELU(approximate="tanh"),
    "tanh": nn.Tanh,
    "linear": nn.Identity,
}


class BiasedAttention(nn.Module):
    r"""Multi-head attention over padded tokens with an additive bias per pair and head.

    .. math::
        α_{ij} = \mathrm{softmax}_j\, (q_i \cdot k_j / \sqrt{C} + Φ_{ij}), \quad
        o_i = W_o \sum_j α_{ij} v_j + b_o

    Scores and softmax in float32, in float64 for float64 weights; dropout on α. A bias of -inf excludes a
    pair, and so does False in a bool bias, whose True adds nothing. A receiver all of whose pairs are
    excluded gets α = 0 and o_i = b_o.

    Shapes: receivers ``[B, n, D]``, senders ``[B, m, D]``, bias ``[B, H, n, m]`` (or any that broadcasts, or
    None) -> ``[B, n, D]``, with ``return_attention`` also α ``[B, H, n, m]``.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} must be divisible by num_heads {num_heads}")
        self.num_heads = num_heads
        self.dropout = dropout
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key = nn.Linear(embed_dim, embed_dim)
        self.value = nn.Linear(embed_dim, embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)
        for layer in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(layer.weight, gain=0.5**0.5)
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(
        self, receiver: Tensor, sender: Tensor, bias: Tensor | None = None, *, return_attention: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        q = self._heads(self.query(receiver))
        k = self._heads(self.key(sender))
        v = self._heads(self.value(sender))
        weight: Tensor | None = None
        with torch.autocast(receiver.device.type, enabled=False):
            dtype = torch.promote_types(q.dtype, torch.float32)
            excluded = None
            if bias is not None:
                bias = additive(bias, dtype)
                # Softmax of a row of -inf would be 0 / 0: it attends to everything and is zeroed afterwards.
                excluded = (bias == -torch.inf).all(-1, keepdim=True)
                bias = bias.masked_fill(excluded, 0)
            if return_attention:
                weight = _softmax(q.to(dtype), k.to(dtype), bias)
                if excluded is not None:
                    weight = weight.masked_fill(excluded, 0)
                pooled = functional.dropout(weight, self._rate()) @ v.to(dtype)
            else:
                pooled = functional.scaled_dot_product_attention(
                    q.to(dtype), k.to(dtype), v.to(dtype), attn_mask=bias, dropout_p=self._rate()
                )
            if excluded is not None:
                pooled = pooled.masked_fill(excluded, 0)
        out = self.out(pooled.transpose(1, 2).flatten(2).to(receiver.dtype))
        if weight is not None:
            return out, weight
        return out

    def _rate(self) -> float:
        return self.dropout if self.training else 0.0

    def _heads(self, x: Tensor) -> Tensor:
        """``[B, n, D]`` -> ``[B, H, n, C]``."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def _softmax(query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor:
    score = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if bias is not None:
        score = score + bias
    return torch.softmax(score, -1)


def additive(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a bias as numbers to add to scores; of a bool one, True is 0 and False -inf."""
    if bias.dtype != torch.bool:
        return bias.to(dtype)
    return torch.zeros_like(bias, dtype=dtype).masked_fill(~bias, -torch.inf)


class BiasedEncoderLayer(nn.Module):
    """Residual biased self-attention A, then a residual feed-forward network F.

    pre (the paper):  x ← x + A(LN x);          x ← x + F(LN x)
    post:             x ← LN(x + A(x));         x ← LN(x + F(x))
    sandwich:         x ← x + LN(A(LN x));      x ← x + LN(F(LN x))

    with F(x) = W₂ act(W₁ x + b₁) + b₂. The published code has post (its default) and sandwich
    (``sandwich_ln``) only, and draws dropped paths per token position; here they are drawn per sample.

    Args:
        embedding_dim: channels D.
        ffn_embedding_dim: width of W₁.
        num_attention_heads: H.
        dropout: rate on both residual branches; unused if ``droppath_prob`` is positive.
        attention_dropout: rate on the attention.
        activation_dropout: rate after the activation.
        activation_fn: ``relu``, ``gelu`` (exact), ``gelu_accurate`` or ``gelu_fast`` (tanh form), ``tanh``,
            ``linear``.
        droppath_prob: stochastic depth, see :class:`~trajpred.nn.attention.DropPath`.
        norm: see above.

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
        drop: nn.Module = nn.Dropout(dropout)
        if droppath_prob > 0:
            drop = DropPath(droppath_prob)
        after_attention = [drop]
        after_feed_forward = [drop]
        if norm == "sandwich":
            after_attention.append(nn.LayerNorm(embedding_dim))
            after_feed_forward.append(nn.LayerNorm(embedding_dim))
        feed_forward = nn.Sequential(
            nn.Linear(embedding_dim, ffn_embedding_dim),
            ACTIVATIONS[activation_fn](),
            nn.Dropout(activation_dropout),
            nn.Linear(ffn_embedding_dim, embedding_dim),
            *after_feed_forward,
        )
        self.block = GraphTransformerLayer(
            _Branch(attention, *after_attention),
            embedding_dim,
            norm="post" if norm == "post" else "pre",
            feed_forward=feed_forward,
        )

    def forward(self, x: Tensor, attn_bias: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            require_bool(mask, "mask")
            dtype = torch.promote_types(x.dtype, torch.float32)
            bias = x.new_zeros(1, 1, 1, 1, dtype=dtype)
            if attn_bias is not None:
                bias = additive(attn_bias, dtype)
            attn_bias = torch.where(mask[:, None, None], bias, -torch.inf)
        return self.block(x, attn_bias)


class _Branch(nn.Module):
    """Attention and the modules after it on the residual branch."""

    def __init__(self, attention: BiasedAttention, *after: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.after = nn.Sequential(*after)

    def forward(self, receiver: Tensor, sender: Tensor, bias: Tensor | None) -> Tensor:
        return self.after(self.attention(receiver, sender, bias))
