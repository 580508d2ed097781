"""Attention over padded batches with true masks (DenseTNT)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
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
            receiver: ``[E]`` int64, without padding: x is ``[R, ...]``, z ``[E, ...]``, and row e of z serves
                row ``receiver[e]`` of x alone. Excludes the masks.

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
        elif return_attention:
            allowed = _allowed_pairs(x, z, mask, key_mask, attention_mask)
            out, weight = self._attend_with_weights(x, z, allowed)
        else:
            allowed = _allowed_pairs(x, z, mask, key_mask, attention_mask)
            return self._attend(x, z, allowed)
        if return_attention:
            return out, weight
        return out

    def _attend(self, x: Tensor, z: Tensor, allowed: Tensor) -> Tensor:
        query, key, value = self._padded_heads(x, z)
        # A fully masked row would be 0 / 0: it attends to everything and is zeroed afterwards.
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
