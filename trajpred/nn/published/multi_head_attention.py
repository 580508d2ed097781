"""Dot-product attention from any part of a graph to any other: TF-GNN's ``MultiHeadAttentionConv``."""

from __future__ import annotations

import warnings
from enum import IntEnum
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, elu

from trajpred.nn.published import keras_names as keras
from trajpred.nn.segment import segment_softmax, segment_sum

ScoreScaling = Literal["none", "rsqrt_dim", "trainable_elup1"]


class ReceiverTag(IntEnum):
    """Receiver of messages: row 0 of ``edge_index``, its row 1, or the whole graph."""

    SOURCE = 0
    TARGET = 1
    CONTEXT = 2

    @classmethod  # makes ``ReceiverTag("target")`` known, too
    def _missing_(cls, value: object) -> ReceiverTag | None:
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


SOURCE, TARGET, CONTEXT = ReceiverTag


class MultiHeadAttentionConv(nn.Module):
    r"""Multi-head attention of receivers over their items: edges, or the nodes of a graph.

    With receiver :math:`h_v`, sender node :math:`h_u` and edge :math:`e_{uv}` (either of these two may be
    absent), per head, φ the ``attention_activation``, σ the ``activation``:

    .. math::
        q_v &= φ(W_Q h_v + b_Q), \quad k_{uv} = φ(W_{Kn} h_u + W_{Ke} e_{uv} + b_K), \quad
        α_{uv} = \mathrm{softmax}_u (s\, q_v \cdot k_{uv}) \\
        o_v &= σ\Big(\sum_u α_{uv} (W_{Vn} h_u + W_{Ve} e_{uv} + b_V)\Big)

    Heads are concatenated. There is no output projection, residual, norm or self-loop. Options:

    - ``transform_keys=False``: :math:`k_{uv} = [h_u, e_{uv}]` for all heads, without φ; q has its width.
    - ``share_key_transform``: :math:`W_K`, :math:`b_K` have the size of one head, and all heads share them.
    - ``score_scaling``: s is 1 over the root of the width of k (``rsqrt_dim``), 1 (``none``), or elu(w) + 1
      with one weight w per head, initially 0 (``trainable_elup1``).
    - ``transform_values_after_pooling``: :math:`o_v = σ(W_V \sum_u α_{uv} [h_u, e_{uv}] + b_V)`. This differs
      for receivers without items, σ(b_V) instead of σ(0), and under dropout of α.

    Shapes: receivers ``[R, d_r]``, senders ``[S, d_s]``, items ``[I, d_e]`` -> ``[R, num_heads *
    per_head_channels]``; with ``return_attention=True`` also α ``[I, num_heads]`` before dropout.

    - TARGET: the items are edges, from senders ``edge_index[0]`` to receivers ``edge_index[1]``.
    - SOURCE: the items are edges, from senders ``edge_index[1]`` to receivers ``edge_index[0]``.
    - CONTEXT over edges (``edge_batch``): the receivers are graphs; there are no senders.
    - CONTEXT over nodes (``batch``): the receivers are graphs, the senders their nodes.

    Source: TensorFlow GNN, ``models/multi_head_attention``, after Dwivedi & Bresson 2020 (arXiv 2012.09699).
    Raises its errors, and ValueError where it silently ignores a given input.

    Args:
        num_heads: number of heads H.
        per_head_channels: channels per head C.
        receiver_tag: see above; a :class:`ReceiverTag`, its number or its name. None: each call states it.
        receiver_feature: any name.
        sender_node_feature: any name if calls pass the nodes; None if they must not.
        sender_edge_feature: any name if calls pass the edges; None if they must not.
        use_bias: biases of all maps; for keys and values in the node part, or in the edge part if alone.
        edge_dropout: rate on α, per item and head.
        inputs_dropout: rate on the three inputs.
        attention_activation: φ, a Keras name, a function or a module; None is linear.
        activation: σ, like ``attention_activation``.
        kernel_initializer: initialiser of every W: a Keras name or a function that fills ``[out, in]`` in
            place; ``glorot_uniform`` if None. Biases start at 0.
        kernel_regularizer: a Keras name, factors such as ``{"l2": 1e-4}``, or a function of W; add
            :meth:`penalty` to the training loss.
        transform_keys: see above.
        share_key_transform: see above.
        score_scaling: see above.
        transform_values_after_pooling: see above.
        receiver_channels: width of the receivers.
        sender_node_channels: width of the sender nodes; by default the receivers'.
        sender_edge_channels: width of the edges, needed with ``sender_edge_feature``.
        name: name of the layer.

    Example:
        >>> edges = {"sender_edge_feature": "edge_attr", "sender_edge_channels": 3}
        >>> sizes = {"num_heads": 2, "per_head_channels": 8, "receiver_channels": 16}
        >>> attention = MultiHeadAttentionConv(**sizes, **edges, receiver_tag="target")
        >>> edge_index = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
        >>> attention(torch.randn(4, 16), edge_index, torch.randn(4, 3)).shape
        torch.Size([4, 16])
    """

    def __init__(
        self,
        *,
        num_heads: int,
        per_head_channels: int,
        receiver_channels: int,
        receiver_tag: ReceiverTag | int | str | None = None,
        receiver_feature: str = "hidden_state",
        sender_node_feature: str | None = "hidden_state",
        sender_edge_feature: str | None = None,
        use_bias: bool = True,
        edge_dropout: float = 0.0,
        inputs_dropout: float = 0.0,
        attention_activation: keras.Activation = None,
        activation: keras.Activation = "relu",
        kernel_initializer: keras.Initializer = None,
        kernel_regularizer: keras.Regularizer = None,
        transform_keys: bool = True,
        share_key_transform: bool = False,
        score_scaling: ScoreScaling = "rsqrt_dim",
        transform_values_after_pooling: bool = False,
        sender_node_channels: int | None = None,
        sender_edge_channels: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.receiver_tag: ReceiverTag | None = None
        if receiver_tag is not None:
            self.receiver_tag = ReceiverTag(receiver_tag)  # type: ignore[arg-type]
        self.receiver_feature = receiver_feature
        self.sender_node_feature = sender_node_feature
        self.sender_edge_feature = sender_edge_feature
        self.num_heads = num_heads
        self.per_head_channels = per_head_channels
        self.edge_dropout = edge_dropout
        self.inputs_dropout = inputs_dropout
        self.transform_keys = transform_keys
        self.share_key_transform = share_key_transform
        self.score_scaling: str = score_scaling
        self.attention_activation = keras.activation_of(attention_activation)
        self.activation = keras.activation_of(activation)
        self.regularize = keras.regularizer_of(kernel_regularizer)
        self._check_options(sender_edge_channels)
        if attention_activation is not None and score_scaling != "none":
            warnings.warn("attention_activation works better with score_scaling='none'", stacklevel=2)
        node = 0
        edge = 0
        if sender_node_channels is None:
            sender_node_channels = receiver_channels
        if sender_node_feature is not None:
            node = sender_node_channels
        if sender_edge_feature is not None:
            edge = sender_edge_channels or 0
        width = num_heads * per_head_channels
        key_width = per_head_channels if share_key_transform else width
        query_width = width if transform_keys else num_heads * (node + edge)
        early = not transform_values_after_pooling
        edge_bias = use_bias and not node  # one bias, not the sum of two
        initializer = keras.initializer_of(kernel_initializer)
        # Always in this order: each draws random numbers.
        self.query = _dense(receiver_channels, query_width, use_bias, initializer)
        self.key_node = _dense(node, key_width, use_bias, initializer) if transform_keys and node else None
        self.key_edge = _dense(edge, key_width, edge_bias, initializer) if transform_keys and edge else None
        self.value_node = _dense(node, width, use_bias, initializer) if early and node else None
        self.value_edge = _dense(edge, width, edge_bias, initializer) if early and edge else None
        self.value_pooled = None if early else _dense(node + edge, width, use_bias, initializer)
        self.score_scaling_weight: nn.Parameter | None = None
        if score_scaling == "trainable_elup1":
            self.score_scaling_weight = nn.Parameter(torch.zeros(num_heads, 1))

    def _check_options(self, edge_channels: int | None) -> None:
        """Raise ValueError if an option is invalid or contradicts another one."""
        if self.receiver_feature is None:
            raise ValueError("attention needs a receiver_feature, not None")
        if min(self.num_heads, self.per_head_channels) <= 0:
            sizes = f"num_heads {self.num_heads} and per_head_channels {self.per_head_channels}"
            raise ValueError(f"{sizes} must be > 0")
        if self.sender_node_feature is None and self.sender_edge_feature is None:
            raise ValueError("sender_node_feature and sender_edge_feature must not both be None")
        if self.sender_edge_feature is not None and not edge_channels:
            raise ValueError("sender_edge_feature needs sender_edge_channels > 0")
        if not (0 <= self.edge_dropout <= 1 and 0 <= self.inputs_dropout <= 1):
            rates = f"edge_dropout {self.edge_dropout}, inputs_dropout {self.inputs_dropout}"
            raise ValueError(f"{rates}: not in [0, 1]")
        choices = get_args(ScoreScaling)
        if self.score_scaling not in choices:
            raise ValueError(f"score_scaling must be one of {choices}, not {self.score_scaling!r}")

    def penalty(self) -> Tensor:
        """Sum ``kernel_regularizer`` over every W, without biases; 0 if there is none."""
        if self.regularize is None:
            return self.query.weight.new_zeros(())
        maps = [module for module in self.children() if isinstance(module, nn.Linear)]
        penalties = [self.regularize(linear.weight) for linear in maps]
        return torch.stack(penalties).sum()

    def forward(
        self,
        x: Tensor | tuple[Tensor | None, Tensor],
        edge_index: Tensor | None = None,
        edge_attr: Tensor | None = None,
        *,
        receiver_tag: ReceiverTag | int | str | None = None,
        batch: Tensor | None = None,
        edge_batch: Tensor | None = None,
        return_attention: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend.

        Args:
            x: nodes ``[N, in]``, or ``(x_sender [S, in_s] or None, x_receiver [R, in_r])``; with CONTEXT
                x_receiver is the context ``[graphs, in_r]``.
            edge_index: ``[2, E]`` in any order, row 0 senders, with SOURCE receivers; ignored with CONTEXT.
            edge_attr: ``[E, in_e]``, if and only if ``sender_edge_feature`` is set.
            receiver_tag: see the class.
            batch: ``[S]``, graph of each node, for CONTEXT over nodes.
            edge_batch: ``[E]``, graph of each edge, for CONTEXT over edges.
            return_attention: also return α.
            training: replaces the mode of the module.
        """
        tag = self._tag(receiver_tag)
        if tag is CONTEXT and isinstance(x, Tensor):
            raise ValueError("receiver_tag CONTEXT needs x = (x_sender or None, context)")
        node, receiver = (x, x) if isinstance(x, Tensor) else x
        index, origin = _ends(tag, edge_index, batch, edge_batch)
        if self.sender_node_feature is None or (tag is CONTEXT and batch is None):
            node = None
        edge = edge_attr
        _require_given("sender_node", self.sender_node_feature, node)
        _require_given("sender_edge", self.sender_edge_feature, edge)
        if training is None:
            training = self.training
        if node is not None:
            node = dropout(node, self.inputs_dropout, training)
        if edge is not None:
            edge = dropout(edge, self.inputs_dropout, training)
        receiver = dropout(receiver, self.inputs_dropout, training)
        query = self._heads(self.attention_activation(self.query(receiver)))
        key = self._keys(node, edge, origin)
        product = query.index_select(0, index) * key
        score = product.sum(-1, keepdim=True) * self._scale(key.shape[-1])
        attention = segment_softmax(score, index, receiver.shape[0])
        value = self._values(node, edge, origin)
        message = dropout(attention, self.edge_dropout, training) * value
        out = self._combine(segment_sum(message, index, receiver.shape[0]))
        if return_attention:
            return out, attention.squeeze(-1)
        return out

    def _tag(self, at_call: ReceiverTag | int | str | None) -> ReceiverTag:
        """Return the receiver tag of a call, given by the layer, the call, or equally by both."""
        needed = f"{type(self).__name__} needs receiver_tag at construction or call, got"
        if at_call is None:
            if self.receiver_tag is None:
                raise ValueError(f"{needed} neither")
            return self.receiver_tag
        tag = ReceiverTag(at_call)  # type: ignore[arg-type]  # names too
        if self.receiver_tag not in (None, tag):
            raise ValueError(f"{needed} two that differ")
        return tag

    def _keys(self, node: Tensor | None, edge: Tensor | None, origin: Tensor | None) -> Tensor:
        """Keys of the items, ``[I, H, C]``; ``[I, 1, C]`` for all heads, ``[I, 1, d]`` if not transformed."""
        if not self.transform_keys:
            return torch.cat(_parts(node, edge, origin), -1).unsqueeze(-2)
        parts = _parts(node, edge, origin, self.key_node, self.key_edge)
        key = self.attention_activation(sum(parts[1:], parts[0]))
        if self.share_key_transform:
            return key.unsqueeze(-2)
        return self._heads(key)

    def _values(self, node: Tensor | None, edge: Tensor | None, origin: Tensor | None) -> Tensor:
        """Values of the items, ``[I, H, C]``; ``[I, 1, d]`` if transformed after pooling."""
        if self.value_pooled is not None:
            return torch.cat(_parts(node, edge, origin), -1).unsqueeze(-2)
        parts = _parts(node, edge, origin, self.value_node, self.value_edge)
        return self._heads(sum(parts[1:], parts[0]))

    def _scale(self, key_width: int) -> Tensor | float:
        """s: a number, or ``[H, 1]``."""
        if self.score_scaling == "none":
            return 1.0
        if self.score_scaling == "rsqrt_dim":
            return key_width**-0.5
        assert self.score_scaling_weight is not None
        return elu(self.score_scaling_weight) + 1

    def _combine(self, pooled: Tensor) -> Tensor:
        """``[R, H, C]`` or ``[R, H, d_s + d_e]`` -> ``[R, H * C]``."""
        if self.value_pooled is not None:
            sizes = (self.num_heads, self.per_head_channels)
            weight = self.value_pooled.weight.unflatten(0, sizes)
            pooled = torch.einsum("...hd,hcd->...hc", pooled, weight)
            if self.value_pooled.bias is not None:
                pooled = pooled + self.value_pooled.bias.unflatten(0, sizes)
        return self.activation(pooled).flatten(-2)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1))


def _dense(in_features: int, out_features: int, bias: bool, initializer: keras.TensorFunction) -> nn.Linear:
    """Make a linear map whose bias starts at 0."""
    linear = nn.Linear(in_features, out_features, bias)
    with torch.no_grad():
        initializer(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


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


def _parts(
    node: Tensor | None,
    edge: Tensor | None,
    origin: Tensor | None,
    of_node: nn.Module | None = None,
    of_edge: nn.Module | None = None,
) -> list[Tensor]:
    """Return each item's parts after the given maps: its sender ``origin``, and its edge."""
    parts: list[Tensor] = []
    if node is not None:
        if of_node is not None:  # each node is mapped once
            node = of_node(node)
        parts.append(node if origin is None else node.index_select(0, origin))
    if edge is not None:
        parts.append(edge if of_edge is None else of_edge(edge))
    return parts


def _require_given(name: str, feature: str | None, value: Tensor | None) -> None:
    """Raise ValueError unless an input is present if and only if its feature is."""
    if (feature is None) == (value is None):
        return
    problem = "is missing" if value is None else "must not be given"
    raise ValueError(f"{name}_feature is {feature!r}, so {name}_input {problem}")
