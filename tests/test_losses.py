"""The losses against torch.distributions and their closed forms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, Laplace, MixtureSameFamily

from trajpred.losses import endpoint_mixture_nll, laplace_nll, masked_mean, winner, winner_takes_all

A, K, F = 5, 3, 7


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def modes() -> tuple[Tensor, Tensor]:
    return 3 * torch.randn(A, K, F, 2), 0.2 + torch.rand(A, K, F, 2)


@pytest.fixture
def target() -> Tensor:
    return 3 * torch.randn(A, F, 2)


@pytest.fixture
def valid() -> Tensor:
    """Everything, gaps, the first step only, all but the last one, nothing."""
    valid = torch.rand(A, F) < 0.5
    valid[0], valid[2], valid[3], valid[4] = True, False, True, False
    valid[2, 0], valid[3, -1] = True, False
    return valid


def test_laplace_nll_is_that_of_torch(modes: tuple[Tensor, Tensor], target: Tensor) -> None:
    location, scale = modes
    expected = -Laplace(location, scale).log_prob(target[:, None]).sum(-1)
    torch.testing.assert_close(laplace_nll(location, scale, target[:, None]), expected)


def test_winner_has_the_least_average_displacement_over_valid_steps(
    modes: tuple[Tensor, Tensor], target: Tensor, valid: Tensor
) -> None:
    expected = []
    for a in range(A):
        errors = [
            [float((modes[0][a, k, f] - target[a, f]).norm()) for f in range(F) if valid[a, f]]
            for k in range(K)
        ]
        means = [sum(e) / max(1, len(e)) for e in errors]
        expected.append(means.index(min(means)))
    assert winner(modes[0], target, valid).tolist() == expected


def test_winner_takes_all_trains_the_winner_on_its_valid_steps(
    modes: tuple[Tensor, Tensor], target: Tensor, valid: Tensor
) -> None:
    location, scale = (x.requires_grad_() for x in modes)
    best = winner(location, target, valid)
    found = winner_takes_all(location, scale, target, valid, best)
    for a in range(A):
        steps = valid[a].nonzero()[:, 0]
        law = Laplace(location[a, best[a], steps], scale[a, best[a], steps])
        expected = -law.log_prob(target[a, steps]).sum() / max(1, len(steps))
        torch.testing.assert_close(found[a], expected)
    found.sum().backward()
    trained = torch.zeros(A, K, F, dtype=torch.bool)
    trained[torch.arange(A), best] = valid
    for x in (location, scale):
        assert x.grad is not None and torch.equal((x.grad != 0).any(-1), trained)


def test_mixture_nll_is_that_of_torch_at_the_last_valid_step(
    modes: tuple[Tensor, Tensor], target: Tensor, valid: Tensor
) -> None:
    (location, scale), logits = modes, torch.randn(A, K)
    found = endpoint_mixture_nll(location, scale, logits, target, valid)
    for a in range(A - 1):  # the last one has no valid step
        end = int(valid[a].nonzero().max())
        parts = Independent(Laplace(location[a, :, end], scale[a, :, end]), 1)
        law = MixtureSameFamily(Categorical(logits=logits[a]), parts)
        torch.testing.assert_close(found[a], -law.log_prob(target[a, end]))


def test_mixture_nll_trains_the_logits_alone(
    modes: tuple[Tensor, Tensor], target: Tensor, valid: Tensor
) -> None:
    location, scale = (x.requires_grad_() for x in modes)
    logits = torch.zeros(A, K, requires_grad=True)
    endpoint_mixture_nll(location, scale, logits, target, valid).sum().backward()
    assert location.grad is None and scale.grad is None
    # The gradient is prior minus posterior: it moves probability to the mode that explains the end best.
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad.sum(1), torch.zeros(A), rtol=0, atol=1e-5)
    end = [int(valid[a].nonzero().max()) for a in range(A - 1)]
    likely = torch.stack(
        [-laplace_nll(location[a, :, e], scale[a, :, e], target[a, e]) for a, e in enumerate(end)]
    )
    torch.testing.assert_close(logits.grad[:-1], 1 / K - likely.softmax(1))


def test_what_is_not_valid_changes_nothing(
    modes: tuple[Tensor, Tensor], target: Tensor, valid: Tensor
) -> None:
    logits = torch.randn(A, K)
    other = torch.where(valid[..., None], target, 1e6)

    def every(target: Tensor) -> list[Tensor]:
        best = winner(modes[0], target, valid)
        mixture = endpoint_mixture_nll(*modes, logits, target, valid)
        return [best, winner_takes_all(*modes, target, valid, best), mixture[:-1]]

    for a, b in zip(every(target), every(other), strict=True):
        assert torch.equal(a, b)


def test_masked_mean() -> None:
    values = torch.tensor([[1.0, 2, 6], [1, 2, 6], [1, 2, 6]])
    mask = torch.tensor([[True, True, True], [False, True, True], [False, False, False]])
    assert masked_mean(values, mask).tolist() == [3, 4, 0]
