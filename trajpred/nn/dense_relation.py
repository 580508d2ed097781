"""The edges of a batch as padded matrices: the fast form of a relation wherever scenes fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trajpred.nn.padding import Blocks, Padding
from trajpred.nn.relation import EdgeRelation, Poses, repeat_receiver_poses
from trajpred.nn.segment import LOWEST


@dataclass
class DenseRelation:
    """Edges as bias matrices, shared by all layers.

    Attributes:
        bias: per block ``[scenes · H, R, S]``, :data:`~trajpred.nn.segment.LOWEST` without an edge.
        senders: layout of the columns.
        receivers: layout of the rows.
        reached: see :class:`~trajpred.nn.relation.Relation`.
        poses: of the senders and of the receivers.
        copies: see :class:`~trajpred.nn.relation.Relation`.
        edges: where the matrices come from, unless they are those of all pairs.
    """

    bias: list[Tensor]
    senders: Blocks
    receivers: Blocks
    reached: Tensor | None
    poses: Poses | None = None
    copies: int = 1
    edges: EdgeRelation | None = None

    @classmethod
    def of(
        cls, edges: EdgeRelation, senders: Padding, receivers: Padding, together: bool | None = None
    ) -> DenseRelation:
        """Lay out ``edges``, which connect nodes of the same scene.

        Args:
            edges: between any number of scenes.
            senders: places of their senders.
            receivers: places of their receivers.
            together: whether all scenes form one block, see :class:`Blocks`; by default on a GPU.
        """
        if together is None:
            together = edges.index.is_cuda
        columns = Blocks.of(senders, together)
        rows = Blocks.of(receivers, together)
        # Float16 cannot hold LOWEST.
        dtype = torch.promote_types(edges.bias.dtype, torch.float32)
        # Heads outermost, so that the matrices of a block are slices.
        by_head = edges.bias.T.to(dtype)
        if len(rows.shapes) == 1:
            values = [by_head]
            cells = [_cells_of_one_block(edges, senders, rows)]
        else:
            values, cells = _values_and_cells_by_scene(edges, senders, receivers, by_head)
        num_heads = len(by_head)
        bias = []
        for block, shape in enumerate(rows.shapes):
            num_scenes, num_rows = shape
            num_columns = columns.shapes[block][1]
            matrices = by_head.new_full((num_heads, num_scenes * num_rows * num_columns), LOWEST)
            matrices.index_copy_(1, cells[block], values[block])
            matrices = matrices.view(num_heads, num_scenes, num_rows, num_columns)
            bias.append(matrices.transpose(0, 1).flatten(0, 1))
        return cls(
            bias=bias,
            senders=columns,
            receivers=rows,
            reached=edges.reached,
            poses=edges.poses,
            copies=edges.copies,
            edges=edges,
        )

    @classmethod
    def of_pairs(
        cls, bias: Tensor, edge: Tensor, poses: Poses | None, complete: bool = False
    ) -> DenseRelation:
        """Build from all pairs of one scene: without gather or scatter, hence the form that is exported.

        Args:
            bias: ``[H, R, S]``.
            edge: ``[R, S]``, whether there is an edge.
            poses: of the senders and of the receivers.
            complete: whether every receiver is known to have an edge.
        """
        num_receivers, num_senders = edge.shape
        reached = None if complete else edge.any(1, keepdim=True)
        return cls(
            bias=[torch.where(edge, bias, LOWEST)],
            senders=Blocks(None, [(1, num_senders)]),
            receivers=Blocks(None, [(1, num_receivers)]),
            reached=reached,
            poses=poses,
        )

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        queries = self.receivers.split(query)
        keys = self.senders.split(key)
        values = self.senders.split(value)
        scale = query.shape[-1] ** -0.5
        pooled = []
        for q, k, v, bias in zip(queries, keys, values, self.bias, strict=True):
            # scaled_dot_product_attention has no fast CPU kernel when the bias needs a gradient.
            transposed = k.to(bias.dtype).transpose(1, 2)
            score = torch.baddbmm(bias, q.to(bias.dtype), transposed, alpha=scale)
            weight = score.softmax(-1)
            pooled.append(torch.bmm(weight.to(v.dtype), v))
        return self.receivers.join(pooled)

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the attention of every edge, as :meth:`EdgeRelation.weights`."""
        assert self.edges is not None, "all pairs have no list of edges"
        return self.edges.weights(query, key)

    def repeat_receivers(self, times: int) -> DenseRelation:
        """Repeat every receiver ``times`` times in a row."""
        reached = self.reached
        if reached is not None:
            reached = reached.repeat_interleave(times, dim=0)
        return replace(
            self,
            bias=[bias.repeat_interleave(times, 1) for bias in self.bias],
            receivers=self.receivers.repeat(times),
            reached=reached,
            poses=repeat_receiver_poses(self.poses, times),
            edges=None,
        )


def _cells_of_one_block(edges: EdgeRelation, senders: Padding, rows: Blocks) -> Tensor:
    """Return the cell of each edge, ``[E]``, in the flattened matrices of the only block."""
    sender, receiver = edges.index
    column = sender if senders.scenes == 1 else senders.within[sender]
    row = receiver if rows.slot is None else rows.slot[receiver]
    return row * senders.size + column


def _values_and_cells_by_scene(
    edges: EdgeRelation, senders: Padding, receivers: Padding, by_head: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Sort the bias ``by_head`` ``[H, E]`` of the edges by scene.

    Returns:
        For each scene, the values ``[H, edges]`` and the cells ``[edges]`` of its flattened matrix
        ``[receivers, senders]`` that they belong to.
    """
    sender, receiver = edges.index
    scene = receivers.scene[receiver]
    cell = receivers.within[receiver] * senders.count[scene] + senders.within[sender]
    unordered = bool((scene[1:] < scene[:-1]).any())
    if unordered:
        order = scene.argsort(stable=True)
        cell = cell[order]
        by_head = by_head.gather(1, order.expand_as(by_head))
    counts = scene.bincount(minlength=receivers.scenes).tolist()
    return list(by_head.split(counts, 1)), list(cell.split(counts))
