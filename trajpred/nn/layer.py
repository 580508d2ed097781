"""The transformer layer around an attention operator."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

from trajpred.nn.relation import Relation


def mlp(*widths: int, norm: bool = False) -> nn.Sequential:
    """Linear layers of the given widths with GELU (and LayerNorm before it if ``norm``) between them."""
    layers: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
        layers.append(nn.Linear(fan_in, fan_out))
        if i < len(widths) - 2:
            layers += [nn.LayerNorm(fan_out), nn.GELU()] if norm else [nn.GELU()]
    return nn.Sequential(*layers)


class GraphTransformerLayer(nn.Module):
    """Residual attention, then a residual feed-forward network, each with layer normalisation.

    post-LN (the default):  x ← LN(x + A(x, z));  x ← LN(x + F(x))
    pre-LN:                 x ← x + A(LN x, z);   x ← x + F(LN x)

    Serves self relations (z = x) and bipartite ones. A receiver without incoming edges keeps its features.

    Args:
        attention: ``attention(receiver, sender, relation) -> [R, dim]``.
        dim: channels.
        expansion: hidden width of F over ``dim``.
        dropout: on both residual branches.
        drop_path: probability that a receiver leaves out a whole branch in training (stochastic depth,
            Huang et al. 2016).
        norm: ``post`` or ``pre``.
        feed_forward: F, by default two linear layers with GELU between them.
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
        self.dropout = nn.Sequential(nn.Dropout(dropout), nn.Dropout1d(drop_path))  # channels, then rows

    def forward(self, x: Tensor, relation: Relation, sender: Tensor | None = None) -> Tensor:
        """``x`` ``[R, dim]`` hears ``sender`` ``[S, dim]`` (by default itself) over ``relation``."""
        if self.pre:
            normed = self.norm1(x)
            x = x + self.dropout(self.attention(normed, normed if sender is None else sender, relation))
            return x + self.dropout(self.feed_forward(self.norm2(x)))
        x = self.norm1(x + self.dropout(self.attention(x, x if sender is None else sender, relation)))
        return self.norm2(x + self.dropout(self.feed_forward(x)))
