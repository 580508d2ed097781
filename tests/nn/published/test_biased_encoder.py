"""Biased attention and the three orders of normalisation against their formulas."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, relu

from trajpred.nn.layer import DropPath
from trajpred.nn.published import transformer_m as biased_encoder
from trajpred.nn.published.transformer_m import BiasedAttention, BiasedEncoderLayer

DIM, HEADS, HIDDEN = 8, 2, 12
MASK = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])


def layer_of(norm: Any = "pre", activation: str = "gelu", **rates: float) -> BiasedEncoderLayer:
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0} | rates
    layer = BiasedEncoderLayer(DIM, HIDDEN, HEADS, activation_fn=activation, norm=norm, **rates)
    for parameter in layer.parameters():  # norms that start as the identity would hide a norm left out
        nn.init.normal_(parameter, std=0.4)
    return layer.double()


def attend(attention: BiasedAttention, x: Tensor, bias: Tensor, mask: Tensor = MASK) -> Tensor:
    """Attention one query and head at a time."""
    rows = torch.zeros(*x.shape, dtype=x.dtype)
    q, k, v = (
        (x @ f.weight.T + f.bias).unflatten(-1, (HEADS, -1))
        for f in (attention.query, attention.key, attention.value)
    )
    for b, i in mask.nonzero().tolist():
        heads = []
        for h in range(HEADS):
            score = torch.stack([q[b, i, h] @ k[b, j, h] for j in range(x.shape[1]) if mask[b, j]])
            weight = torch.softmax(score / (DIM // HEADS) ** 0.5 + bias[b, h, i][mask[b]], 0)
            heads.append(weight @ v[b, mask[b], h])
        rows[b, i] = torch.cat(heads) @ attention.out.weight.T + attention.out.bias
    return rows


def test_doctests() -> None:
    assert doctest.testmod(biased_encoder).failed == 0


def test_names_and_defaults_are_the_publication_s() -> None:
    defaults = {name: p.default for name, p in inspect.signature(BiasedEncoderLayer).parameters.items()}
    assert defaults == {
        "embedding_dim": 768,
        "ffn_embedding_dim": 3072,
        "num_attention_heads": 8,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "activation_fn": "relu",
        "droppath_prob": 0.0,
        "norm": "pre",
    }


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"norm": "none"}, "sandwich"),
        ({"activation_fn": "swish"}, "gelu_accurate"),
        ({"num_attention_heads": 3}, "divisible"),
    ],
)
def test_errors(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BiasedEncoderLayer(**({"embedding_dim": DIM, "num_attention_heads": HEADS} | wrong))


@pytest.mark.parametrize("norm", ["pre", "post", "sandwich"])
def test_formula(norm: str) -> None:
    layer = layer_of(norm)
    block, branch = layer.block, layer.block.attention
    ff = block.feed_forward
    x, bias = torch.randn(2, 5, DIM).double(), torch.randn(2, HEADS, 5, 5).double()

    def ln(module: nn.Module, y: Tensor) -> Tensor:
        return layer_norm(y, (DIM,), module.weight, module.bias)  # type: ignore[arg-type]

    def a(y: Tensor) -> Tensor:
        return attend(branch.attention, y, bias)

    def f(y: Tensor) -> Tensor:
        return gelu(y @ ff[0].weight.T + ff[0].bias) @ ff[3].weight.T + ff[3].bias

    if norm == "pre":
        y = x + a(ln(block.norm1, x))
        y = y + f(ln(block.norm2, y))
    elif norm == "post":
        y = ln(block.norm1, x + a(x))
        y = ln(block.norm2, y + f(y))
    else:
        y = x + ln(branch.after[-1], a(ln(block.norm1, x)))
        y = y + ln(ff[-1], f(ln(block.norm2, y)))
    out = layer(x, bias, MASK)
    torch.testing.assert_close(out[MASK], y[MASK])
    assert out.isfinite().all()


def test_activations() -> None:
    x, names = torch.linspace(-3, 3, 50), ("relu", "gelu", "gelu_accurate", "gelu_fast", "tanh", "linear")
    expected = (relu(x), gelu(x), gelu(x, approximate="tanh"), gelu(x, approximate="tanh"), x.tanh(), x)
    for name, y in zip(names, expected, strict=True):
        torch.testing.assert_close(layer_of(activation=name).block.feed_forward[1](x), y)


@pytest.mark.parametrize("bias", [None, torch.randn(2, HEADS, 4, 5), torch.randn(1, 1, 1, 5)])
def test_attention_weights_on_request(bias: Tensor | None) -> None:
    attention, x, z = BiasedAttention(DIM, HEADS), torch.randn(2, 4, DIM), torch.randn(2, 5, DIM)
    out, weight = attention(x, z, bias, return_attention=True)
    torch.testing.assert_close(out, attention(x, z, bias))
    assert weight.shape == (2, HEADS, 4, 5)
    torch.testing.assert_close(weight.sum(-1), torch.ones(2, HEADS, 4))


def test_scores_and_softmax_are_float32_under_half_precision() -> None:
    layer, x = layer_of().float().eval(), torch.randn(2, 5, DIM)
    bias = torch.full((2, HEADS, 5, 5), 1000.0)
    bias[..., 0] = 1001.0  # bfloat16 has no 1001
    with torch.autocast("cpu", torch.bfloat16):
        found = layer.block.attention.attention(x, x, bias, return_attention=True)[1]
        out = layer(x, bias, MASK)
    expected = layer.block.attention.attention(x, x, bias, return_attention=True)[1]
    torch.testing.assert_close(found, expected, rtol=5e-2, atol=5e-3)
    torch.testing.assert_close(out, layer(x, bias, MASK), rtol=5e-2, atol=5e-2)
    assert layer.half()(x.half(), bias, MASK).isfinite().all()


@pytest.mark.parametrize("norm", ["pre", "post", "sandwich"])
def test_padding_is_not_heard_and_stays_finite(norm: str) -> None:
    layer, bias = layer_of(norm), torch.randn(2, HEADS, 5, 5).double()
    x = torch.randn(2, 5, DIM).double().requires_grad_()
    nobody = torch.zeros(2, 5, dtype=torch.bool)
    alone = layer(x[1:, :3], bias[1:, :, :3, :3])
    torch.testing.assert_close(layer(x, bias, MASK)[1:, :3], alone)
    torch.testing.assert_close(layer(x, None, MASK)[1:, :3], layer(x[1:, :3]))
    out = layer(x, bias, nobody)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert out.isfinite().all() and gradient.isfinite().all()
    assert layer(x[:, :0], bias[..., :0, :0], MASK[:, :0]).shape == (2, 0, DIM)
    assert layer(x[:0], bias[:0], MASK[:0]).shape == (0, 5, DIM)


def test_permuting_the_tokens_permutes_the_output() -> None:
    layer, order = layer_of("post"), torch.randperm(5)
    x, bias = torch.randn(1, 5, DIM).double(), torch.randn(1, HEADS, 5, 5).double()
    out = layer(x[:, order], bias[:, :, order][..., order])
    torch.testing.assert_close(out, layer(x, bias)[:, order])


@pytest.mark.parametrize("norm", ["pre", "post", "sandwich"])
def test_gradients(norm: str) -> None:
    layer = layer_of(norm)
    x = torch.randn(1, 3, DIM, dtype=torch.double, requires_grad=True)
    bias = torch.randn(1, HEADS, 3, 3, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    assert torch.autograd.gradcheck(lambda x, bias: layer(x, bias, mask)[:, :2], (x, bias))


@pytest.mark.parametrize("rate", ["dropout", "droppath_prob"])
def test_both_branches_are_dropped(rate: str) -> None:
    layer, x = layer_of(**{rate: 0.999999}).train(), torch.randn(2, 5, DIM).double()
    torch.testing.assert_close(layer(x), x)
    assert not torch.allclose(layer.eval()(x), x)


@pytest.mark.parametrize("rate", ["attention_dropout", "activation_dropout"])
def test_dropout_inside_is_for_training(rate: str) -> None:
    layer, x = layer_of(**{rate: 0.5}), torch.randn(2, 5, DIM).double()
    assert not torch.allclose(layer.train()(x), layer(x))
    torch.testing.assert_close(layer.eval()(x), layer(x))


def test_a_path_is_dropped_for_a_whole_sample() -> None:
    x = torch.ones(4000, 3, 2)
    out = DropPath(0.25)(x)
    assert ((out == 0).all((1, 2)) | (out == 1 / 0.75).all((1, 2))).all()
    assert out.mean() == pytest.approx(1, abs=0.05)
    assert (DropPath(0.25).eval()(x) == x).all()
