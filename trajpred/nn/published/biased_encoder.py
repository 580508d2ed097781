"""Dense self-attention with an additive bias per pair and head, and the encoder layer around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, scaled_dot_product_attention

from trajpred.nn.layer import GraphTransformerLayer
from trajpred.nn.segment import LOWEST

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
    r"""Multi-head attention over padded tokens, the pairs entering as a bias.

    .. math::
        s_{ij} = q_i \cdot k_j / \sqrt{C} + Φ_{ij}, \quad
        α_{ij} = \mathrm{softmax}_j\, s_{ij}, \quad
        o_i = W_o \sum_j α_{ij} v_j + b_o

    Scores and softmax in float32, in float64 for float64 weights.

    Args:
        embed_dim: channels D = H · C.
        num_heads: H.
        dropout: on α.

    Shapes: receivers ``[B, n, D]``, senders ``[B, m, D]``, bias ``[B, H, n, m]`` (or any that broadcasts, or
    None) -> ``[B, n, D]``, with ``return_attention`` also α ``[B, H, n, m]``.

    Example:
        >>> attention = BiasedAttention(8, 2)
        >>> x = torch.randn(1, 5, 8)
        >>> attention(x, x, torch.zeros(1, 2, 5, 5)).shape
        torch.Size([1, 5, 8])
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} must be divisible by num_heads {num_heads}")
        self.num_heads, self.dropout = num_heads, dropout
        self.query, self.key, self.value = (nn.Linear(embed_dim, embed_dim) for _ in range(3))
        self.out = nn.Linear(embed_dim, embed_dim)
        for layer, gain in ((self.query, 0.5), (self.key, 0.5), (self.value, 0.5), (self.out, 1.0)):
            nn.init.xavier_uniform_(layer.weight, gain=gain**0.5)
        nn.init.zeros_(self.out.bias)

    def forward(
        self, receiver: Tensor, sender: Tensor, bias: Tensor | None = None, *, return_attention: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for layer, x in ((self.query, receiver), (self.key, sender), (self.value, sender))
        )
        rate = self.dropout if self.training else 0.0
        with torch.autocast(receiver.device.type, enabled=False):
            wide = torch.promote_types(q.dtype, torch.float32)
            q, k, v = q.to(wide), k.to(wide), v.to(wide)
            bias = None if bias is None else bias.to(wide)
            if return_attention:
                score = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
                weight = torch.softmax(score if bias is None else score + bias, -1)
                pooled = dropout(weight, rate) @ v
            else:
                pooled = scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=rate)
        out = self.out(pooled.transpose(1, 2).flatten(2).to(receiver.dtype))
        return (out, weight) if return_attention else out


class DropPath(nn.Module):
    """Leave out the whole branch of a sample with probability p, in training; else divide it by 1 - p."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        keep = torch.rand(len(x), *[1] * (x.ndim - 1), device=x.device) >= self.p
        return x * keep / (1 - self.p)


class BiasedEncoderLayer(nn.Module):
    """Residual biased self-attention A, then a residual feed-forward network F.

    pre (the paper):  x ← x + A(LN x);          x ← x + F(LN x)
    post:             x ← LN(x + A(x));         x ← LN(x + F(x))
    sandwich:         x ← x + LN(A(LN x));      x ← x + LN(F(LN x))

    with F(x) = W₂ act(W₁ x + b₁) + b₂. The publication's code has post (its default) and sandwich
    (``sandwich_ln``) only. Its layer draws dropped paths per token position; here it is per sample.

    Args:
        embedding_dim: channels D.
        ffn_embedding_dim: width of W₁.
        num_attention_heads: H.
        dropout: on both residual branches, unless ``droppath_prob`` takes its place.
        attention_dropout: on the attention weights.
        activation_dropout: after the activation.
        activation_fn: one of ``relu``, ``gelu`` (exact), ``gelu_accurate`` or ``gelu_fast`` (tanh form),
            ``tanh``, ``linear``.
        droppath_prob: stochastic depth.
        norm: ``pre``, ``post`` or ``sandwich``.

    Shapes: x ``[B, n, D]``, attn_bias ``[B, H, n, n]`` (i query, j key), mask ``[B, n]`` bool, True = valid
    -> ``[B, n, D]``, finite at padding too. Keys not valid are not heard; a bias may hide them instead.

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
            wide = torch.promote_types(x.dtype, torch.float32)  # float16 has no LOWEST
            bias = x.new_zeros(1, 1, 1, 1, dtype=wide) if attn_bias is None else attn_bias.to(wide)
            attn_bias = torch.where(mask[:, None, None], bias, LOWEST)
        return self.block(x, attn_bias)


class _Branch(nn.Module):
    """Attention and what follows it on the residual branch."""

    def __init__(self, attention: BiasedAttention, *after: nn.Module) -> None:
        super().__init__()
        self.attention, self.after = attention, nn.Sequential(*after)

    def forward(self, receiver: Tensor, sender: Tensor, bias: Tensor | None) -> Tensor:
        return self.after(self.attention(receiver, sender, bias))
