"""Names of Keras for activations, initialisers and regularisers, with its defaults."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TensorFunction = Callable[[Tensor], Tensor]
Activation = str | TensorFunction | nn.Module | None
#: Fills a weight ``[out, in]`` in place, like the functions of torch.nn.init.
Initializer = str | TensorFunction | None
#: Penalty of a weight: a name, factors such as ``{"l1": 1e-5, "l2": 1e-4}``, or a function.
Regularizer = str | Mapping[str, float] | TensorFunction | None

#: Standard deviation of a unit normal that is truncated at ±2.
TRUNCATED_DEVIATION = 0.87962566103423978


def _linear(x: Tensor) -> Tensor:
    return x


def _hard_sigmoid(x: Tensor) -> Tensor:
    return (0.2 * x + 0.5).clamp(0, 1)


def _scaled(
    weight: Tensor, scale: float, fan: Literal["in", "mean"], distribution: Literal["uniform", "normal"]
) -> Tensor:
    """Draw with variance scale / fan; a normal distribution is cut at two deviations."""
    fan_out, fan_in = weight.shape
    width = fan_in if fan == "in" else (fan_in + fan_out) / 2
    variance = scale / max(1.0, width)
    if distribution == "uniform":
        limit = math.sqrt(3 * variance)
        return nn.init.uniform_(weight, -limit, limit)
    deviation = math.sqrt(variance) / TRUNCATED_DEVIATION
    return nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)


def _penalty(weight: Tensor, l1: float = 0.0, l2: float = 0.0) -> Tensor:
    return l1 * weight.abs().sum() + l2 * weight.square().sum()


ACTIVATIONS: dict[str, TensorFunction] = {
    "linear": _linear,
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": partial(F.leaky_relu, negative_slope=0.2),
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "gelu": F.gelu,
    "silu": F.silu,
    "swish": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "log_sigmoid": F.logsigmoid,
    "hard_sigmoid": _hard_sigmoid,
    "softmax": partial(F.softmax, dim=-1),
    "log_softmax": partial(F.log_softmax, dim=-1),
    "exponential": torch.exp,
}
INITIALIZERS: dict[str, TensorFunction] = {
    "glorot_uniform": partial(_scaled, scale=1, fan="mean", distribution="uniform"),
    "glorot_normal": partial(_scaled, scale=1, fan="mean", distribution="normal"),
    "he_uniform": partial(_scaled, scale=2, fan="in", distribution="uniform"),
    "he_normal": partial(_scaled, scale=2, fan="in", distribution="normal"),
    "lecun_uniform": partial(_scaled, scale=1, fan="in", distribution="uniform"),
    "lecun_normal": partial(_scaled, scale=1, fan="in", distribution="normal"),
    "random_uniform": partial(nn.init.uniform_, a=-0.05, b=0.05),
    "random_normal": partial(nn.init.normal_, std=0.05),
    "truncated_normal": partial(nn.init.trunc_normal_, std=0.05, a=-0.1, b=0.1),
    "orthogonal": nn.init.orthogonal_,
    "identity": nn.init.eye_,
    "zeros": nn.init.zeros_,
    "ones": nn.init.ones_,
}
REGULARIZERS: dict[str, TensorFunction] = {
    "l1": partial(_penalty, l1=0.01),
    "l2": partial(_penalty, l2=0.01),
    "l1_l2": partial(_penalty, l1=0.01, l2=0.01),
}


def activation_of(activation: Activation) -> TensorFunction:
    """Look up an activation; None is linear. Raises ValueError for an unknown one."""
    if activation is None:
        return _linear
    return _look_up(activation, ACTIVATIONS, "activation")


def initializer_of(initializer: Initializer) -> TensorFunction:
    """Look up an initialiser; None is ``glorot_uniform``. Raises ValueError for an unknown one."""
    if initializer is None:
        initializer = "glorot_uniform"
    return _look_up(initializer, INITIALIZERS, "kernel_initializer")


def regularizer_of(regularizer: Regularizer) -> TensorFunction | None:
    """Look up a regulariser: f₁ Σ|w| + f₂ Σw² with the factors ``l1`` and ``l2``, or 0.01 for a name.

    Raises:
        ValueError: for an unknown name or factor.
    """
    if regularizer is None:
        return None
    if not isinstance(regularizer, Mapping):
        return _look_up(regularizer, REGULARIZERS, "kernel_regularizer")
    unknown = set(regularizer) - {"l1", "l2"}
    if unknown:
        raise ValueError(f"unknown factors {sorted(unknown)} in kernel_regularizer; known: l1, l2")
    return partial(_penalty, l1=regularizer.get("l1", 0.0), l2=regularizer.get("l2", 0.0))


def _look_up(reference: Any, table: Mapping[str, TensorFunction], argument: str) -> TensorFunction:
    if callable(reference):
        function: TensorFunction = reference
        return function
    if not isinstance(reference, str) or reference not in table:
        raise ValueError(f"unknown {argument} {reference!r}; known: {', '.join(table)}, or a function")
    return table[reference]
