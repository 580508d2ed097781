"""What Keras's names for activations, initialisers and regularisers mean, in torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

TensorFunction = Callable[[Tensor], Tensor]
Activation = str | TensorFunction | nn.Module | None
#: Fills a weight ``[out, in]`` in place, as the functions of torch.nn.init do.
Initializer = str | TensorFunction | None
#: A weight's penalty, as a function, a name, or factors by name: ``{"l1": 1e-5, "l2": 1e-4}``.
Regularizer = str | Mapping[str, float] | Callable[[Tensor], Tensor] | None


def _linear(x: Tensor) -> Tensor:
    return x


def _hard_sigmoid(x: Tensor) -> Tensor:
    return (0.2 * x + 0.5).clamp(0, 1)


ACTIVATIONS: dict[str, TensorFunction] = {
    "linear": _linear,
    "relu": functional.relu,
    "relu6": functional.relu6,
    "leaky_relu": partial(functional.leaky_relu, negative_slope=0.2),
    "elu": functional.elu,
    "selu": functional.selu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "swish": functional.silu,
    "mish": functional.mish,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "hard_sigmoid": _hard_sigmoid,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
    "softmax": partial(functional.softmax, dim=-1),
    "exponential": torch.exp,
}


def _variance_scaling(weight: Tensor, scale: float, mean_fan: bool, normal: bool) -> Tensor:
    """Zero mean, variance scale / n with n = in, or (in + out) / 2; normal is cut at two deviations."""
    fan_out, fan_in = weight.shape
    variance = scale / max(1.0, (fan_in + fan_out) / 2 if mean_fan else fan_in)
    if normal:
        deviation = math.sqrt(variance) / 0.87962566103423978  # that of a unit normal cut at ±2
        return nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    limit = math.sqrt(3 * variance)
    return nn.init.uniform_(weight, -limit, limit)


INITIALIZERS: dict[str, TensorFunction] = {
    "glorot_uniform": partial(_variance_scaling, scale=1, mean_fan=True, normal=False),
    "glorot_normal": partial(_variance_scaling, scale=1, mean_fan=True, normal=True),
    "he_uniform": partial(_variance_scaling, scale=2, mean_fan=False, normal=False),
    "he_normal": partial(_variance_scaling, scale=2, mean_fan=False, normal=True),
    "lecun_uniform": partial(_variance_scaling, scale=1, mean_fan=False, normal=False),
    "lecun_normal": partial(_variance_scaling, scale=1, mean_fan=False, normal=True),
    "random_uniform": partial(nn.init.uniform_, a=-0.05, b=0.05),
    "random_normal": partial(nn.init.normal_, std=0.05),
    "truncated_normal": partial(nn.init.trunc_normal_, std=0.05, a=-0.1, b=0.1),
    "orthogonal": nn.init.orthogonal_,
    "zeros": nn.init.zeros_,
    "ones": nn.init.ones_,
}

PENALTIES: dict[str, TensorFunction] = {"l1": lambda w: w.abs().sum(), "l2": lambda w: w.square().sum()}


def activation_of(activation: Activation) -> TensorFunction:
    """None is linear.

    >>> activation_of("leaky_relu")(torch.tensor([-1.0, 1.0]))
    tensor([-0.2000,  1.0000])
    """
    return _look_up(activation or "linear", ACTIVATIONS, "activation")


def initializer_of(initializer: Initializer) -> TensorFunction:
    """None is ``glorot_uniform``. Every call draws anew from torch's global generator."""
    return _look_up(initializer or "glorot_uniform", INITIALIZERS, "kernel_initializer")


def regularizer_of(regularizer: Regularizer) -> TensorFunction | None:
    """``l1``: f Σ|w|, ``l2``: f Σw², ``l1_l2``: both; f is 0.01 where only a name is given.

    >>> regularizer_of({"l2": 0.5})(torch.tensor([[1.0, 2.0]]))
    tensor(2.5000)
    """
    if isinstance(regularizer, str):
        regularizer = dict.fromkeys(regularizer.split("_"), 0.01)
    if not isinstance(regularizer, Mapping):
        return regularizer
    terms = [
        (factor, _look_up(name, PENALTIES, "kernel_regularizer")) for name, factor in regularizer.items()
    ]
    return lambda weight: sum((factor * penalty(weight) for factor, penalty in terms), weight.new_zeros(()))


def _look_up(
    given: str | TensorFunction, table: Mapping[str, TensorFunction], argument: str
) -> TensorFunction:
    if not isinstance(given, str):
        return given
    if given not in table:
        raise ValueError(f"{argument} {given!r} is none of {', '.join(table)}")
    return table[given]
