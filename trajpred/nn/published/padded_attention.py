"""Attention over padded batches with true masks (DenseTNT)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from torch_geometric.utils import to_dense_batch

from trajpred.nn.attention import DropPath, GraphTransformerLayer
from trajpred.nn.segment import LOWEST, segment_softmax, segment_sum


def merge_tensors(
    tensors: Sequence[Tensor | None], device: torch.device | str | None = None, hidden_size: int | None = None
) -> tuple[Tensor, list[int]]:
    """Pad a list of samples of different lengths to one batch, as published; None is a sample of length 0.

    Args:
        tensors: ``[n_b, hidden_size]`` for each sample, or None.
        device: device of the result; by default the samples'.
        hidden_size: needed only if all samples are None.

    Returns:
        ``[B, max(n_b), hidden_size]``, 0 beyond each sample; the lengths n_b.

    Example:
        >>> padded, lengths = merge_tensors([torch.ones(2, 1), None, torch.ones(1, 1)])
        >>> padded.shape, lengths
        (torch.Size([3, 2, 1]), [2, 0, 1])
    """
    samples = [tensor for tensor in tensors if tensor is not None]
    if samples:
        flat = torch.cat(samples)
    elif hidden_size is not None:
        flat = torch.zeros(0, hidden_size)
    else:
        raise ValueError("hidden_size is needed if all tensors are None")
    if device is not None:
        flat = flat.to(device)
    if hidden_size not in (None, flat.shape[1]):
        raise ValueError(f"tensors have {flat.shape[1]} channels, not hidden_size {hidden_size}")
    lengths = [0 if tensor is None else len(tensor) for tensor in tensors]
    padded, _ = pad_samples(flat, torch.tensor(lengths, device=flat.device))
    return padded, lengths


def pad_samples(flat: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Pad samples of different lengths, given end to end, to one batch.

    Args:
        flat: ``[sum(lengths), ...]``.
        lengths: ``[B]`` int64; 0 for a sample without rows.

    Returns:
        ``[B, max(lengths), ...]``, 0 beyond each sample; ``[B, max(lengths)]`` bool, True = valid.

    Example:
        >>> padded, mask = pad_samples(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([2, 0, 1]))
        >>> padded[..., 0]
        tensor([[1., 2.],
                [0., 0.],
                [3., 0.]])
    """
    size = int(lengths.max()) if lengths.shape[0] else 0
    sample = torch.repeat_interleave(lengths)
    return to_dense_batch(flat, sample, max_num_nodes=size, batch_size=lengths.shape[0])


class PaddedAttention(nn.Module):
    r"""Multi-head attention within each sample of a padded batch.

    .. math::
        α_{ij} = \mathrm{softmax}_j \Big( \frac{q_i}{\sqrt d} \cdot k_j \Big), \quad o_i = \sum_j α_{ij} v_j

    per head of d channels, q = W_q x_i + b_q, k = W_k z_j, v = W_v z_j + b_v, over valid keys j only. A query
    that is padding, or has no valid key, gets exactly 0. No output projection, no residual.

    With z = x this is the global self-attention (``GlobalGraph``) of DenseTNT (Gu et al. 2021), otherwise its
    ``CrossAttention``; the original masks by adding -10000.

    Args:
        hidden_size: channels of x, z and the output, unless given below.
        attention_head_size: d, by default ``hidden_size // num_attention_heads``.
        num_attention_heads: H.
        key_hidden_size: channels of z.
        query_hidden_size: channels of x.
        key_bias: give W_k a bias, for weights that have one; softmax cancels it.

    Shapes: x ``[B, n, query_hidden_size]``, z
    ``[B, m, key_hidden_size]`` -> ``[B, n, H · d]``.

    Example:
        >>> agents, agent_mask = pad_samples(torch.randn(7, 16), torch.tensor([4, 0, 3]))
        >>> lanes, lane_mask = pad_samples(torch.randn(9, 6), torch.tensor([2, 2, 5]))
        >>> cross = PaddedAttention(16, num_attention_heads=2, key_hidden_size=6)
        >>> cross(agents, lanes, mask=agent_mask, key_mask=lane_mask).shape
        torch.Size([3, 4, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        attention_head_size: int | None = None,
        num_attention_heads: int = 1,
        key_hidden_size: int | None = None,
        query_hidden_size: int | None = None,
        *,
        key_bias: bool = False,
    ) -> None:
        super().__init__()
        heads = num_attention_heads
        if heads < 1 or (attention_head_size is None and hidden_size % heads):
            raise ValueError(f"hidden_size {hidden_size} must be a multiple of num_attention_heads {heads}")
        if attention_head_size is None:
            attention_head_size = hidden_size // heads
        if key_hidden_size is None:
            key_hidden_size = hidden_size
        if query_hidden_size is None:
            query_hidden_size = hidden_size
        width = heads * attention_head_size
        self.num_attention_heads = heads
        self.query = nn.Linear(query_hidden_size, width)
        self.key = nn.Linear(key_hidden_size, width, bias=key_bias)
        self.value = nn.Linear(key_hidden_size, width)

    def forward(
        self,
        x: Tensor,
        z: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        receiver: Tensor | None = None,
        return_attention: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from the rows of ``x`` to those of ``z``, by default to those of ``x``.

        Args:
            x: queries.
            z: keys and values.
            mask: ``[B, n]`` bool, valid rows of x; None: all.
            key_mask: ``[B, m]`` bool, valid rows of z; for z = x by default ``mask``.
            attention_mask: ``[B, n, m]`` bool, pairs that may attend (causal, for example); None: all.
            receiver: ``[E]`` int64, for use without padding: x is ``[R, ...]``, z ``[E, ...]``, and only row
                ``receiver[e]`` of x attends to row e of z. Excludes the masks.

        Returns:
            ``[B, n, H · d]``; with ``return_attention`` also α ``[B, H, n, m]``, 0 where masked. With
            ``receiver`` ``[R, H · d]`` and α ``[E, H]``.
        """
        if z is None:
            z = x
            if key_mask is None:
                key_mask = mask
        if receiver is not None:
            out, weight = self._attend_over_edges(x, z, receiver)
        else:
            allowed = _allowed_pairs(x, z, mask, key_mask, attention_mask)
            if not return_attention:
                return self._attend(x, z, allowed)
            out, weight = self._attend_with_weights(x, z, allowed)
        if return_attention:
            return out, weight
        return out

    def _attend(self, x: Tensor, z: Tensor, allowed: Tensor) -> Tensor:
        query, key, value = self._padded_heads(x, z)
        # A fully masked row would be 0 / 0: let it attend to everything, and zero it afterwards.
        reached = allowed.any(-1, keepdim=True)
        pooled = scaled_dot_product_attention(query, key, value, attn_mask=allowed | ~reached)
        return pooled.masked_fill(~reached, 0).transpose(1, 2).flatten(2)

    def _attend_with_weights(self, x: Tensor, z: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
        query, key, value = self._padded_heads(x, z)
        score = query / query.shape[-1] ** 0.5 @ key.mT
        weight = masked_softmax(score, allowed)
        pooled = weight @ value
        return pooled.transpose(1, 2).flatten(2), weight

    def _attend_over_edges(self, x: Tensor, z: Tensor, receiver: Tensor) -> tuple[Tensor, Tensor]:
        query, key, value = self._heads(x, z)
        product = query.index_select(0, receiver) * key
        score = product.sum(-1) / query.shape[-1] ** 0.5
        weight = segment_softmax(score, receiver, x.shape[0])
        pooled = segment_sum(weight[..., None] * value, receiver, x.shape[0])
        return pooled.flatten(1), weight

    def _heads(self, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, ``[..., H, d]``."""
        by_head = (self.num_attention_heads, -1)
        query = self.query(x).unflatten(-1, by_head)
        key = self.key(z).unflatten(-1, by_head)
        value = self.value(z).unflatten(-1, by_head)
        return query, key, value

    def _padded_heads(self, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, ``[B, H, n or m, d]``."""
        query, key, value = self._heads(x, z)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)


def _allowed_pairs(
    x: Tensor,
    z: Tensor,
    mask: Tensor | None,
    key_mask: Tensor | None,
    attention_mask: Tensor | None,
) -> Tensor:
    """Return which queries may attend to which keys, ``[B, 1, n, m]`` bool."""
    shape = (x.shape[0], x.shape[1], z.shape[1])
    allowed = torch.ones(shape, dtype=torch.bool, device=x.device)
    if mask is not None:
        require_bool(mask, "mask")
        allowed = allowed & mask[:, :, None]
    if key_mask is not None:
        require_bool(key_mask, "key_mask")
        allowed = allowed & key_mask[:, None]
    if attention_mask is not None:
        require_bool(attention_mask, "attention_mask")
        allowed = allowed & attention_mask
    return allowed[:, None]


def require_bool(mask: Tensor, name: str) -> None:
    """Raise ValueError about ``name`` unless it is a bool mask."""
    if mask.dtype != torch.bool:
        raise ValueError(f"{name} must be bool, True = valid, not {mask.dtype}")


def masked_softmax(score: Tensor, allowed: Tensor) -> Tensor:
    """Softmax over the last dimension in float32 or wider; 0 where not ``allowed``, even if nothing is."""
    logits = score.to(torch.promote_types(score.dtype, torch.float32)).masked_fill(~allowed, LOWEST)
    return torch.softmax(logits, -1).masked_fill(~allowed, 0).to(score.dtype)


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
    pair, and so does False in a bool bias, where True adds nothing. A receiver with all pairs excluded gets α
    = 0 and o_i = b_o.

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
        """Attend with an additive bias ``[B, H, n, m]``; rows of -inf pool 0."""
        q = self._heads(self.query(receiver))
        k = self._heads(self.key(sender))
        v = self._heads(self.value(sender))
        weight: Tensor | None = None
        with torch.autocast(receiver.device.type, enabled=False):
            dtype = torch.promote_types(q.dtype, torch.float32)
            q = q.to(dtype)
            k = k.to(dtype)
            v = v.to(dtype)
            excluded = None
            if bias is not None:
                bias = additive(bias, dtype)
                # Softmax of a row of -inf would be 0 / 0: let it attend to everything, and zero it
                # afterwards.
                excluded = (bias == -torch.inf).all(-1, keepdim=True)
                bias = bias.masked_fill(excluded, 0)
            if return_attention:
                weight = _softmax(q, k, bias)
                if excluded is not None:
                    weight = weight.masked_fill(excluded, 0)
                pooled = functional.dropout(weight, self._rate()) @ v
            else:
                pooled = scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=self._rate())
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
    """Return a bias as numbers to add to scores; a bool bias becomes 0 for True and -inf for False."""
    if bias.dtype != torch.bool:
        return bias.to(dtype)
    return torch.zeros_like(bias, dtype=dtype).masked_fill(~bias, -torch.inf)


class BiasedEncoderLayer(nn.Module):
    """Residual biased self-attention A, then a residual feed-forward network F.

    pre (the paper):  x ← x + A(LN x);          x ← x + F(LN x)
    post:             x ← LN(x + A(x));         x ← LN(x + F(x))
    sandwich:         x ← x + LN(A(LN x));      x ← x + LN(F(LN x))

    with F(x) = W₂ act(W₁ x + b₁) + b₂. The published code has only post (its default) and sandwich
    (``sandwich_ln``), and draws dropped paths per token position; here they are drawn per sample.

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
