"""Linear maps and inputs as in Keras: widths are inferred, inputs may be off."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from trajpred.nn.published import keras_names as keras


class LazyDense(nn.LazyLinear):
    """Linear map whose input width is inferred, with a Keras initialiser and a zero bias."""

    cls_to_become = nn.Linear

    def __init__(self, out_features: int, bias: bool, initializer: keras.TensorFunction) -> None:
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
