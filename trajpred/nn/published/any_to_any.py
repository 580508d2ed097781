"""Convolutions from any piece of a graph to any other: nodes, edges, and the graph as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from typing import Any, TypeVar

from torch import Tensor, nn

from trajpred.nn.segment import reduce_items

T = TypeVar("T", int, Tensor)


def both(x: T | tuple[T, T]) -> tuple[T, T]:
    """Return (of the senders, of the receivers) from such a pair or from one value for both."""
    if isinstance(x, (int, Tensor)):
        return x, x
    return x


#: Default name of a feature.
HIDDEN_STATE = "hidden_state"

Result = Tensor | tuple[Tensor, Tensor]
#: ``f(value, receiver, num_receivers, **options)`` of ``[items, ...]`` and the receiver ``[items]`` of each.
ReceiverOp = Callable[..., Tensor]


class ReceiverTag(IntEnum):
    """Receiver of messages: row 0 of ``edge_index``, its row 1, or the whole graph."""

    SOURCE = 0
    TARGET = 1
    CONTEXT = 2

    @classmethod  # makes ``ReceiverTag("target")`` known, too
    def _missing_(cls, value: object) -> ReceiverTag | None:
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


SOURCE, TARGET, CONTEXT = ReceiverTag


class AnyToAnyConvolution(nn.Module):
    """Base class of convolutions with a receiver tag, TF-GNN's ``AnyToAnyConvolutionBase``.

    A subclass implements :meth:`convolve` with functions that carry values between receivers, senders and
    *items* (edges, or the nodes of a graph), without indices.

    - TARGET: the items are edges, from senders ``edge_index[0]`` to receivers ``edge_index[1]``.
    - SOURCE: the items are edges, from senders ``edge_index[1]`` to receivers ``edge_index[0]``.
    - CONTEXT over edges (``edge_batch``): the receivers are graphs; there are no senders.
    - CONTEXT over nodes (``batch``): the receivers are graphs, the senders their nodes.

    A feature of None switches an input off, and ``convolve`` gets None; any name switches it on, and then
    every call must give it. Without ``receiver_feature`` receivers only say how many there are.

    Args:
        receiver_tag: a :class:`ReceiverTag`, its number or its name; if None, every call must give one.
        receiver_feature: feature of the receiver nodes, or of the context.
        sender_node_feature: None when CONTEXT receives from edges.
        sender_edge_feature: None when CONTEXT receives from nodes.
        extra_receiver_ops: further functions for ``convolve``, by name, such as
            :func:`~trajpred.nn.segment_softmax`: ``f(value, receiver, num_receivers, **options)`` of
            ``[items, ...]`` and the receiver ``[items]`` of each. ``convolve`` gets ``f(value, **options)``.
        name: of the layer.

    Example:
        >>> import torch
        >>> class Sum(AnyToAnyConvolution):
        ...     def convolve(self, *, sender_node_input, **functions):
        ...         message = functions["broadcast_from_sender_node"](sender_node_input)
        ...         return functions["pool_to_receiver"](message)
        >>> edge_index = torch.tensor([[0, 1], [2, 2]])
        >>> Sum(receiver_tag="target")(torch.tensor([[1.0], [2.0], [4.0]]), edge_index).flatten()
        tensor([0., 0., 3.])
    """

    def __init__(
        self,
        receiver_tag: ReceiverTag | int | str | None = None,
        receiver_feature: str | None = HIDDEN_STATE,
        sender_node_feature: str | None = HIDDEN_STATE,
        sender_edge_feature: str | None = None,
        extra_receiver_ops: Mapping[str, ReceiverOp] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.receiver_tag: ReceiverTag | None = None
        if receiver_tag is not None:
            self.receiver_tag = ReceiverTag(receiver_tag)  # type: ignore[arg-type]  # names too
        self.receiver_feature = receiver_feature
        self.sender_node_feature = sender_node_feature
        self.sender_edge_feature = sender_edge_feature
        self.extra_receiver_ops: dict[str, ReceiverOp] | None = None
        if extra_receiver_ops is not None:
            self.extra_receiver_ops = dict(extra_receiver_ops)

    @property
    def takes_receiver_input(self) -> bool:
        """Whether ``convolve`` gets a ``receiver_input``; otherwise it is None in every call."""
        return self.receiver_feature is not None

    @property
    def takes_sender_node_input(self) -> bool:
        """Likewise of ``sender_node_input``."""
        return self.sender_node_feature is not None

    @property
    def takes_sender_edge_input(self) -> bool:
        """Likewise of ``sender_edge_input``."""
        return self.sender_edge_feature is not None

    def convolve(
        self,
        *,
        sender_node_input: Tensor | None,
        sender_edge_input: Tensor | None,
        receiver_input: Tensor | None,
        broadcast_from_sender_node: Callable[[Tensor], Tensor] | None,
        broadcast_from_receiver: Callable[[Tensor], Tensor],
        pool_to_receiver: Callable[..., Tensor],
        extra_receiver_ops: Mapping[str, Callable[..., Tensor]] | None = None,
        **kwargs: Any,
    ) -> Result:
        """Convolve; implemented by subclasses. Returns ``[R, ...]``.

        Args:
            sender_node_input: ``[S, ...]``, None if off.
            sender_edge_input: ``[items, ...]``, None if off.
            receiver_input: ``[R, ...]``, None if off.
            broadcast_from_sender_node: ``[S, ...]`` -> ``[items, ...]``; None without senders.
            broadcast_from_receiver: ``[R, ...]`` -> ``[items, ...]``.
            pool_to_receiver: called as ``pool(value, reduce_type="sum")``, ``[items, ...]`` -> ``[R, ...]``
                (:func:`~trajpred.nn.segment.reduce_items`).
            extra_receiver_ops: by name, called as ``op(value, **options)`` with ``[items, ...]``.
            kwargs: further arguments of :meth:`forward`.
        """
        raise NotImplementedError

    def forward(
        self,
        x: Tensor | tuple[Tensor | None, Tensor],
        edge_index: Tensor | None = None,
        edge_attr: Tensor | None = None,
        *,
        receiver_tag: ReceiverTag | int | str | None = None,
        batch: Tensor | None = None,
        edge_batch: Tensor | None = None,
        **kwargs: Any,
    ) -> Result:
        """Convolve.

        Args:
            x: nodes ``[N, in]``, or ``(x_sender [S, in_s] or None, x_receiver [R, in_r])``; with CONTEXT
                x_receiver is the context ``[graphs, in_r]``.
            edge_index: ``[2, E]`` in any order, row 0 senders, with SOURCE receivers; ignored with CONTEXT.
            edge_attr: ``[E, in_e]``, if and only if ``sender_edge_feature`` is set.
            batch: ``[S]``, graph of each node, for CONTEXT over nodes.
            edge_batch: ``[E]``, graph of each edge, for CONTEXT over edges.
            receiver_tag: see the class.
            kwargs: passed on to ``convolve``.
        """
        tag = self._tag(receiver_tag)
        if tag is CONTEXT and isinstance(x, Tensor):
            raise ValueError("receiver_tag CONTEXT needs x = (x_sender or None, context)")
        sender: Tensor | None
        sender, receiver = (x, x) if isinstance(x, Tensor) else x
        index, origin = _ends(tag, edge_index, batch, edge_batch)
        R = receiver.shape[0]
        if not self.takes_sender_node_input or (tag is CONTEXT and batch is None):
            sender = None

        def from_sender(value: Tensor) -> Tensor:
            if origin is None:
                return value
            return value.index_select(0, origin)

        def from_receiver(value: Tensor) -> Tensor:
            return value.index_select(0, index)

        def pool(value: Tensor, reduce_type: str = "sum") -> Tensor:
            return reduce_items(value, index, R, reduce_type)

        if self.extra_receiver_ops is not None:
            kwargs["extra_receiver_ops"] = {
                name: partial(op, receiver=index, num_receivers=R)
                for name, op in self.extra_receiver_ops.items()
            }
        return self.convolve(
            sender_node_input=sender,
            sender_edge_input=edge_attr,
            receiver_input=receiver if self.takes_receiver_input else None,
            broadcast_from_sender_node=None if sender is None else from_sender,
            broadcast_from_receiver=from_receiver,
            pool_to_receiver=pool,
            **kwargs,
        )

    def check_inputs(self, sender_node: Tensor | None, sender_edge: Tensor | None) -> None:
        """Raise ValueError unless exactly those sender inputs are given that are switched on."""
        _check_input("sender_node", self.sender_node_feature, sender_node)
        _check_input("sender_edge", self.sender_edge_feature, sender_edge)

    def _tag(self, at_call: ReceiverTag | int | str | None) -> ReceiverTag:
        """Return the receiver tag of a call, which the layer or the call gives, or both alike."""
        tags = set()
        for tag in (self.receiver_tag, at_call):
            if tag is not None:
                tags.add(ReceiverTag(tag))  # type: ignore[arg-type]  # names too
        if len(tags) != 1:
            problem = "two that differ" if tags else "neither"
            raise ValueError(
                f"{type(self).__name__} needs receiver_tag at construction or call, got {problem}"
            )
        return tags.pop()


def _check_input(name: str, feature: str | None, value: Tensor | None) -> None:
    """Raise ValueError unless an input is present if and only if its feature is."""
    if (feature is None) == (value is None):
        return
    problem = "is missing" if value is None else "must not be given"
    raise ValueError(f"{name}_feature is {feature!r}, so {name}_input {problem}")


def _ends(
    tag: ReceiverTag, edge_index: Tensor | None, batch: Tensor | None, edge_batch: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return the receiver and the sender of each item; None if every item is its own sender."""
    if tag is CONTEXT:
        graph_of = batch if edge_batch is None else edge_batch
        if graph_of is None or (batch is not None and edge_batch is not None):
            raise ValueError("receiver_tag CONTEXT needs exactly one of batch (over nodes), edge_batch")
        return graph_of, None
    if edge_index is None or batch is not None:
        raise ValueError(f"receiver_tag {tag.name} needs edge_index, not batch")
    return edge_index[tag], edge_index[1 - tag]
