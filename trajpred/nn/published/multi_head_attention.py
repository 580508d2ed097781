"""Dot-product attention from any piece of a graph to any other: TF-GNN's ``MultiHeadAttentionConv``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, elu

from trajpred.nn.published import keras_names as keras
from trajpred.nn.published.any_to_any import HIDDEN_STATE, AnyToAnyConvolution, ReceiverTag, Result
from trajpred.nn.published.keras_names import LazyDense, drop, sum_parts, width_of
from trajpred.nn.segment import segment_softmax

#: Returns the parts of each item, [node, edge] or one of them, after the given maps.
Parts = Callable[[nn.Module | None, nn.Module | None], list[Tensor]]

ScoreScaling = Literal["none", "rsqrt_dim", "trainable_elup1"]


class MultiHeadAttentionConv(AnyToAnyConvolution):
    r"""Multi-head attention of receivers over their items: edges, or the nodes of a graph.

    With receiver :math:`h_v`, sender node :math:`h_u` and edge :math:`e_{uv}` (either of these two may be
    absent), per head, φ the ``attention_activation``, σ the ``activation``:

    .. math::
        q_v &= φ(W_Q h_v + b_Q), \quad k_{uv} = φ(W_{Kn} h_u + W_{Ke} e_{uv} + b_K), \quad
        α_{uv} = \mathrm{softmax}_u (s\, q_v \cdot k_{uv}) \\
        o_v &= σ\Big(\sum_u α_{uv} (W_{Vn} h_u + W_{Ve} e_{uv} + b_V)\Big)

    Heads are concatenated. There is no output projection, residual, norm or self-loop. Options:

    - ``transform_keys=False``: :math:`k_{uv} = [h_u, e_{uv}]` for all heads, without φ; q has its width.
    - ``share_key_transform``: :math:`W_K`, :math:`b_K` have the size of one head and serve all.
    - ``score_scaling``: s is 1 over the root of the width of k (``rsqrt_dim``), 1 (``none``), or elu(w) + 1
      with one weight w per head, initially 0 (``trainable_elup1``).
    - ``transform_values_after_pooling``: :math:`o_v = σ(W_V \sum_u α_{uv} [h_u, e_{uv}] + b_V)`. This differs
      for receivers without items, σ(b_V) instead of σ(0), and under dropout of α.

    Shapes: receivers ``[R, d_r]``, senders ``[S, d_s]``, items ``[I, d_e]`` -> ``[R, num_heads *
    per_head_channels]``; with ``return_attention=True`` also α ``[I, num_heads]`` before dropout. Call: see
    :class:`~trajpred.nn.published.any_to_any.AnyToAnyConvolution`.

    Source: TensorFlow GNN, ``models/multi_head_attention``, after Dwivedi & Bresson 2020 (arXiv 2012.09699).
    Raises its errors, and ValueError where it silently ignores a given input.

    Args:
        num_heads: number of heads H.
        per_head_channels: channels per head C.
        receiver_tag: see the base class.
        receiver_feature: see the base class.
        sender_node_feature: see the base class.
        sender_edge_feature: see the base class.
        use_bias: biases of all maps; of keys and values the node part has it, or the edge part if alone.
        edge_dropout: rate on α, per item and head.
        inputs_dropout: rate on the three inputs.
        attention_activation: φ, a Keras name or config dict, a function or a module.
        activation: σ, likewise.
        kernel_initializer: initialiser of every W: a Keras name or config dict, or a function that fills
            ``[out, in]`` in place; ``glorot_uniform`` if None. Biases start at 0.
        kernel_regularizer: a Keras name or config dict, factors such as ``{"l2": 1e-4}``, or a function of W;
            add :meth:`penalty` to the training loss.
        transform_keys: see above.
        share_key_transform: see above.
        score_scaling: see above.
        transform_values_after_pooling: see above.
        receiver_channels: width of the receivers; if omitted, inferred from the first call or from a state
            dict, before the optimiser is created.
        sender_node_channels: likewise of the sender nodes.
        sender_edge_channels: likewise of the edges.
        name: of the layer.

    Example:
        >>> options = {"receiver_tag": "target", "sender_edge_feature": "edge_attr"}
        >>> attention = MultiHeadAttentionConv(num_heads=2, per_head_channels=8, **options)
        >>> edge_index = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
        >>> attention(torch.randn(4, 16), edge_index, torch.randn(4, 3)).shape
        torch.Size([4, 16])
    """

    def __init__(
        self,
        *,
        num_heads: int,
        per_head_channels: int,
        receiver_tag: ReceiverTag | int | str | None = None,
        receiver_feature: str = HIDDEN_STATE,
        sender_node_feature: str | None = HIDDEN_STATE,
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
        receiver_channels: int | None = None,
        sender_node_channels: int | None = None,
        sender_edge_channels: int | None = None,
        name: str | None = None,
    ) -> None:
        operations = {"softmax": segment_softmax}
        super().__init__(
            receiver_tag, receiver_feature, sender_node_feature, sender_edge_feature, operations, name
        )
        self.num_heads = num_heads
        self.per_head_channels = per_head_channels
        self.use_bias = use_bias
        self.edge_dropout = edge_dropout
        self.inputs_dropout = inputs_dropout
        self.attention_activation = attention_activation
        self.activation = activation
        self.kernel_initializer = kernel_initializer
        self.kernel_regularizer = kernel_regularizer
        self.transform_keys = transform_keys
        self.share_key_transform = share_key_transform
        self.score_scaling: str = score_scaling
        self.transform_values_after_pooling = transform_values_after_pooling
        self._check_options()
        self._make_maps()
        node = sender_node_channels if self.takes_sender_node_input else 0
        edge = sender_edge_channels if self.takes_sender_edge_input else 0
        if receiver_channels is not None and node is not None and edge is not None:
            self._infer_widths(receiver_channels, node, edge)

    def _check_options(self) -> None:
        if not self.takes_receiver_input:
            raise ValueError("attention needs a receiver_feature, not None")
        if min(self.num_heads, self.per_head_channels) <= 0:
            sizes = f"num_heads {self.num_heads} and per_head_channels {self.per_head_channels}"
            raise ValueError(f"{sizes} must be > 0")
        if not self.takes_sender_node_input and not self.takes_sender_edge_input:
            raise ValueError("sender_node_feature and sender_edge_feature must not both be None")
        if not (0 <= self.edge_dropout <= 1 and 0 <= self.inputs_dropout <= 1):
            rates = f"edge_dropout {self.edge_dropout}, inputs_dropout {self.inputs_dropout}"
            raise ValueError(f"{rates}: not in [0, 1]")
        choices = get_args(ScoreScaling)
        if self.score_scaling not in choices:
            raise ValueError(f"score_scaling must be one of {choices}, not {self.score_scaling!r}")
        if self.attention_activation is not None and self.score_scaling != "none":
            warnings.warn("attention_activation works better with score_scaling='none'", stacklevel=3)
        # Unknown names are rejected now instead of at the first call.
        keras.activation_of(self.activation)
        keras.activation_of(self.attention_activation)
        keras.regularizer_of(self.kernel_regularizer)

    def _make_maps(self) -> None:
        """Create the linear maps, whose widths are inferred later."""
        width = self.num_heads * self.per_head_channels
        key_width = self.per_head_channels if self.share_key_transform else width
        has_node = self.takes_sender_node_input
        has_edge = self.takes_sender_edge_input
        edge_bias = self.use_bias and not has_node  # one bias, not the sum of two
        initializer = keras.initializer_of(self.kernel_initializer)
        self.query: nn.Linear = LazyDense(width, self.use_bias, initializer)
        self.key_node: LazyDense | None = None
        self.key_edge: LazyDense | None = None
        self.value_node: LazyDense | None = None
        self.value_edge: LazyDense | None = None
        self.value_pooled: LazyDense | None = None
        self.score_scaling_weight: nn.Parameter | None = None
        if self.transform_keys and has_node:
            self.key_node = LazyDense(key_width, self.use_bias, initializer)
        if self.transform_keys and has_edge:
            self.key_edge = LazyDense(key_width, edge_bias, initializer)
        if self.transform_values_after_pooling:
            self.value_pooled = LazyDense(width, self.use_bias, initializer)
        if not self.transform_values_after_pooling and has_node:
            self.value_node = LazyDense(width, self.use_bias, initializer)
        if not self.transform_values_after_pooling and has_edge:
            self.value_edge = LazyDense(width, edge_bias, initializer)
        if self.score_scaling == "trainable_elup1":
            self.score_scaling_weight = nn.Parameter(torch.zeros(self.num_heads, 1))

    def _infer_widths(self, receiver: int, node: int, edge: int) -> None:
        """Create the weights that do not exist yet, always in the same order: each draws random numbers."""
        if not self.transform_keys and isinstance(self.query, LazyDense):
            self.query.out_features = self.num_heads * (node + edge)
        widths = (receiver, node, edge, node, edge, node + edge)
        for linear, width in zip(self._maps(), widths, strict=True):
            if isinstance(linear, LazyDense):
                linear.infer(width)

    def _maps(self) -> tuple[nn.Linear | None, ...]:
        keys = (self.key_node, self.key_edge)
        values = (self.value_node, self.value_edge)
        return (self.query, *keys, *values, self.value_pooled)

    def penalty(self) -> Tensor:
        """Sum ``kernel_regularizer`` over every W, without biases; 0 if there is none."""
        regularize = keras.regularizer_of(self.kernel_regularizer)
        if regularize is None:
            return self.query.weight.new_zeros(())
        penalties = [regularize(linear.weight) for linear in self._maps() if linear is not None]
        return torch.stack(penalties).sum()

    def convolve(  # type: ignore[override]  # without further arguments
        self,
        *,
        sender_node_input: Tensor | None,
        sender_edge_input: Tensor | None,
        receiver_input: Tensor | None,
        broadcast_from_sender_node: Callable[[Tensor], Tensor] | None,
        broadcast_from_receiver: Callable[[Tensor], Tensor],
        pool_to_receiver: Callable[..., Tensor],
        extra_receiver_ops: Mapping[str, Callable[..., Tensor]] | None = None,
        return_attention: bool = False,
        training: bool | None = None,
    ) -> Result:
        """Attend in terms of the inputs and functions of the base class, see there.

        Args:
            extra_receiver_ops: with ``softmax``, ``[I, H, 1]`` over the items of each receiver.
            return_attention: also return α.
            training: replaces the mode of the module.
        """
        if extra_receiver_ops is None or "softmax" not in extra_receiver_ops:
            raise ValueError("convolve needs extra_receiver_ops['softmax']")
        if training is None:
            training = self.training
        self.check_inputs(sender_node_input, sender_edge_input)
        self._infer_widths(
            receiver=width_of(receiver_input),
            node=width_of(sender_node_input),
            edge=width_of(sender_edge_input),
        )
        node = drop(sender_node_input, self.inputs_dropout, training)
        edge = drop(sender_edge_input, self.inputs_dropout, training)
        receiver = drop(receiver_input, self.inputs_dropout, training)

        def parts(of_node: nn.Module | None, of_edge: nn.Module | None) -> list[Tensor]:
            items = []
            if node is not None and broadcast_from_sender_node is not None:  # each node is mapped once
                items.append(broadcast_from_sender_node(node if of_node is None else of_node(node)))
            if edge is not None:
                items.append(edge if of_edge is None else of_edge(edge))
            return items

        activate = keras.activation_of(self.attention_activation)
        query = self._heads(activate(self.query(receiver)))
        key = self._key(parts)
        product = broadcast_from_receiver(query) * key
        score = product.sum(-1, keepdim=True) * self._scale(key.shape[-1])
        attention = extra_receiver_ops["softmax"](score)
        message = dropout(attention, self.edge_dropout, training) * self._value(parts)
        out = self._combine(pool_to_receiver(message, reduce_type="sum"))
        if return_attention:
            return out, attention.squeeze(-1)
        return out

    def _key(self, parts: Parts) -> Tensor:
        """``[I, H, C]``; ``[I, 1, C]`` or ``[I, 1, d_s + d_e]`` if shared by all heads."""
        if not self.transform_keys:
            return torch.cat(parts(None, None), -1).unsqueeze(-2)
        activate = keras.activation_of(self.attention_activation)
        key = activate(sum_parts(parts(self.key_node, self.key_edge)))
        if self.share_key_transform:
            return key.unsqueeze(-2)
        return self._heads(key)

    def _scale(self, key_width: int) -> Tensor | float:
        """s: a number, or ``[H, 1]``."""
        if self.score_scaling == "none":
            return 1.0
        if self.score_scaling == "rsqrt_dim":
            return key_width**-0.5
        assert self.score_scaling_weight is not None
        return elu(self.score_scaling_weight) + 1

    def _value(self, parts: Parts) -> Tensor:
        """``[I, H, C]``, or ``[I, 1, d_s + d_e]`` if W_V comes after pooling."""
        if self.value_pooled is not None:
            return torch.cat(parts(None, None), -1).unsqueeze(-2)
        return self._heads(sum_parts(parts(self.value_node, self.value_edge)))

    def _combine(self, pooled: Tensor) -> Tensor:
        """``[R, H, C]`` or ``[R, H, d_s + d_e]`` -> ``[R, H * C]``."""
        if self.value_pooled is not None:
            sizes = (self.num_heads, self.per_head_channels)
            weight = self.value_pooled.weight.unflatten(0, sizes)
            pooled = torch.einsum("...hd,hcd->...hc", pooled, weight)
            if self.value_pooled.bias is not None:
                pooled = pooled + self.value_pooled.bias.unflatten(0, sizes)
        activate = keras.activation_of(self.activation)
        return activate(pooled).flatten(-2)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1))
