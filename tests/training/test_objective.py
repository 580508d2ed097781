"""The losses of a prediction: who wins, who counts how much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from tests.model.small import batch_of, small_model
from trajpred.model import Prediction
from trajpred.scenario import Scenario, TrackCategory
from trajpred.training.losses import (
    LossConfig,
    agent_weight,
    average_displacement,
    endpoint_nll,
    mixture_nll,
    prediction_losses,
    winner_takes_all,
)

CONFIG = LossConfig(proposal=0.5, refinement=2.0, mode=3.0, focal=1.5, scored=1.0, others=0.25)
each_kind = pytest.mark.parametrize("joint", [False, True], ids=["marginal", "joint"])


@pytest.fixture
def batch(real: list[Scenario]) -> HeteroData:
    batch = batch_of(real)
    batch["agent"].target_mask[::7] = False  # some agents have no future
    return batch


@pytest.fixture
def prediction(batch: HeteroData) -> Prediction:
    """Modes scattered about the truth, so that winners differ."""
    target = batch["agent"].target[:, None]
    path = [target + 5 * torch.randn(len(target), 6, 1, 2) for _ in range(2)]
    scale = [0.5 + torch.rand(len(target), 6, 60, 2) for _ in range(2)]
    return Prediction(path[0], scale[0], torch.randn(len(target), 6), path[1], scale[1])


def test_agents_count_by_category_if_they_have_a_future(batch: HeteroData) -> None:
    weights = {TrackCategory.FOCAL: 1.5, TrackCategory.SCORED: 1.0}
    expected = [
        weights.get(TrackCategory(category), 0.25) * mask
        for category, mask in zip(
            batch["agent"].category.tolist(), batch["agent"].target_mask.any(1).tolist(), strict=True
        )
    ]
    assert agent_weight(batch, CONFIG).tolist() == expected and len(set(expected)) == 4


@each_kind
def test_losses_are_weighted_means_over_agents(
    batch: HeteroData, prediction: Prediction, joint: bool
) -> None:
    """By loops over scenes and agents: every agent has its winner, or every scene has one."""
    p, agent = prediction, batch["agent"]
    weight, truth = agent_weight(batch, CONFIG).numpy(), (agent.target, agent.target_mask)

    def over_scene(values: np.ndarray) -> np.ndarray:
        if not joint:
            return values
        out = values.copy()
        for scene in range(batch.num_graphs):
            rows = np.flatnonzero(agent.batch.numpy() == scene)
            out[rows] = np.average(values[rows], axis=0, weights=weight[rows])
        return out

    def stage(path: torch.Tensor, scale: torch.Tensor) -> tuple[float, float]:
        error = average_displacement(path, *truth).numpy()
        best = over_scene(error).argmin(1)
        nll = winner_takes_all(path, scale, *truth, torch.from_numpy(best)).numpy()
        return np.average(nll, weights=weight), np.average(error[range(len(best)), best], weights=weight)

    end = torch.from_numpy(over_scene(endpoint_nll(p.trajectory, p.scale, *truth).numpy()))
    expected = {
        "proposal": stage(p.proposal, p.proposal_scale)[0],
        "refinement": stage(p.trajectory, p.scale)[0],
        "mode": np.average(mixture_nll(p.logits, end).numpy(), weights=weight),
        "minADE": stage(p.trajectory, p.scale)[1],
    }
    expected["loss"] = 0.5 * expected["proposal"] + 2 * expected["refinement"] + 3 * expected["mode"]
    found = prediction_losses(prediction, batch, CONFIG, joint)
    assert {name: float(value) for name, value in found.items()} == pytest.approx(expected, rel=1e-4)


@each_kind
def test_what_has_no_weight_and_no_truth_changes_nothing(
    batch: HeteroData, prediction: Prediction, joint: bool
) -> None:
    before = prediction_losses(prediction, batch, CONFIG, joint)
    absent = ~batch["agent"].target_mask
    batch["agent"].target[absent] = 1e3
    path = prediction.trajectory.masked_fill(absent[:, None, :, None], -1e3)
    after = prediction_losses(replace(prediction, trajectory=path), batch, CONFIG, joint)
    for name in ("proposal", "refinement", "minADE"):
        torch.testing.assert_close(after[name], before[name])


def test_joint_losses_are_added_where_the_decoder_has_joint_modes(real: list[Scenario]) -> None:
    batch, model = batch_of(real[:1]), small_model(loss={"joint": 0.3})
    found = model.losses(batch)
    marginal, joint = (
        prediction_losses(model.forecaster(batch, kind), batch, model.loss, kind) for kind in (False, True)
    )
    torch.testing.assert_close(found["loss"], marginal["loss"] + 0.3 * joint["loss"])
    model.forecaster.decoder.joint = False
    torch.testing.assert_close(model.losses(batch)["loss"], marginal["loss"])
