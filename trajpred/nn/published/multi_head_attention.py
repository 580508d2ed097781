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
from trajpred.nn.segment import segment_softmax

#: Returns the parts of each item, [node, edge] or one of them, after the given maps.
Parts = Callable[[nn.Module | None, nn.Module | None], list[Tensor]]

ScoreScaling = Literal["none", "rsqrt_dim", "trainable_elup1"]


class LazyDense(nn.LazyLinear):
    """Linear map whose input width is inferred, with a Keras initialiser and a zero bias."""

    cls_to_become = nn.Linear

    def __init__(self, out_features: int, bias: bool, initializer: keras.TensorFunction) -> None:
        super().__init__(out_features, bias)
        self.initializer = initializer

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if hasattr(self, "initializer") and not self.has_uninitialized_params():
            with torch.no_grad():
                self.initializer(self.weight)
                if self.bias is not None:
                    self.bias.zero_()

    def infer(self, width: int) -> None:
        """Create the weights for inputs of this width, unless they were loaded; become an ``nn.Linear``."""
        self(torch.empty(0, width, device=self.weight.device, dtype=self.weight.dtype))


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
        receiver_tag, receiver_feature, sender_node_feature, sender_edge_feature: see the base class.
        use_bias: biases of all maps; of keys and values the node part has it, or the edge part if alone.
        edge_dropout: rate on α, per item and head.
        inputs_dropout: rate on the three inputs.
        attention_activation: φ, a Keras name or config dict, a function or a module.
        activation: σ, likewise.
        kernel_initializer: initialiser of every W: a Keras name or config dict, or a function that fills
            ``[out, in]`` in place; ``glorot_uniform`` if None. Biases start at 0.
        kernel_regularizer: a Keras name or config dict, factors such as ``{"l2": 1e-4}``, or a function of W;
            add :meth:`penalty` to the training loss.
        transform_keys, share_key_transform, score_scaling, transform_values_after_pooling: see above.
        receiver_channels, sender_node_channels, sender_edge_channels: widths of the inputs; omitted ones are
            inferred from the first call or from a state dict, before the optimiser is created.
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
        features = receiver_feature, sender_node_feature, sender_edge_feature
        super().__init__(receiver_tag, *features, {"softmax": segment_softmax}, name)
        if not self.takes_receiver_input:
            raise ValueError("attention needs a receiver_feature, not None")
        if min(num_heads, per_head_channels) <= 0:
            raise ValueError(f"num_heads {num_heads} and per_head_channels {per_head_channels} must be > 0")
        if not self.takes_sender_node_input and not self.takes_sender_edge_input:
            raise ValueError("sender_node_feature and sender_edge_feature must not both be None")
        if not (0 <= edge_dropout <= 1 and 0 <= inputs_dropout <= 1):
            raise ValueError(f"edge_dropout {edge_dropout}, inputs_dropout {inputs_dropout}: not in [0, 1]")
        if score_scaling not in get_args(ScoreScaling):
            raise ValueError(f"score_scaling must be one of {get_args(ScoreScaling)}, not {score_scaling!r}")
        if attention_activation is not None and score_scaling != "none":
            warnings.warn("attention_activation works better with score_scaling='none'", stacklevel=2)
        self.num_heads, self.per_head_channels, self.use_bias = num_heads, per_head_channels, use_bias
        self.edge_dropout, self.inputs_dropout = edge_dropout, inputs_dropout
        self.attention_activation, self.activation = attention_activation, activation
        self.kernel_initializer, self.kernel_regularizer = kernel_initializer, kernel_regularizer
        self.transform_keys, self.share_key_transform = transform_keys, share_key_transform
        self.score_scaling: str = score_scaling
        self.transform_values_after_pooling = transform_values_after_pooling
        keras.activation_of(activation), keras.activation_of(attention_activation)  # reject unknown names now
        keras.regularizer_of(kernel_regularizer)
        self._make_maps((receiver_channels, sender_node_channels, sender_edge_channels))

    def _make_maps(self, widths: tuple[int | None, int | None, int | None]) -> None:
        """Create the linear maps, and their weights if all widths are known."""
        H, C, bias = self.num_heads, self.per_head_channels, self.use_bias
        node, edge = self.takes_sender_node_input, self.takes_sender_edge_input
        initializer = keras.initializer_of(self.kernel_initializer)

        def dense(used: bool, out: int, bias: bool = bias) -> LazyDense | None:
            return LazyDense(out, bias, initializer) if used else None

        keys, values = self.transform_keys, not self.transform_values_after_pooling
        key_width = C if self.share_key_transform else H * C
        self.query: nn.Linear = LazyDense(H * C, bias, initializer)
        self.key_node = dense(keys and node, key_width)
        self.key_edge = dense(keys and edge, key_width, bias and not node)  # one bias, not the sum of two
        self.value_node = dense(values and node, H * C)
        self.value_edge = dense(values and edge, H * C, bias and not node)
        self.value_pooled = dense(not values, H * C)
        trainable = self.score_scaling == "trainable_elup1"
        self.score_scaling_weight = nn.Parameter(torch.zeros(H, 1)) if trainable else None
        if None not in (widths[0], widths[1] if node else 0, widths[2] if edge else 0):
            self._infer_widths(*(width or 0 for width in widths))

    def _infer_widths(self, receiver: int, node: int, edge: int) -> None:
        """Create the weights of maps that have none, in the order of construction."""
        node, edge = node * self.takes_sender_node_input, edge * self.takes_sender_edge_input
        widths = receiver, node, edge, node, edge, node + edge
        for linear, width in zip(self._maps(), widths, strict=True):
            if isinstance(linear, LazyDense):
                if linear is self.query and not self.transform_keys:
                    linear.out_features = self.num_heads * (node + edge)
                linear.infer(width)

    def _maps(self) -> tuple[nn.Linear | None, ...]:
        keys, values = (self.key_node, self.key_edge), (self.value_node, self.value_edge)
        return (self.query, *keys, *values, self.value_pooled)

    def penalty(self) -> Tensor:
        """Sum ``kernel_regularizer`` over every W, without biases; 0 if there is none."""
        regularize = keras.regularizer_of(self.kernel_regularizer)
        if regularize is None:
            return self.query.weight.new_zeros(())
        return torch.stack([regularize(linear.weight) for linear in self._maps() if linear is not None]).sum()

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
        """Attend in terms of the given functions; see the base class for their shapes.

        Args:
            extra_receiver_ops: with ``softmax``, ``[I, H, 1]`` over the items of each receiver.
            return_attention: also return α.
            training: replaces the mode of the module.
        """
        if extra_receiver_ops is None or "softmax" not in extra_receiver_ops:
            raise ValueError("convolve needs extra_receiver_ops['softmax']")
        training = self.training if training is None else training
        self.check_inputs(sender_node_input, sender_edge_input)
        inputs = receiver_input, sender_node_input, sender_edge_input
        self._infer_widths(*(0 if x is None else x.shape[-1] for x in inputs))
        node, edge, receiver = (
            None if x is None else dropout(x, self.inputs_dropout, training)
            for x in (sender_node_input, sender_edge_input, receiver_input)
        )

        def parts(of_node: nn.Module | None, of_edge: nn.Module | None) -> list[Tensor]:
            found = []
            if node is not None and broadcast_from_sender_node is not None:  # each node is mapped once
                found.append(broadcast_from_sender_node(node if of_node is None else of_node(node)))
            if edge is not None:
                found.append(edge if of_edge is None else of_edge(edge))
            return found

        query = self._heads(keras.activation_of(self.attention_activation)(self.query(receiver)))
        key = self._key(parts)
        score = (broadcast_from_receiver(query) * key).sum(-1, keepdim=True) * self._scale(key.shape[-1])
        attention = extra_receiver_ops["softmax"](score)
        message = dropout(attention, self.edge_dropout, training) * self._value(parts)
        out = self._combine(pool_to_receiver(message, reduce_type="sum"))
        return (out, attention.squeeze(-1)) if return_attention else out

    def _key(self, parts: Parts) -> Tensor:
        """``[I, H, C]``; ``[I, 1, C]`` or ``[I, 1, d_s + d_e]`` if shared by all heads."""
        if not self.transform_keys:
            return torch.cat(parts(None, None), -1).unsqueeze(-2)
        key = keras.activation_of(self.attention_activation)(_sum(parts(self.key_node, self.key_edge)))
        return key.unsqueeze(-2) if self.share_key_transform else self._heads(key)

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
        return self._heads(_sum(parts(self.value_node, self.value_edge)))

    def _combine(self, pooled: Tensor) -> Tensor:
        """``[R, H, C]`` or ``[R, H, d_s + d_e]`` -> ``[R, H * C]``."""
        if self.value_pooled is not None:
            weight, bias = self.value_pooled.weight, self.value_pooled.bias
            sizes = (self.num_heads, self.per_head_channels)
            pooled = torch.einsum("...hd,hcd->...hc", pooled, weight.unflatten(0, sizes))
            pooled = pooled if bias is None else pooled + bias.unflatten(0, sizes)
        return keras.activation_of(self.activation)(pooled).flatten(-2)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1))


def _sum(parts: list[Tensor]) -> Tensor:
    return sum(parts[1:], parts[0])
