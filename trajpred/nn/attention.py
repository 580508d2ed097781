"""Multi-head graph attention with relative poses: the default operator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trajpred.nn.dense_relation import DenseRelation
from trajpred.nn.relation import EdgeRelation, Relation


def at_least_float32(x: Tensor) -> Tensor:
    """Cast half precision to float32, since metres need it under autocast; float64 stays."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class EdgeBias(nn.Module):
    """Map edge features ε to one additive score per head: b = W₂ GELU(W₁ ε + c).

    Args:
        channels: channels of the edge features.
        heads: heads of the attention that uses the bias.
        hidden: width of W₁.
        skip: number of leading channels to ignore.

    Shapes: ``[channels, ...]`` -> ``[heads, ...]``. Channels come first, so that each has its values side by
    side, and the matrices of the heads too.

    Example:
        >>> EdgeBias(channels=5, heads=2)(torch.randn(5, 7)).shape
        torch.Size([2, 7])
    """

    def __init__(self, channels: int, heads: int, hidden: int = 32, skip: int = 0) -> None:
        super().__init__()
        self.skip = skip
        first, second = nn.Linear(channels - skip, hidden), nn.Linear(hidden, heads, bias=False)
        self.net = nn.Sequential(first, nn.GELU(), second)

    def forward(self, features: Tensor) -> Tensor:
        first, activation, second = self.net
        assert isinstance(first, nn.Linear) and isinstance(second, nn.Linear)
        x = torch.addmm(first.bias[:, None], first.weight, features[self.skip :].flatten(1))
        return (second.weight @ activation(x)).unflatten(1, features.shape[1:])


class GraphAttention(nn.Module):
    r"""Multi-head attention over the edges of a relation, with relative poses in scores and values.

    .. math::
        s_{ij} = q_i \cdot k_j / \sqrt{C} + b_{ij}, \quad
        α_{ij} = \mathrm{softmax}_j\, s_{ij}, \quad
        o_i = W_o \sum_j α_{ij} v_j + W_p\, T_i^{-1} \sum_j α_{ij}\, T_j

    with q = W_q x_receiver, k = W_k x_sender, v = W_v x_sender per head, b the bias of the relation, and T a
    pose as (position, direction). The last term gives the receiver the poses it attends to in its own frame;
    poses enter linearly, so they are summed first and nothing is stored per pair. The output depends on
    relative poses only. Keys have no bias, which softmax would cancel. A receiver without edges gets 0.

    Args:
        dim: channels of receivers, senders and output.
        heads: number of heads H; C = dim / H.
        poses: whether relations carry poses (the W_p term).

    Shapes: receivers ``[R, dim]``, senders ``[S, dim]`` -> ``[R, dim]``.

    Example:
        >>> from trajpred.geometry import Pose
        >>> from trajpred.nn import EdgeRelation
        >>> poses = Pose(torch.randn(3, 2), torch.zeros(3))
        >>> index, bias = torch.tensor([[0, 1, 2], [1, 0, 0]]), torch.zeros(3, 2)
        >>> edges = EdgeRelation(index, bias, 3, 3, (poses, poses))
        >>> x = torch.randn(3, 8)
        >>> GraphAttention(8, heads=2)(x, x, edges).shape
        torch.Size([3, 8])
    """

    def __init__(self, dim: int, heads: int, poses: bool = True) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim {dim} must be a multiple of heads {heads}")
        self.heads, self.poses = heads, poses
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim + 4 * heads * poses, dim, bias=False)

    def forward(self, receiver: Tensor, sender: Tensor, relation: Relation) -> Tensor:
        q = self._heads(self.query, receiver, relation)
        k, v = (self._heads(layer, sender, relation) for layer in (self.key, self.value))
        # Half precision, which would lose metres of the poses, serves the linear maps only.
        with torch.autocast(receiver.device.type, enabled=False):
            pooled = self._pool(q, k, v, relation)
        out = self.out(pooled.reshape(receiver.shape[0], -1))
        return out if relation.reached is None else out * relation.reached

    def weights(self, receiver: Tensor, sender: Tensor, relation: EdgeRelation | DenseRelation) -> Tensor:
        """Return the attention α of every edge and head, ``[E, H]``."""
        q, k = self._heads(self.query, receiver, relation), self._heads(self.key, sender, relation)
        with torch.autocast(receiver.device.type, enabled=False):
            return relation.weights(q, k)

    def _heads(self, layer: nn.Linear, x: Tensor, relation: Relation) -> Tensor:
        """``[N · copies, dim]`` -> ``[N, copies · H, C]`` in float32 or wider."""
        return at_least_float32(layer(x)).view(-1, self.heads * relation.copies, x.shape[1] // self.heads)

    def _pool(self, q: Tensor, k: Tensor, v: Tensor, relation: Relation) -> Tensor:
        """Aggregate: ``[R, H, C]``, with poses ``[R, H, C + 4]``."""
        if not self.poses:
            return relation.attend(q, k, v)
        assert relation.poses is not None, "this attention needs a relation with poses"
        pose, frame = relation.poses
        carried = pose.scaled[:, None].expand(-1, v.shape[1], -1)
        pooled, moved = relation.attend(q, k, torch.cat((v, carried), -1)).split((v.shape[-1], 4), -1)
        # From the common frame into that of each receiver.
        moved = moved - frame.place[:, None]
        turned = torch.bmm(moved.reshape(-1, 2 * v.shape[1], 2), frame.turn)
        return torch.cat((pooled, turned.view(moved.shape)), -1)
