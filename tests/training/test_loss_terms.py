"""The terms of the losses against torch.distributions and finite loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, Laplace, MixtureSameFamily

from trajpred.data.geometry import last_step
from trajpred.training.losses import (
    average_displacement,
    endpoint_nll,
    mixture_nll,
    winner_takes_all,
)

A = 5
K = 3
F = 7


@pytest.fixture
def modes() -> tuple[Tensor, Tensor]:
    """Locations and scales with gradients."""
    location = 3 * torch.randn(A, K, F, 2)
    scale = 0.2 + torch.rand(A, K, F, 2)
    return location.requires_grad_(), scale.requires_grad_()


@pytest.fixture
def target() -> Tensor:
    return 3 * torch.randn(A, F, 2)


@pytest.fixture
def valid() -> Tensor:
    """All steps, some, the first only, all but the last, none."""
    valid = torch.rand(A, F) < 0.5
    valid[0] = True
    valid[2] = False
    valid[3] = True
    valid[4] = False
    valid[2, 0] = True
    valid[3, -1] = False
    return valid


def test_average_displacement_is_the_detached_mean_over_valid_steps(
    modes: tuple[Tensor, Tensor], target: Tensor, valid: Tensor
) -> None:
    displacement = average_displacement(modes[0], target, valid)
    assert not displacement.requires_grad
    path = modes[0].detach()
    for a in range(A):
        steps = valid[a].nonzero()[:, 0].tolist()
        for k in range(K):
            total = 0.0
            for step in steps:
                total += float((path[a, k, step] - target[a, step]).norm())
            assert float(displacement[a, k]) == pytest.approx(total / max(1, len(steps)))


def test_winner_takes_all_is_the_error_and_the_likelihood_of_the_scale(
    modes: tuple[Tensor, Tensor], target: Tensor, valid: Tensor
) -> None:
    location, scale = modes
    best = torch.tensor([0, 2, 1, 1, 0])
    loss = winner_takes_all(location, scale, target, valid.float(), best)
    loss.sum().backward()
    location_slope = torch.zeros_like(location)
    scale_slope = torch.zeros_like(scale)
    for a, k in enumerate(best.tolist()):
        steps = valid[a].nonzero()[:, 0]
        share = 1 / max(1, len(steps))
        error = (location[a, k, steps] - target[a, steps]).detach()
        b = scale[a, k, steps].detach()
        expected = (error.abs() - Laplace(0.0, b).log_prob(error)).sum() * share
        torch.testing.assert_close(loss[a].detach(), expected)
        # The gradient of a location does not depend on its scale.
        location_slope[a, k, steps] = error.sign() * share
        scale_slope[a, k, steps] = (1 / b - error.abs() / b**2) * share
    torch.testing.assert_close(location.grad, location_slope)
    torch.testing.assert_close(scale.grad, scale_slope)


def test_endpoint_nll_is_torch_s_at_the_last_valid_step(
    modes: tuple[Tensor, Tensor], target: Tensor, valid: Tensor
) -> None:
    location, scale = modes
    loss = endpoint_nll(location, scale, target, last_step(valid))
    assert loss.shape == (A, K)
    assert not loss.requires_grad
    for a in range(A - 1):  # the last agent has no valid step
        end = int(valid[a].nonzero().max())
        law = Independent(Laplace(location[a, :, end], scale[a, :, end]), 1)
        torch.testing.assert_close(loss[a], -law.log_prob(target[a, end]).detach())


def test_mixture_nll_is_torch_s_with_the_posterior_as_gradient() -> None:
    location = torch.randn(A, K)
    scale = 0.1 + torch.rand(A, K)
    logits = torch.randn(A, K, requires_grad=True)
    law = MixtureSameFamily(Categorical(logits=logits), Laplace(location, scale))
    nll = -Laplace(location, scale).log_prob(torch.ones(A, 1))
    loss = mixture_nll(logits, nll)
    torch.testing.assert_close(loss, -law.log_prob(torch.ones(A)))
    loss.sum().backward()
    posterior = (logits.log_softmax(1) - nll).softmax(1)
    torch.testing.assert_close(logits.grad, (logits.softmax(1) - posterior).detach())
