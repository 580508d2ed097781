"""Names of Keras: activations, initialisers, regularisers."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from trajpred.nn.published.keras_names import (
    INITIALIZERS,
    activation_of,
    initializer_of,
    regularizer_of,
)


def test_activations_that_differ_from_torch() -> None:
    x = torch.tensor([-4.0, -1.0, 0.0, 1.0, 4.0])
    assert_close(activation_of("hard_sigmoid")(x), torch.tensor([0, 0.3, 0.5, 0.7, 1]))
    assert_close(activation_of("leaky_relu")(x), torch.tensor([-0.8, -0.2, 0, 1, 4]))
    assert_close(activation_of("swish")(x), x * torch.sigmoid(x))
    assert torch.equal(activation_of(None)(x), x)


#: Standard deviations for a weight [300, 200] (out, in).
SPREAD = {"glorot": 1 / 250, "he": 2 / 200, "lecun": 1 / 200, "random": None, "truncated": None}


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


def test_config_dicts_of_keras() -> None:
    def config(name: str, **options: object) -> dict[str, object]:
        return {"module": "keras", "class_name": name, "config": options, "registered_name": None}

    empty = torch.empty(300, 200)
    assert (initializer_of(config("Constant", value=3.0))(empty) == 3).all()
    assert torch.equal(initializer_of(config("Identity", gain=2.0))(torch.empty(3, 3)), 2 * torch.eye(3))
    seeded = initializer_of(config("RandomNormal", stddev=0.5, seed=7))
    assert torch.equal(seeded(torch.empty(9, 9)), seeded(torch.empty(9, 9)))
    for distribution in ("uniform", "truncated_normal", "untruncated_normal"):
        options = {"scale": 3.0, "mode": "fan_out", "distribution": distribution}
        drawn = initializer_of(config("VarianceScaling", **options))(empty)
        assert drawn.var().item() == pytest.approx(3 / 300, rel=0.05)
    weight = torch.tensor([[1.0, -2.0]])
    assert regularizer_of(config("L1L2", l1=0.5, l2=0.1))(weight) == pytest.approx(2.0)  # type: ignore[misc]
    assert regularizer_of(config("L2", l2=0.1))(weight) == pytest.approx(0.5)  # type: ignore[misc]
    x = torch.tensor([-1.0, 2.0])
    assert_close(activation_of(config("LeakyReLU", alpha=0.5))(x), torch.tensor([-0.5, 2.0]))
    function = {"class_name": "function", "config": "relu"}
    assert_close(activation_of(function)(x), torch.tensor([0.0, 2.0]))
    assert_close(activation_of("log_softmax")(x), torch.log_softmax(x, -1))


def test_unknown_names() -> None:
    for look_up in (activation_of, initializer_of, regularizer_of):
        with pytest.raises(ValueError, match="unknown"):
            look_up("l7")
