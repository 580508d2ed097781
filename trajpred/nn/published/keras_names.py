"""Keras's activations, initialisers and regularisers, by name or config dict, as functions of torch.

A config dict is what Keras serialises: ``{"class_name": "VarianceScaling", "config": {"scale": 2.0}}``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TensorFunction = Callable[[Tensor], Tensor]
Activation = str | Mapping[str, Any] | TensorFunction | nn.Module | None
#: Fills a weight ``[out, in]`` in place, like the functions of torch.nn.init.
Initializer = str | Mapping[str, Any] | TensorFunction | None
#: Penalty of a weight: a name, a config dict, a function, or factors such as ``{"l1": 1e-5, "l2": 1e-4}``.
Regularizer = str | Mapping[str, Any] | Callable[[Tensor], Tensor] | None


def _leaky_relu(x: Tensor, alpha: float = 0.2, negative_slope: float | None = None) -> Tensor:
    return F.leaky_relu(x, alpha if negative_slope is None else negative_slope)


#: Names of torch.nn.functional that Keras uses with the same meaning; then those that differ.
ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    name: getattr(F, name)
    for name in ("relu", "relu6", "elu", "celu", "selu", "gelu", "silu", "mish", "softplus", "softsign")
} | {
    "linear": nn.Identity(),
    "leaky_relu": _leaky_relu,
    "swish": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "log_sigmoid": F.logsigmoid,
    "hard_sigmoid": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "softmax": lambda x, axis=-1: F.softmax(x, dim=axis),
    "log_softmax": lambda x, axis=-1: F.log_softmax(x, dim=axis),
    "exponential": torch.exp,
}


def variance_scaling(
    weight: Tensor,
    scale: float = 1.0,
    mode: str = "fan_in",
    distribution: str = "truncated_normal",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw with variance scale / n.

    Args:
        mode: n is ``fan_in``, ``fan_out`` or ``fan_avg``.
        distribution: ``uniform``, ``untruncated_normal``, or ``truncated_normal`` (also ``normal``), which is
            cut at two deviations.
    """
    fan_out, fan_in = weight.shape
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
    if mode not in fans:
        raise ValueError(f"mode must be one of {', '.join(fans)}, not {mode!r}")
    variance = scale / max(1.0, fans[mode])
    if distribution == "uniform":
        limit = math.sqrt(3 * variance)
        return nn.init.uniform_(weight, -limit, limit, generator=generator)
    if distribution == "untruncated_normal":
        return nn.init.normal_(weight, std=math.sqrt(variance), generator=generator)
    if distribution not in ("truncated_normal", "normal"):
        raise ValueError(f"unknown distribution {distribution!r}")
    deviation = math.sqrt(variance) / 0.87962566103423978  # that of a unit normal truncated at ±2
    bounds = {"a": -2 * deviation, "b": 2 * deviation}
    return nn.init.trunc_normal_(weight, std=deviation, **bounds, generator=generator)


def _truncated_normal(
    weight: Tensor, mean: float = 0.0, stddev: float = 0.05, generator: torch.Generator | None = None
) -> Tensor:
    return nn.init.trunc_normal_(weight, mean, stddev, mean - 2 * stddev, mean + 2 * stddev, generator)


#: ``f(weight, **config)``; a ``seed`` becomes the ``generator``.
INITIALIZERS: dict[str, Callable[..., Tensor]] = {
    f"{name}_{shape}": partial(variance_scaling, scale=scale, mode=mode, distribution=distribution)
    for name, scale, mode in (("glorot", 1, "fan_avg"), ("he", 2, "fan_in"), ("lecun", 1, "fan_in"))
    for shape, distribution in (("uniform", "uniform"), ("normal", "truncated_normal"))
} | {
    "variance_scaling": variance_scaling,
    "random_uniform": lambda w, minval=-0.05, maxval=0.05, generator=None: nn.init.uniform_(
        w, minval, maxval, generator
    ),
    "random_normal": lambda w, mean=0.0, stddev=0.05, generator=None: nn.init.normal_(
        w, mean, stddev, generator
    ),
    "truncated_normal": _truncated_normal,
    "orthogonal": lambda w, gain=1.0, generator=None: nn.init.orthogonal_(w, gain, generator),
    "identity": lambda w, gain=1.0: nn.init.eye_(w).mul_(gain),
    "constant": lambda w, value=0.0: nn.init.constant_(w, value),
    "zeros": nn.init.zeros_,
    "ones": nn.init.ones_,
}


def _orthogonal_penalty(weight: Tensor, factor: float = 0.01, mode: str = "rows") -> Tensor:
    """Penalise products between the normalised rows (or columns) of Keras's kernel ``[in, out]``."""
    if mode not in ("rows", "columns"):
        raise ValueError(f"mode must be rows or columns, not {mode!r}")
    kernel = F.normalize(weight.T if mode == "rows" else weight, dim=1)
    products = kernel @ kernel.T
    count = max(1, len(kernel) * (len(kernel) - 1))
    return factor * (products - torch.diag_embed(products.diagonal())).abs().sum() / count


def _l1_l2(weight: Tensor, l1: float = 0.01, l2: float = 0.01) -> Tensor:
    return l1 * weight.abs().sum() + l2 * weight.square().sum()


REGULARIZERS: dict[str, Callable[..., Tensor]] = {
    "l1": lambda w, l1=0.01: _l1_l2(w, l1, 0.0),
    "l2": lambda w, l2=0.01: _l1_l2(w, 0.0, l2),
    "l1_l2": _l1_l2,
    "orthogonal_regularizer": _orthogonal_penalty,
}
#: Names of classes whose snake case is not the name of the function.
_CLASSES = {"l1_l2": "l1_l2", "l1l2": "l1_l2", "re_lu": "relu", "leaky_re_lu": "leaky_relu", "elu": "elu"}


def activation_of(activation: Activation) -> TensorFunction:
    """Look up an activation; None is linear. Raises: ValueError if it is unknown."""
    return _look_up("linear" if activation is None else activation, ACTIVATIONS, "activation", (3,))


def initializer_of(initializer: Initializer) -> TensorFunction:
    """Look up an initialiser; None is ``glorot_uniform``. Without a seed it draws from torch's generator."""
    given = "glorot_uniform" if initializer is None else initializer
    return _look_up(given, INITIALIZERS, "kernel_initializer", (3, 3))


def regularizer_of(regularizer: Regularizer) -> TensorFunction | None:
    """Look up a regulariser: ``l1`` f Σ|w|, ``l2`` f Σw², ``l1_l2`` both, with f = 0.01 for a name alone."""
    if regularizer is None:
        return None
    if isinstance(regularizer, Mapping) and "class_name" not in regularizer:
        factors = {"l1": 0.0, "l2": 0.0, **regularizer}
        regularizer = {"class_name": "L1L2", "config": factors}
    return _look_up(regularizer, REGULARIZERS, "kernel_regularizer", (3, 3))


def _look_up(
    given: Any, table: Mapping[str, Callable[..., Tensor]], argument: str, shape: tuple[int, ...]
) -> TensorFunction:
    """Return the function, tried once on a tensor of ``shape`` so that wrong options are rejected now."""
    if callable(given):
        function: TensorFunction = given
        return function
    name, config = given, {}
    if isinstance(given, Mapping):
        name, config = given.get("class_name"), given.get("config", {})
        if name == "function":  # a serialised function, its name in ``config``
            name, config = config, {}
    if not isinstance(name, str) or not isinstance(config, Mapping):
        raise ValueError(f"{argument} must be a name, a config dict or a function, not {given!r}")
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    found = table.get(name) or table.get(_CLASSES.get(snake, snake))
    if found is None:
        raise ValueError(f"unknown {argument} {name!r}; known: {', '.join(table)}")
    options = {key: value for key, value in config.items() if key not in ("seed", "name", "dtype")}
    seed = config.get("seed")

    def bound(x: Tensor) -> Tensor:
        drawn = {} if seed is None else {"generator": torch.Generator(x.device).manual_seed(seed)}
        return found(x, **options, **drawn)

    if config:
        try:
            with torch.no_grad():
                bound(torch.zeros(shape))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{argument} {name!r} cannot have the options {dict(config)} ({error})"
            ) from None
    return bound if config else found
