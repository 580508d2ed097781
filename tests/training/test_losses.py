"""The losses against torch.distributions and their closed forms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, Laplace, MixtureSameFamily

from trajpred.training.losses import (
    average_displacement,
    endpoint_nll,
    laplace_nll,
    masked_mean,
    mixture_nll,
    winner_takes_all,
)

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


def test_average_displacement_is_the_mean_over_valid_steps(
    modes: tuple[Tensor, Tensor], target: Tensor, valid: Tensor
) -> None:
    assert not average_displacement(modes[0].clone().requires_grad_(), target, valid).requires_grad
    found = average_displacement(modes[0], target, valid)
    for a in range(A):
        for k in range(K):
            errors = [float((modes[0][a, k, f] - target[a, f]).norm()) for f in range(F) if valid[a, f]]
            assert float(found[a, k]) == pytest.approx(sum(errors) / max(1, len(errors)))


def test_winner_takes_all_is_the_error_and_the_likelihood_of_the_scale(
    modes: tuple[Tensor, Tensor], target: Tensor, valid: Tensor
) -> None:
    location, scale = (x.requires_grad_() for x in modes)
    best = torch.tensor([0, 2, 1, 1, 0])
    found = winner_takes_all(location, scale, target, valid, best)
    found.sum().backward()
    slope = torch.zeros_like(location), torch.zeros_like(scale)
    for a, k in enumerate(best.tolist()):
        steps = valid[a].nonzero()[:, 0]
        share = 1 / max(1, len(steps))
        error, b = (location[a, k, steps] - target[a, steps]).detach(), scale[a, k, steps].detach()
        expected = (error.abs() - Laplace(0.0, b).log_prob(error)).sum() * share
        torch.testing.assert_close(found[a].detach(), expected)
        # Locations are pulled alike wherever they are; scales towards the error.
        slope[0][a, k, steps] = error.sign() * share
        slope[1][a, k, steps] = (1 / b - error.abs() / b**2) * share
    torch.testing.assert_close((location.grad, scale.grad), slope)


def last_valid(valid: Tensor) -> list[int]:
    """Of all but the last agent, which has none."""
    return [max(f for f in range(F) if valid[a, f]) for a in range(A - 1)]


def test_end_points_are_those_of_the_last_valid_step(
    modes: tuple[Tensor, Tensor], target: Tensor, valid: Tensor
) -> None:
    location, scale = (x.requires_grad_() for x in modes)
    found = endpoint_nll(location, scale, target, valid)
    assert found.shape == (A, K) and not found.requires_grad
    for a, end in enumerate(last_valid(valid)):
        law = Independent(Laplace(location[a, :, end], scale[a, :, end]), 1)
        torch.testing.assert_close(found[a], -law.log_prob(target[a, end]).detach())


def test_mixture_nll_is_that_of_torch() -> None:
    location, scale, logits = torch.randn(A, K), 0.1 + torch.rand(A, K), torch.randn(A, K)
    law = MixtureSameFamily(Categorical(logits=logits), Laplace(location, scale))
    nll = -Laplace(location, scale).log_prob(torch.ones(A, 1))
    torch.testing.assert_close(mixture_nll(logits, nll), -law.log_prob(torch.ones(A)))


def test_mixture_nll_moves_probability_to_what_explains_best() -> None:
    logits, nll = torch.zeros(A, K, requires_grad=True), 5 * torch.randn(A, K)
    mixture_nll(logits, nll).sum().backward()
    torch.testing.assert_close(logits.grad, 1 / K - (-nll).softmax(1))


def test_what_is_not_valid_changes_nothing(
    modes: tuple[Tensor, Tensor], target: Tensor, valid: Tensor
) -> None:
    def every(target: Tensor) -> list[Tensor]:
        error = average_displacement(modes[0], target, valid)
        regression = winner_takes_all(*modes, target, valid, error.argmin(1))
        return [error, regression, endpoint_nll(*modes, target, valid)[:-1]]

    other = torch.where(valid[..., None], target, 1e6)
    for a, b in zip(every(target), every(other), strict=True):
        assert torch.equal(a, b)


def test_masked_mean() -> None:
    values = torch.tensor([[1.0, 2, 6], [1, 2, 6], [1, 2, 6]])
    mask = torch.tensor([[True, True, True], [False, True, True], [False, False, False]])
    assert masked_mean(values, mask).tolist() == [3, 4, 0]
