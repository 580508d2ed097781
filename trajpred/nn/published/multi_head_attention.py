"""Dot-product attention from any piece of a graph to any other (TF-GNN's MultiHeadAttentionConv)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, elu

from trajpred.nn.published.any_to_any import HIDDEN_STATE, AnyToAnyConvolution, ReceiverTag, Result
from trajpred.nn.published.keras_names import (
    Activation,
    Initializer,
    Regularizer,
    activation_of,
    initializer_of,
    regularizer_of,
)
from trajpred.nn.segment import segment_softmax


class MultiHeadAttentionConv(AnyToAnyConvolution):
    r"""Multi-head attention of receivers over their items: edges, or the nodes of a graph.

    With receiver :math:`h_v`, sender node :math:`h_u` and edge :math:`e_{uv}` (one of these two may be
    absent), per head, φ the ``attention_activation``, σ the ``activation``:

    .. math::
        q_v = φ(W_Q h_v + b_Q), \quad k_{uv} = φ(W_{Kn} h_u + W_{Ke} e_{uv} + b_K), \quad
        α_{uv} = \mathrm{softmax}_u (s\, q_v \cdot k_{uv})

    .. math::
        o_v = σ\Big(\sum_u α_{uv} (W_{Vn} h_u + W_{Ve} e_{uv} + b_V)\Big)

    Heads are concatenated. There is no output projection, residual, norm or self-loop. Where:

    - ``transform_keys=False``: :math:`k_{uv} = [h_u, e_{uv}]` for all heads, without φ; q takes its width.
    - ``share_key_transform``: :math:`W_K`, :math:`b_K` are those of one head, used by all.
    - ``score_scaling``: s = ``rsqrt_dim``, one over the root of the width of k; ``none``, 1;
      ``trainable_elup1``, elu(w) + 1 with one weight w per head, at first 0.
    - ``transform_values_after_pooling``: :math:`o_v = σ(W_V \sum_u α_{uv} [h_u, e_{uv}] + b_V)`. Not quite
      the same: a receiver without items gets σ(b_V) and otherwise σ(0), and dropped α scale b_V in one only.

    Shapes: receivers ``[R, d_r]``, senders ``[S, d_s]``, items ``[I, d_e]`` -> ``[R, num_heads *
    per_head_channels]``. Call: :class:`~trajpred.nn.published.any_to_any.AnyToAnyConvolution`; the keyword
    ``return_attention`` adds α ``[I, num_heads]`` before dropout.

    Source: TensorFlow GNN, ``models/multi_head_attention``, after Dwivedi & Bresson 2020 (arXiv 2012.09699)
    and Vaswani et al. 2017 (arXiv 1706.03762). Errors are its own, and ValueErrors too where it would
    silently leave out an input that was asked for.

    Attention over incoming edges, concatenated with the old node state, through a dense layer:

    >>> from torch_geometric.data import HeteroData
    >>> from trajpred.nn.published.any_to_any import TARGET
    >>> graph = HeteroData()
    >>> graph["paper"].hidden_state = torch.randn(4, 16)
    >>> graph["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
    >>> attention = MultiHeadAttentionConv(num_heads=2, per_head_channels=8, receiver_tag=TARGET)
    >>> dense = nn.Linear(16 + 2 * 8, 32)
    >>> message = attention(graph, edge_set_name="cites")
    >>> dense(torch.cat((graph["paper"].hidden_state, message), dim=-1)).shape
    torch.Size([4, 32])

    The same on plain tensors, here with edge features:

    >>> attention = MultiHeadAttentionConv(
    ...     num_heads=2, per_head_channels=8, receiver_tag="TARGET", sender_edge_feature="edge_attr"
    ... )
    >>> edge_index, edge_attr = graph["cites"].edge_index, torch.randn(4, 3)
    >>> attention(graph["paper"].hidden_state, edge_index, edge_attr).shape
    torch.Size([4, 16])

    Args:
        num_heads: H.
        per_head_channels: C.
        receiver_tag, receiver_feature, sender_node_feature, sender_edge_feature: see the base class.
        use_bias: of every map; in keys and values the node part has it, or the edge part if alone.
        edge_dropout: of α, each item and head by itself.
        inputs_dropout: of the three inputs.
        attention_activation: φ, a name that Keras knows, a function or a module.
        activation: σ, likewise.
        kernel_initializer: of every W, each drawn anew: a name that Keras knows, or a function that fills
            ``[out, in]`` in place; ``glorot_uniform`` if None. Biases start at 0.
        kernel_regularizer: ``l1``, ``l2``, ``l1_l2``, factors such as ``{"l2": 1e-4}``, or a function of W;
            add :meth:`penalty` to the training loss.
        transform_keys, share_key_transform, score_scaling, transform_values_after_pooling: see above.
        receiver_channels, sender_node_channels, sender_edge_channels: widths of the inputs; those left out
            are learnt from the first call or from a state dict, which must come before the optimiser.
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
        attention_activation: Activation = None,
        activation: Activation = "relu",
        kernel_initializer: Initializer = None,
        kernel_regularizer: Regularizer = None,
        transform_keys: bool = True,
        share_key_transform: bool = False,
        score_scaling: Literal["none", "rsqrt_dim", "trainable_elup1"] = "rsqrt_dim",
        transform_values_after_pooling: bool = False,
        receiver_channels: int | None = None,
        sender_node_channels: int | None = None,
        sender_edge_channels: int | None = None,
    ) -> None:
        super().__init__(
            receiver_tag=receiver_tag,
            receiver_feature=receiver_feature,
            sender_node_feature=sender_node_feature,
            sender_edge_feature=sender_edge_feature,
            extra_receiver_ops={"softmax": segment_softmax},
        )
        if num_heads <= 0 or per_head_channels <= 0:
            raise ValueError(
                f"num_heads {num_heads} and per_head_channels {per_head_channels} must be positive"
            )
        if not (self.takes_sender_node_input or self.takes_sender_edge_input):
            raise ValueError(
                "sender_node_feature and sender_edge_feature are both None: nothing to attend to"
            )
        if not (0 <= edge_dropout <= 1 and 0 <= inputs_dropout <= 1):
            raise ValueError(f"edge_dropout {edge_dropout}, inputs_dropout {inputs_dropout}: not in [0, 1]")
        if attention_activation is not None and score_scaling != "none":
            warnings.warn("attention_activation works better with score_scaling='none'", stacklevel=2)
        self.num_heads, self.per_head_channels, self.use_bias = num_heads, per_head_channels, use_bias
        self.edge_dropout, self.inputs_dropout = edge_dropout, inputs_dropout
        self.attention_activation, self.activation = attention_activation, activation
        self.kernel_initializer, self.kernel_regularizer = kernel_initializer, kernel_regularizer
        self.transform_keys, self.share_key_transform = transform_keys, share_key_transform
        self.score_scaling = score_scaling
        self.transform_values_after_pooling = transform_values_after_pooling
        self.receiver_channels = receiver_channels
        self.sender_node_channels, self.sender_edge_channels = sender_node_channels, sender_edge_channels
        # Names that are not known are errors now, not later.
        activation_of(activation)
        activation_of(attention_activation)
        initializer_of(kernel_initializer)
        regularizer_of(kernel_regularizer)
        self._make_weights()

    def _make_weights(self) -> None:
        H, C = self.num_heads, self.per_head_channels
        node, edge = self.sender_node_channels, self.sender_edge_channels
        taken = [node] * self.takes_sender_node_input + [edge] * self.takes_sender_edge_input
        known = [width for width in taken if width is not None]
        joined = sum(known) if len(known) == len(taken) else None

        def parts(out: int) -> tuple[nn.Linear | None, nn.Linear | None]:
            of_node = self._map(node, out, self.use_bias) if self.takes_sender_node_input else None
            alone = of_node is None  # a second bias would be the same parameter twice
            of_edge = self._map(edge, out, self.use_bias and alone) if self.takes_sender_edge_input else None
            return of_node, of_edge

        width = C if self.transform_keys else joined
        self.query = self._map(self.receiver_channels, None if width is None else H * width, self.use_bias)
        key_width = C if self.share_key_transform else H * C
        self.key_node, self.key_edge = parts(key_width) if self.transform_keys else (None, None)
        after = self.transform_values_after_pooling
        self.value_node, self.value_edge = (None, None) if after else parts(H * C)
        self.value_pooled = self._map(joined, H * C, self.use_bias) if after else None
        trainable = self.score_scaling == "trainable_elup1"
        self.score_scaling_weight = nn.Parameter(torch.zeros(H, 1)) if trainable else None

    def _map(self, fan_in: int | None, fan_out: int | None, bias: bool) -> nn.Linear:
        """A linear map, for now without weights if a width is not yet known."""
        if fan_in is None or fan_out is None:
            return nn.LazyLinear(fan_out or 0, bias)
        return self._initialise(nn.Linear(fan_in, fan_out, bias))

    @torch.no_grad()
    def _initialise(self, linear: nn.Linear) -> nn.Linear:
        initializer_of(self.kernel_initializer)(linear.weight)
        if linear.bias is not None:
            linear.bias.zero_()
        return linear

    def _maps(self) -> tuple[nn.Linear | None, ...]:
        keys, values = (self.key_node, self.key_edge), (self.value_node, self.value_edge)
        return (self.query, *keys, *values, self.value_pooled)

    def _complete(self, receiver: Tensor, node: Tensor | None, edge: Tensor | None) -> None:
        """Make the weights whose width was not known, in the order of construction."""
        d_r, d_s, d_e = (0 if x is None else x.shape[-1] for x in (receiver, node, edge))
        for linear, width in zip(self._maps(), (d_r, d_s, d_e, d_s, d_e, d_s + d_e), strict=True):
            if isinstance(linear, nn.LazyLinear) and linear.has_uninitialized_params():
                if linear is self.query and not self.transform_keys:
                    linear.out_features = self.num_heads * (d_s + d_e)
                linear.initialize_parameters(receiver.new_empty(0, width))
                self._initialise(linear)

    def penalty(self) -> Tensor:
        """What ``kernel_regularizer`` makes of every W, summed; 0 without one. Biases are free."""
        regularize = regularizer_of(self.kernel_regularizer)
        if regularize is None:
            return self.query.weight.new_zeros(())
        return torch.stack([regularize(linear.weight) for linear in self._maps() if linear is not None]).sum()

    def get_config(self) -> dict[str, Any]:
        base = super().get_config()
        own = (name for name in signature(MultiHeadAttentionConv).parameters if name not in base)
        return base | {name: getattr(self, name) for name in own}

    def convolve(
        self,
        *,
        sender_node_input: Tensor | None,
        sender_edge_input: Tensor | None,
        receiver_input: Tensor,
        broadcast_from_sender_node: Callable[[Tensor], Tensor] | None,
        broadcast_from_receiver: Callable[[Tensor], Tensor],
        pool_to_receiver: Callable[..., Tensor],
        extra_receiver_ops: Mapping[str, Callable[..., Tensor]] | None = None,
        **kwargs: Any,
    ) -> Result:
        """The attention in terms of the caller's functions; see the base class for their shapes.

        Args:
            extra_receiver_ops: with ``softmax``, ``[I, H, 1]`` over the items of each receiver.
            kwargs: ``return_attention``; ``training``, instead of the module's own mode.
        """
        if extra_receiver_ops is None or "softmax" not in extra_receiver_ops:
            raise ValueError("convolve needs extra_receiver_ops['softmax']")
        options = _Options(**kwargs)
        training = self.training if options.training is None else options.training
        self.check_inputs(sender_node_input, sender_edge_input)
        self._complete(receiver_input, sender_node_input, sender_edge_input)
        drop = partial(dropout, p=self.inputs_dropout, training=training)
        node, edge = (None if x is None else drop(x) for x in (sender_node_input, sender_edge_input))
        sender = _Sender(node, edge, broadcast_from_sender_node)
        query, key = broadcast_from_receiver(self._query(drop(receiver_input))), self._key(sender)
        score = (query * key).sum(-1, keepdim=True) * self._scale(key.shape[-1])
        attention = extra_receiver_ops["softmax"](score)
        message = dropout(attention, self.edge_dropout, training) * self._value(sender)
        out = self._combine(pool_to_receiver(message, reduce_type="sum"))
        return (out, attention.squeeze(-1)) if options.return_attention else out

    def _query(self, receiver: Tensor) -> Tensor:
        """``[R, H, C]``, or as wide as the joined inputs of the sender."""
        return self._heads(activation_of(self.attention_activation)(self.query(receiver)))

    def _key(self, sender: _Sender) -> Tensor:
        """``[I, H, C]``; ``[I, 1, C]`` or ``[I, 1, d_s + d_e]`` where all heads have the same."""
        if not self.transform_keys:
            return sender.joined().unsqueeze(-2)
        key = activation_of(self.attention_activation)(sender.mapped(self.key_node, self.key_edge))
        return key.unsqueeze(-2) if self.share_key_transform else self._heads(key)

    def _scale(self, key_width: int) -> Tensor | float:
        """s: a number, or ``[H, 1]``."""
        if self.score_scaling == "none":
            return 1.0
        if self.score_scaling == "rsqrt_dim":
            return key_width**-0.5
        if self.score_scaling_weight is not None:
            return elu(self.score_scaling_weight) + 1
        raise ValueError(f"score_scaling {self.score_scaling!r} is none of none, rsqrt_dim, trainable_elup1")

    def _value(self, sender: _Sender) -> Tensor:
        """``[I, H, C]``, or ``[I, 1, d_s + d_e]`` if W_V comes after pooling."""
        if self.value_pooled is not None:
            return sender.joined().unsqueeze(-2)
        return self._heads(sender.mapped(self.value_node, self.value_edge))

    def _combine(self, pooled: Tensor) -> Tensor:
        """``[R, H, C]`` or ``[R, H, d_s + d_e]`` -> ``[R, H * C]``."""
        if self.value_pooled is not None:
            weight, bias = self.value_pooled.weight, self.value_pooled.bias
            sizes = (self.num_heads, self.per_head_channels)
            pooled = torch.einsum("...hd,hcd->...hc", pooled, weight.unflatten(0, sizes))
            pooled = pooled if bias is None else pooled + bias.unflatten(0, sizes)
        return activation_of(self.activation)(pooled).flatten(-2)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1))


@dataclass(frozen=True)
class _Options:
    return_attention: bool = False
    training: bool | None = None


@dataclass(frozen=True)
class _Sender:
    """What an item brings: node ``[S, d_s]`` and the way from nodes to items, edge ``[I, d_e]``, or one."""

    node: Tensor | None
    edge: Tensor | None
    broadcast: Callable[[Tensor], Tensor] | None

    def joined(self) -> Tensor:
        """[h_u, e_uv]: ``[I, d_s + d_e]``."""
        return torch.cat(self._parts(None, None), dim=-1)

    def mapped(self, of_node: nn.Module | None, of_edge: nn.Module | None) -> Tensor:
        """W_n h_u + W_e e_uv: ``[I, out]``. Nodes are mapped before they are broadcast, each once."""
        first, *rest = self._parts(of_node, of_edge)
        return sum(rest, first)

    def _parts(self, of_node: nn.Module | None, of_edge: nn.Module | None) -> list[Tensor]:
        parts = []
        if self.node is not None and self.broadcast is not None:
            parts.append(self.broadcast(self.node if of_node is None else of_node(self.node)))
        if self.edge is not None:
            parts.append(self.edge if of_edge is None else of_edge(self.edge))
        return parts
