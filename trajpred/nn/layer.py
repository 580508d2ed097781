"""The transformer layer around an attention operator, and the small modules it is made of."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

from trajpred.nn.relation import Relation


def mlp(*widths: int) -> nn.Sequential:
    """Stack linear layers of the given widths with GELU between them."""
    layers: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
        layers.append(nn.Linear(fan_in, fan_out))
        if i < len(widths) - 2:
            layers.append(nn.GELU())
    return nn.Sequential(*layers)


class DropPath(nn.Dropout1d):
    """Stochastic depth (Huang et al. 2016): in training zero whole rows of ``[N, ...]`` with probability p,
    and divide the others by 1 - p."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1)).reshape(x.shape) if self.training and self.p else x


class GraphTransformerLayer(nn.Module):
    """Residual attention followed by a residual feed-forward network, each with layer normalisation.

    post-LN (the default):  x ← LN(x + A(x, z));  x ← LN(x + F(x))
    pre-LN:                 x ← x + A(LN x, z);   x ← x + F(LN x)

    Serves self relations (z = x) and bipartite ones. A receiver without incoming edges keeps its features.

    Args:
        attention: A, called as ``attention(receiver, sender, relation) -> [R, dim]``.
        dim: channels.
        expansion: hidden width of F in units of ``dim``.
        dropout: rate on both residual branches.
        drop_path: probability with which a receiver skips a branch in training, see :class:`DropPath`.
        norm: ``post`` or ``pre``.
        feed_forward: F, by default two linear layers with GELU between them.

    Shapes: x ``[R, dim]``, sender ``[S, dim]`` -> ``[R, dim]``.

    Example:
        >>> import torch
        >>> from trajpred.nn import GraphAttention, GroupRelation
        >>> layer = GraphTransformerLayer(GraphAttention(8, heads=2, poses=False), 8)
        >>> layer(torch.randn(6, 8), GroupRelation(3)).shape  # two groups of three nodes
        torch.Size([6, 8])
    """

    def __init__(
        self,
        attention: nn.Module,
        dim: int,
        *,
        expansion: int = 2,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        norm: Literal["post", "pre"] = "post",
        feed_forward: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention, self.pre = attention, norm == "pre"
        self.feed_forward = mlp(dim, expansion * dim, dim) if feed_forward is None else feed_forward
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.rate, self.drop_path = dropout, DropPath(drop_path)

    def forward(self, x: Tensor, relation: Relation, sender: Tensor | None = None) -> Tensor:
        """Let ``x`` attend to ``sender`` (by default to itself) over ``relation``."""
        if self.pre:
            normed = self.norm1(x)
            x = x + self._drop(self.attention(normed, normed if sender is None else sender, relation))
            return x + self._drop(self.feed_forward(self.norm2(x)))
        x = self.norm1(x + self._drop(self.attention(x, x if sender is None else sender, relation)))
        return self.norm2(x + self._drop(self.feed_forward(x)))

    def _drop(self, x: Tensor) -> Tensor:
        return self.drop_path(nn.functional.dropout(x, self.rate)) if self.training else x
