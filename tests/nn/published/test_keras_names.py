"""Names of Keras: activations, initialisers, regularisers."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from trajpred.nn.published.keras_names import INITIALIZERS, activation_of, initializer_of, regularizer_of


def test_activations_that_differ_from_torch() -> None:
    x = torch.tensor([-4.0, -1.0, 0.0, 1.0, 4.0])
    assert_close(activation_of("hard_sigmoid")(x), torch.tensor([0, 0.3, 0.5, 0.7, 1]))
    assert_close(activation_of("leaky_relu")(x), torch.tensor([-0.8, -0.2, 0, 1, 4]))
    assert_close(activation_of("swish")(x), x * torch.sigmoid(x))
    assert_close(activation_of("log_softmax")(x), torch.log_softmax(x, -1))
    assert torch.equal(activation_of(None)(x), x)


#: Standard deviations for a weight [300, 200] (out, in).
SPREAD = {"glorot": 1 / 250, "he": 2 / 200, "lecun": 1 / 200, "random": None}


@pytest.mark.parametrize("name", INITIALIZERS)
def test_initialisers_have_the_variance_of_their_names(name: str) -> None:
    weight = initializer_of(name)(torch.empty(300, 200))
    variance = SPREAD.get(name.split("_")[0])
    assert weight.isfinite().all()
    if variance is not None:
        assert weight.var().item() == pytest.approx(variance, rel=0.05)
        assert weight.abs().max() < (1.74 if "uniform" in name else 2.28) * variance**0.5


@pytest.mark.parametrize("value", ["l1_l2", {"l1": 0.01, "l2": 0.01}])
def test_regularisers(value: str | dict[str, float]) -> None:
    weight = torch.tensor([[1.0, -2.0]])
    penalty = regularizer_of(value)
    assert penalty(weight) == pytest.approx(0.01 * (3 + 5))
    assert regularizer_of("l2")(weight) == pytest.approx(0.05)  # type: ignore[misc]
    assert regularizer_of(None) is None
    assert regularizer_of(torch.sum) is torch.sum


def test_unknown_names() -> None:
    for look_up in (activation_of, initializer_of, regularizer_of):
        with pytest.raises(ValueError, match="unknown"):
            look_up("l7")
