"""Attention over padded batches: with true masks (DenseTNT), and with biases (Transformer-M)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch_geometric.utils import to_dense_batch

from trajpred.nn.segment import LOWEST, segment_softmax, segment_sum


def merge_tensors(
    tensors: Sequence[Tensor | None], device: torch.device | str | None = None, hidden_size: int | None = None
) -> tuple[Tensor, list[int]]:
    """Pad a list of samples of different lengths to one batch, as published; None is a sample of length 0.

    Args:
        tensors: ``[n_b, hidden_size]`` of each sample, or None.
        device: of the result; by default that of the samples.
        hidden_size: needed only if all samples are None.

    Returns:
        ``[B, max(n_b), hidden_size]``, 0 beyond each sample; the lengths n_b.

    Example:
        >>> padded, lengths = merge_tensors([torch.ones(2, 1), None, torch.ones(1, 1)])
        >>> padded.shape, lengths
        (torch.Size([3, 2, 1]), [2, 0, 1])
    """
    known = [one for one in tensors if one is not None]
    if not known and hidden_size is None:
        raise ValueError("hidden_size is needed if all tensors are None")
    lengths = [0 if one is None else len(one) for one in tensors]
    flat = torch.cat(known) if known else torch.zeros(0, hidden_size or 0)
    flat = flat if device is None else flat.to(device)
    if hidden_size not in (None, flat.shape[1]):
        raise ValueError(f"tensors have {flat.shape[1]} channels, not hidden_size {hidden_size}")
    return pad_samples(flat, torch.tensor(lengths, device=flat.device))[0], lengths


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
        key_hidden_size, query_hidden_size: channels of z and of x.
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
        heads = self.num_attention_heads = num_attention_heads
        if heads < 1 or (attention_head_size is None and hidden_size % heads):
            raise ValueError(f"hidden_size {hidden_size} must be a multiple of num_attention_heads {heads}")
        width = heads * (hidden_size // heads if attention_head_size is None else attention_head_size)
        key_width = hidden_size if key_hidden_size is None else key_hidden_size
        self.query = nn.Linear(hidden_size if query_hidden_size is None else query_hidden_size, width)
        self.key = nn.Linear(key_width, width, bias=key_bias)
        self.value = nn.Linear(key_width, width)

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
        """Let the rows of ``x`` attend to those of ``z``, by default to those of ``x``.

        Args:
            mask: ``[B, n]`` bool, valid rows of x; None: all.
            key_mask: ``[B, m]`` bool, valid rows of z; for z = x by default ``mask``.
            attention_mask: ``[B, n, m]`` bool, pairs that may attend (causal, for example); None: all.
            receiver: ``[E]`` int64, without padding: x is ``[R, ...]``, z ``[E, ...]``, and row e of z serves
                row ``receiver[e]`` of x alone. Excludes the masks.

        Returns:
            ``[B, n, H · d]``; with ``return_attention`` also α ``[B, H, n, m]``, 0 where masked. With
            ``receiver`` ``[R, H · d]`` and α ``[E, H]``.
        """
        if receiver is not None:
            out, weight = self._attend_over_edges(x, x if z is None else z, receiver)
            return (out, weight) if return_attention else out
        if z is None:
            z, key_mask = x, mask if key_mask is None else key_mask
        allowed = torch.ones(x.shape[0], x.shape[1], z.shape[1], dtype=torch.bool, device=x.device)
        if mask is not None:
            require_bool(mask, "mask")
            allowed = allowed & mask[:, :, None]
        if key_mask is not None:
            require_bool(key_mask, "key_mask")
            allowed = allowed & key_mask[:, None]
        if attention_mask is not None:
            require_bool(attention_mask, "attention_mask")
            allowed = allowed & attention_mask
        allowed = allowed[:, None]
        query, key, value = (y.transpose(1, 2) for y in self._heads(x, z))
        if return_attention:
            weight = masked_softmax(query / query.shape[-1] ** 0.5 @ key.mT, allowed)
            return (weight @ value).transpose(1, 2).flatten(2), weight
        # A fully masked row would be 0 / 0: it attends to everything and is zeroed afterwards.
        reached = allowed.any(-1, keepdim=True)
        pooled = scaled_dot_product_attention(query, key, value, attn_mask=allowed | ~reached)
        return pooled.masked_fill(~reached, 0).transpose(1, 2).flatten(2)

    def _attend_over_edges(self, x: Tensor, z: Tensor, receiver: Tensor) -> tuple[Tensor, Tensor]:
        query, key, value = self._heads(x, z)
        score = (query.index_select(0, receiver) * key).sum(-1) / query.shape[-1] ** 0.5
        weight = segment_softmax(score, receiver, x.shape[0])
        return segment_sum(weight[..., None] * value, receiver, x.shape[0]).flatten(1), weight

    def _heads(self, x: Tensor, z: Tensor) -> Iterator[Tensor]:
        """Return queries, keys and values, ``[..., H, d]``."""
        pairs = ((self.query, x), (self.key, z), (self.value, z))
        return (layer(y).unflatten(-1, (self.num_attention_heads, -1)) for layer, y in pairs)


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
            dtype = torch.promote_types(q.dtype, torch.float32)
            q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
            excluded = None
            if bias is not None:
                bias = additive(bias, dtype)
                # Softmax of a row of -inf would be 0 / 0: it attends to everything and is zeroed afterwards.
                excluded = (bias == -torch.inf).all(-1, keepdim=True)
                bias = bias.masked_fill(excluded, 0)
            if return_attention:
                score = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
                weight = torch.softmax(score if bias is None else score + bias, -1)
                if excluded is not None:
                    weight = weight.masked_fill(excluded, 0)
                pooled = dropout(weight, rate) @ v
            else:
                pooled = scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=rate)
            if excluded is not None:
                pooled = pooled.masked_fill(excluded, 0)
        out = self.out(pooled.transpose(1, 2).flatten(2).to(receiver.dtype))
        return (out, weight) if return_attention else out


def additive(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a bias as numbers to add to scores; of a bool one, True is 0 and False -inf."""
    if bias.dtype != torch.bool:
        return bias.to(dtype)
    return torch.zeros_like(bias, dtype=dtype).masked_fill(~bias, -torch.inf)


def require_bool(mask: Tensor, name: str) -> None:
    """Raise ValueError about ``name`` unless it is a bool mask."""
    if mask.dtype != torch.bool:
        raise ValueError(f"{name} must be bool, True = valid, not {mask.dtype}")


def masked_softmax(score: Tensor, allowed: Tensor) -> Tensor:
    """Softmax over the last dimension in float32 or wider; 0 where not ``allowed``, even if nothing is."""
    logits = score.to(torch.promote_types(score.dtype, torch.float32)).masked_fill(~allowed, LOWEST)
    return torch.softmax(logits, -1).masked_fill(~allowed, 0).to(score.dtype)
