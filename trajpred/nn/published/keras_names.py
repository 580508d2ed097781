"""Linear maps and inputs as in Keras: widths are inferred, inputs may be off."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import dropout

TensorFunction = Callable[[Tensor], Tensor]
Activation = str | Mapping[str, Any] | TensorFunction | nn.Module | None
#: Fills a weight ``[out, in]`` in place, like the functions of torch.nn.init.
Initializer = str | Mapping[str, Any] | TensorFunction | None
#: Penalty of a weight: a name, a config dict, a function, or factors such as ``{"l1": 1e-5, "l2": 1e-4}``.
Regularizer = str | Mapping[str, Any] | Callable[[Tensor], Tensor] | None


class LazyDense(nn.LazyLinear):
    """Linear map whose input width is inferred, with a Keras initialiser and a zero bias."""

    cls_to_become = nn.Linear

    def __init__(self, out_features: int, bias: bool, initializer: TensorFunction) -> None:
        super().__init__(out_features, bias)
        self.initializer = initializer

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if not hasattr(self, "initializer") or self.has_uninitialized_params():
            return
        with torch.no_grad():
            self.initializer(self.weight)
            if self.bias is not None:
                self.bias.zero_()

    def infer(self, width: int) -> None:
        """Create the weights for inputs of this width, unless they were loaded; become an ``nn.Linear``."""
        no_rows = torch.empty(0, width, device=self.weight.device, dtype=self.weight.dtype)
        self(no_rows)


def sum_parts(parts: list[Tensor]) -> Tensor:
    """Add the parts of each item."""
    return sum(parts[1:], parts[0])


def width_of(x: Tensor | None) -> int:
    """Return the channels of an input, 0 if it is off."""
    if x is None:
        return 0
    return x.shape[-1]


def drop(x: Tensor | None, rate: float, training: bool) -> Tensor | None:
    """Apply dropout to an input that is on."""
    if x is None:
        return None
    return dropout(x, rate, training)


def _leaky_relu(x: Tensor, alpha: float = 0.2, negative_slope: float | None = None) -> Tensor:
    if negative_slope is None:
        negative_slope = alpha
    return F.leaky_relu(x, negative_slope)


def _hard_sigmoid(x: Tensor) -> Tensor:
    return (0.2 * x + 0.5).clamp(0, 1)


def _softmax(x: Tensor, axis: int = -1) -> Tensor:
    return F.softmax(x, dim=axis)


def _log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    return F.log_softmax(x, dim=axis)


ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "gelu": F.gelu,
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "linear": nn.Identity(),
    "leaky_relu": _leaky_relu,
    "swish": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "log_sigmoid": F.logsigmoid,
    "hard_sigmoid": _hard_sigmoid,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "exponential": torch.exp,
}
#: Standard deviation of a unit normal that is truncated at ±2.
TRUNCATED_DEVIATION = 0.87962566103423978


def variance_scaling(
    weight: Tensor,
    scale: float = 1.0,
    mode: str = "fan_in",
    distribution: str = "truncated_normal",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw with variance scale / n.

    Args:
        weight: ``[out, in]``, filled in place.
        scale: see above.
        mode: n is ``fan_in``, ``fan_out`` or ``fan_avg``.
        distribution: ``uniform``, ``untruncated_normal``, or ``truncated_normal`` (also ``normal``), which is
            cut at two deviations.
        generator: of the random numbers, by default torch's own.
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
    deviation = math.sqrt(variance) / TRUNCATED_DEVIATION
    return nn.init.trunc_normal_(
        weight,
        std=deviation,
        a=-2 * deviation,
        b=2 * deviation,
        generator=generator,
    )


def _truncated_normal(
    weight: Tensor, mean: float = 0.0, stddev: float = 0.05, generator: torch.Generator | None = None
) -> Tensor:
    low = mean - 2 * stddev
    high = mean + 2 * stddev
    return nn.init.trunc_normal_(weight, mean, stddev, low, high, generator)


def _random_uniform(
    weight: Tensor, minval: float = -0.05, maxval: float = 0.05, generator: torch.Generator | None = None
) -> Tensor:
    return nn.init.uniform_(weight, minval, maxval, generator)


def _random_normal(
    weight: Tensor, mean: float = 0.0, stddev: float = 0.05, generator: torch.Generator | None = None
) -> Tensor:
    return nn.init.normal_(weight, mean, stddev, generator)


def _orthogonal(weight: Tensor, gain: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
    return nn.init.orthogonal_(weight, gain, generator)


def _identity(weight: Tensor, gain: float = 1.0) -> Tensor:
    return nn.init.eye_(weight).mul_(gain)


def _constant(weight: Tensor, value: float = 0.0) -> Tensor:
    return nn.init.constant_(weight, value)


def _scaled(scale: float, mode: str, distribution: str) -> Callable[..., Tensor]:
    return partial(variance_scaling, scale=scale, mode=mode, distribution=distribution)


#: ``f(weight, **config)``; a ``seed`` becomes the ``generator``.
INITIALIZERS: dict[str, Callable[..., Tensor]] = {
    "glorot_uniform": _scaled(1, "fan_avg", "uniform"),
    "glorot_normal": _scaled(1, "fan_avg", "truncated_normal"),
    "he_uniform": _scaled(2, "fan_in", "uniform"),
    "he_normal": _scaled(2, "fan_in", "truncated_normal"),
    "lecun_uniform": _scaled(1, "fan_in", "uniform"),
    "lecun_normal": _scaled(1, "fan_in", "truncated_normal"),
    "variance_scaling": variance_scaling,
    "random_uniform": _random_uniform,
    "random_normal": _random_normal,
    "truncated_normal": _truncated_normal,
    "orthogonal": _orthogonal,
    "identity": _identity,
    "constant": _constant,
    "zeros": nn.init.zeros_,
    "ones": nn.init.ones_,
}


def _orthogonal_penalty(weight: Tensor, factor: float = 0.01, mode: str = "rows") -> Tensor:
    """Penalise products between the normalised rows (or columns) of Keras's kernel ``[in, out]``."""
    if mode not in ("rows", "columns"):
        raise ValueError(f"mode must be rows or columns, not {mode!r}")
    vectors = weight.T if mode == "rows" else weight
    kernel = F.normalize(vectors, dim=1)
    products = kernel @ kernel.T
    off_diagonal = products - torch.diag_embed(products.diagonal())
    count = max(1, len(kernel) * (len(kernel) - 1))
    return factor * off_diagonal.abs().sum() / count


def _l1_l2(weight: Tensor, l1: float = 0.01, l2: float = 0.01) -> Tensor:
    return l1 * weight.abs().sum() + l2 * weight.square().sum()


def _l1(weight: Tensor, l1: float = 0.01) -> Tensor:
    return _l1_l2(weight, l1, 0.0)


def _l2(weight: Tensor, l2: float = 0.01) -> Tensor:
    return _l1_l2(weight, 0.0, l2)


REGULARIZERS: dict[str, Callable[..., Tensor]] = {
    "l1": _l1,
    "l2": _l2,
    "l1_l2": _l1_l2,
    "orthogonal_regularizer": _orthogonal_penalty,
}
#: Names of classes whose snake case is not the name of the function.
_CLASSES = {"l1_l2": "l1_l2", "l1l2": "l1_l2", "re_lu": "relu", "leaky_re_lu": "leaky_relu", "elu": "elu"}


def activation_of(activation: Activation) -> TensorFunction:
    """Look up an activation; None is linear.

    Raises:
        ValueError: if it is unknown.
    """
    if activation is None:
        activation = "linear"
    return _look_up(activation, ACTIVATIONS, "activation", (3,))


def initializer_of(initializer: Initializer) -> TensorFunction:
    """Look up an initialiser; None is ``glorot_uniform``. Without a seed it draws from torch's generator."""
    if initializer is None:
        initializer = "glorot_uniform"
    return _look_up(initializer, INITIALIZERS, "kernel_initializer", (3, 3))


def regularizer_of(regularizer: Regularizer) -> TensorFunction | None:
    """Look up a regulariser: ``l1`` f Σ|w|, ``l2`` f Σw², ``l1_l2`` both, with f = 0.01 for a name alone."""
    if regularizer is None:
        return None
    if isinstance(regularizer, Mapping) and "class_name" not in regularizer:
        factors = {"l1": 0.0, "l2": 0.0}
        factors.update(regularizer)
        regularizer = {"class_name": "L1L2", "config": factors}
    return _look_up(regularizer, REGULARIZERS, "kernel_regularizer", (3, 3))


def _look_up(
    reference: Any, table: Mapping[str, Callable[..., Tensor]], argument: str, shape: tuple[int, ...]
) -> TensorFunction:
    """Return the function, tried once on a tensor of ``shape`` so that wrong options are rejected now."""
    if callable(reference):
        function: TensorFunction = reference
        return function
    name, config = _name_and_config(reference)
    if not isinstance(name, str) or not isinstance(config, Mapping):
        raise ValueError(f"{argument} must be a name, a config dict or a function, not {reference!r}")
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    operator = table.get(name) or table.get(_CLASSES.get(snake, snake))
    if operator is None:
        raise ValueError(f"unknown {argument} {name!r}; known: {', '.join(table)}")
    if not config:
        return operator
    options = {key: value for key, value in config.items() if key not in ("seed", "name", "dtype")}
    bound = _bind(operator, options, config.get("seed"))
    try:
        with torch.no_grad():
            bound(torch.zeros(shape))
    except (TypeError, ValueError, RuntimeError) as error:
        problem = f"{argument} {name!r} cannot have the options {dict(config)} ({error})"
        raise ValueError(problem) from None
    return bound


def _name_and_config(reference: Any) -> tuple[Any, Any]:
    """Return the name and the options of a name or config dict, unchecked."""
    if not isinstance(reference, Mapping):
        return reference, {}
    name = reference.get("class_name")
    config = reference.get("config", {})
    if name == "function":  # a serialised function, its name in ``config``
        return config, {}
    return name, config


def _bind(operator: Callable[..., Tensor], options: dict[str, Any], seed: int | None) -> TensorFunction:
    """Fix the options of a function; with a ``seed`` every call draws the same numbers."""

    def bound(x: Tensor) -> Tensor:
        if seed is None:
            return operator(x, **options)
        generator = torch.Generator(x.device).manual_seed(seed)
        return operator(x, **options, generator=generator)

    return bound
