"""The losses and their terms against torch.distributions and finite loops, and their invariances."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, Laplace, MixtureSameFamily
from torch_geometric.data import HeteroData

from tests.model.small import batch_of, small_model
from trajpred.data.geometry import last_step
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import TrackCategory
from trajpred.model import Prediction
from trajpred.training.losses import (
    Labels,
    LossConfig,
    average_displacement,
    endpoint_nll,
    joint_losses,
    mixture_nll,
    mode_losses,
    winner_takes_all,
)

CONFIG = LossConfig(proposal=0.5, refinement=2.0, mode=3.0, focal=1.5, scored=1.0, others=0.25)
Losses = Callable[[Prediction, Labels, LossConfig], dict[str, Tensor]]
#: Agents, modes and steps of random terms.
A, K, F = 5, 3, 7


@pytest.fixture
def batch(real: list[Scenario]) -> HeteroData:
    batch = batch_of(real)
    batch["agent"].target_mask[::7] = False  # agents without a future
    return batch


@pytest.fixture
def prediction(batch: HeteroData) -> Prediction:
    """Modes around the truth, with different winners."""
    target = batch["agent"].target[:, None]
    agents = len(target)
    return Prediction(
        proposal=target + 5 * torch.randn(agents, 6, 1, 2),
        proposal_scale=0.5 + torch.rand(agents, 6, 60, 2),
        logits=torch.randn(agents, 6),
        trajectory=target + 5 * torch.randn(agents, 6, 1, 2),
        scale=0.5 + torch.rand(agents, 6, 60, 2),
    )


def test_agents_are_weighted_by_category_if_they_have_a_future(batch: HeteroData) -> None:
    weights = {TrackCategory.FOCAL: 1.5, TrackCategory.SCORED: 1.0}
    agent = batch["agent"]
    expected = []
    for category, mask in zip(agent.category.tolist(), agent.target_mask, strict=True):
        weight = weights.get(TrackCategory(category), 0.25)
        expected.append(weight if mask.any() else 0.0)
    assert Labels.of(batch, CONFIG).weight.tolist() == expected
    assert len(set(expected)) == 4


def test_continued_labels_weigh_less_recorded_ones_as_before(
    batch: HeteroData, prediction: Prediction
) -> None:
    """The gradient of a location is that of its label times the label's weight."""
    config = replace(CONFIG, pseudo_labels=0.25)
    path = prediction.trajectory.requires_grad_()

    def slope(recorded: int) -> Tensor:
        batch.recorded = torch.full((batch.num_graphs,), recorded)
        loss = mode_losses(prediction, Labels.of(batch, config), config)["refinement"]
        return torch.autograd.grad(loss, path)[0]

    everything = slope(60)
    some = slope(45)
    assert float(everything.abs().max()) > 0
    torch.testing.assert_close(some[:, :, :45], everything[:, :, :45])
    torch.testing.assert_close(some[:, :, 45:], 0.25 * everything[:, :, 45:])


def test_probabilities_are_learned_from_the_last_recorded_and_the_last_continued_label(
    batch: HeteroData, prediction: Prediction
) -> None:
    batch.recorded = torch.full((batch.num_graphs,), 45)
    agent = batch["agent"]
    agent.target_mask[:] = True
    modes = prediction.trajectory, prediction.scale, agent.target
    recorded = endpoint_nll(*modes, torch.full((len(agent.target),), 44))
    continued = endpoint_nll(*modes, torch.full((len(agent.target),), 59))
    share = prediction.logits.softmax(1)
    likelihood = (share * torch.exp(-recorded - 0.5 * continued)).sum(1)
    expected = np.average(-likelihood.log(), weights=Labels.of(batch, CONFIG).weight)
    config = replace(CONFIG, pseudo_label_end=0.5)
    found = mode_losses(prediction, Labels.of(batch, config), config)["mode"]
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_without_an_exponent_continued_labels_do_not_change_the_probabilities(
    batch: HeteroData, prediction: Prediction
) -> None:
    """Unless an agent has no others."""
    config = replace(CONFIG, pseudo_label_end=0.0)

    def loss() -> float:
        return float(mode_losses(prediction, Labels.of(batch, config), config)["mode"])

    batch.recorded = torch.full((batch.num_graphs,), 45)
    before = loss()
    batch["agent"].target[:, 45:] += 100.0
    assert loss() == before

    batch["agent"].target_mask[:, :45] = False
    only_continued = loss()
    batch["agent"].target[:, 45:] -= 100.0
    assert loss() != pytest.approx(only_continued)


def test_standing_agents_that_are_drawn_count_for_those_that_are_not(batch: HeteroData) -> None:
    agent = batch["agent"]
    labelled = agent.target_mask.any(1)
    distance = (agent.target.norm(dim=-1) * agent.target_mask).amax(1)
    moves = labelled & (distance >= 3.0)
    stands = labelled & (distance < 3.0)
    assert moves.any()
    assert int(stands.sum()) > 20

    labels = Labels.of(batch, LossConfig(others=1.0))
    drawn = labels.draw(1.0)
    assert drawn.agents.tolist() == labelled.nonzero()[:, 0].tolist()
    assert set(drawn.weight.tolist()) == {1.0}

    draws = 400
    total = torch.zeros_like(agent.heading)
    for _ in range(draws):
        drawn = labels.draw(0.25)
        total[drawn.agents] += drawn.weight / draws
    torch.testing.assert_close(total[moves], torch.ones(int(moves.sum())))
    assert not total[~labelled].any()
    error = math.sqrt(3.0 / (draws * int(stands.sum())))  # variance (1 - share) / share of each draw
    assert float(total[stands].mean()) == pytest.approx(1.0, abs=4 * error)


def test_an_agent_of_weight_4_counts_as_four_copies_of_it(batch: HeteroData, prediction: Prediction) -> None:
    labels = Labels.of(batch, CONFIG)
    importance = torch.ones(len(labels.agents))
    importance[::3] = 4.0
    weighed = mode_losses(prediction, labels._replace(weight=labels.weight * importance), CONFIG)
    copies = labels.agents.repeat_interleave(importance.long())
    repeated = Prediction(**{name: x[copies] for name, x in prediction.tensors.items()})
    expected = mode_losses(repeated, labels.select(copies), CONFIG)
    torch.testing.assert_close(weighed["loss"], expected["loss"])


@pytest.mark.parametrize("losses_of", [mode_losses, joint_losses], ids=["marginal", "joint"])
def test_losses_are_means_over_agents(batch: HeteroData, prediction: Prediction, losses_of: Losses) -> None:
    """Each agent has its winner; with joint futures, each scene."""
    p = prediction
    agent = batch["agent"]
    weight = Labels.of(batch, CONFIG).weight.numpy()

    def over_scene(values: np.ndarray) -> np.ndarray:
        if losses_of is mode_losses:
            return values
        means = values.copy()
        for scene in range(batch.num_graphs):
            rows = np.flatnonzero(agent.batch.numpy() == scene)
            means[rows] = np.average(values[rows], axis=0, weights=weight[rows])
        return means

    def stage(path: Tensor, scale: Tensor) -> tuple[float, float]:
        error = average_displacement(path, agent.target, agent.target_mask).numpy()
        best = over_scene(error).argmin(1)
        labels = agent.target_mask.float()
        nll = winner_takes_all(path, scale, agent.target, labels, torch.from_numpy(best)).numpy()
        least = error[range(len(best)), best]
        return np.average(nll, weights=weight), np.average(least, weights=weight)

    last = last_step(agent.target_mask)
    of_modes = endpoint_nll(p.trajectory, p.scale, agent.target, last).numpy()
    of_agents = mixture_nll(p.logits, torch.from_numpy(over_scene(of_modes)))
    proposal, _ = stage(p.proposal, p.proposal_scale)
    refinement, error = stage(p.trajectory, p.scale)
    mode = np.average(of_agents.numpy(), weights=weight)  # 0 without a label
    expected = {
        "proposal": proposal,
        "refinement": refinement,
        "mode": mode,
        "minADE": error,
        "loss": 0.5 * proposal + 2 * refinement + 3 * mode,
    }
    losses = losses_of(prediction, Labels.of(batch, CONFIG), CONFIG)
    assert losses.keys() == expected.keys()
    for name, value in expected.items():
        assert float(losses[name]) == pytest.approx(value, rel=1e-4), name


def test_the_losses_of_joint_futures_are_added_with_their_weight(real: list[Scenario]) -> None:
    batch = batch_of(real[:1])
    model = small_model(loss={"joint": 0.3})
    losses = model.losses(batch)
    labels = Labels.of(batch, model.loss)
    marginal = mode_losses(model.forecaster(batch, False), labels, model.loss)
    joint = joint_losses(model.forecaster(batch, True), labels, model.loss)
    last = labels._replace(scene=labels.scene + len(labels.scene), scenes=2 * len(labels.scene))
    torch.testing.assert_close(joint_losses(model.forecaster(batch, True), last, model.loss), joint)
    torch.testing.assert_close(losses["loss"], marginal["loss"] + 0.3 * joint["loss"])
    model.forecaster.decoder.joint = False
    torch.testing.assert_close(model.losses(batch)["loss"], marginal["loss"])


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
