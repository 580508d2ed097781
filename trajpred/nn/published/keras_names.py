"""Keras's names for activations, initialisers and regularisers, as functions of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TensorFunction = Callable[[Tensor], Tensor]
Activation = str | TensorFunction | nn.Module | None
#: Fills a weight ``[out, in]`` in place, like the functions of torch.nn.init.
Initializer = str | TensorFunction | None
#: Penalty of a weight: a function, a name, or factors by name such as ``{"l1": 1e-5, "l2": 1e-4}``.
Regularizer = str | Mapping[str, float] | Callable[[Tensor], Tensor] | None

#: Names of torch.nn.functional that Keras uses with the same meaning; then those that differ.
ACTIVATIONS: dict[str, TensorFunction] = {
    name: getattr(F, name)
    for name in ("relu", "relu6", "elu", "selu", "gelu", "silu", "mish", "softplus", "softsign")
} | {
    "linear": nn.Identity(),
    "leaky_relu": partial(F.leaky_relu, negative_slope=0.2),
    "swish": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "hard_sigmoid": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "softmax": partial(F.softmax, dim=-1),
    "exponential": torch.exp,
}


def _variance_scaling(weight: Tensor, scale: float, mean_fan: bool, normal: bool) -> Tensor:
    """Draw with variance scale / n, n = in or (in + out) / 2; a normal is truncated at two deviations."""
    fan_out, fan_in = weight.shape
    variance = scale / max(1.0, (fan_in + fan_out) / 2 if mean_fan else fan_in)
    if normal:
        deviation = math.sqrt(variance) / 0.87962566103423978  # that of a unit normal truncated at ±2
        return nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    limit = math.sqrt(3 * variance)
    return nn.init.uniform_(weight, -limit, limit)


INITIALIZERS: dict[str, TensorFunction] = {
    f"{name}_{shape}": partial(_variance_scaling, scale=scale, mean_fan=mean_fan, normal=shape == "normal")
    for name, scale, mean_fan in (("glorot", 1, True), ("he", 2, False), ("lecun", 1, False))
    for shape in ("uniform", "normal")
} | {
    "random_uniform": partial(nn.init.uniform_, a=-0.05, b=0.05),
    "random_normal": partial(nn.init.normal_, std=0.05),
    "truncated_normal": partial(nn.init.trunc_normal_, std=0.05, a=-0.1, b=0.1),
    "orthogonal": nn.init.orthogonal_,
    "zeros": nn.init.zeros_,
    "ones": nn.init.ones_,
}

PENALTIES: dict[str, TensorFunction] = {"l1": lambda w: w.abs().sum(), "l2": lambda w: w.square().sum()}


def activation_of(activation: Activation) -> TensorFunction:
    """Look up an activation; None is linear."""
    return _look_up(activation or "linear", ACTIVATIONS, "activation")


def initializer_of(initializer: Initializer) -> TensorFunction:
    """Look up an initialiser; None is ``glorot_uniform``. It draws from torch's global generator."""
    return _look_up(initializer or "glorot_uniform", INITIALIZERS, "kernel_initializer")


def regularizer_of(regularizer: Regularizer) -> TensorFunction | None:
    """Look up a regulariser: ``l1`` f Σ|w|, ``l2`` f Σw², ``l1_l2`` both, with f = 0.01 for a name alone."""
    if isinstance(regularizer, str):
        regularizer = dict.fromkeys(regularizer.split("_"), 0.01)
    if not isinstance(regularizer, Mapping):
        return regularizer
    terms = [(f, _look_up(name, PENALTIES, "kernel_regularizer")) for name, f in regularizer.items()]
    return lambda weight: sum((f * penalty(weight) for f, penalty in terms), weight.new_zeros(()))


def _look_up(
    given: str | TensorFunction, table: Mapping[str, TensorFunction], argument: str
) -> TensorFunction:
    if not isinstance(given, str):
        return given
    if given not in table:
        raise ValueError(f"unknown {argument} {given!r}; known: {', '.join(table)}")
    return table[given]
