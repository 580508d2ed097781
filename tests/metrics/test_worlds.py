"""World metrics against av2's functions, scene by scene."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from av2.datasets.motion_forecasting.eval import metrics as av2

from trajpred.metrics import world_metrics
from trajpred.metrics.compute import collides


def by_av2(trajectory: np.ndarray, probability: np.ndarray, target: np.ndarray) -> dict[str, float]:
    """The metrics of one scene."""
    fde = av2.compute_world_fde(trajectory, target)
    best = int(fde.argmin())
    return {
        "avgMinADE": av2.compute_world_ade(trajectory, target).min(),
        "avgMinFDE": fde.min(),
        "avgBrierMinFDE": av2.compute_world_brier_fde(trajectory, target, probability)[best],
        "actorMR": av2.compute_world_misses(trajectory, target)[:, best].mean(),
        "actorCR": av2.compute_world_collisions(trajectory)[:, best].mean(),
    }


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("apart", [1.0, 10.0])
def test_world_metrics_equal_av2(seed: int, apart: float) -> None:
    """``apart`` determines how often agents collide and miss."""
    draw = np.random.default_rng(seed)
    sizes, K, F = draw.integers(1, 7, 5), int(draw.integers(1, 7)), int(draw.integers(1, 9))
    target = draw.normal(0, apart, (sizes.sum(), F, 2))
    trajectory = target[:, None] + draw.normal(0, 1.5, (sizes.sum(), K, F, 2))
    probability = draw.dirichlet(np.ones(K), len(sizes))
    scene = np.repeat(np.arange(len(sizes)), sizes)
    given = (torch.from_numpy(x) for x in (trajectory, probability, target))
    found = world_metrics(*given, torch.ones(target.shape[:2], dtype=torch.bool), torch.from_numpy(scene))
    for i in range(len(sizes)):
        expected = by_av2(trajectory[scene == i], probability[i], target[scene == i])
        assert {name: x[i].item() for name, x in found.items()} == pytest.approx(expected, rel=1e-10)


def test_of_equally_good_worlds_the_more_probable_one_counts() -> None:
    path = torch.zeros(2, 2, 3, 2)
    path[1] += 10.0
    valid, scene = torch.ones(2, 3).bool(), torch.zeros(2).long()
    found = world_metrics(path, torch.tensor([[0.2, 0.8]]), path[:, 0], valid, scene)
    assert found["avgBrierMinFDE"].tolist() == pytest.approx([0.04])


def test_misses_and_collisions_are_those_of_the_world_of_least_error_whatever_its_probability() -> None:
    """As in av2: the improbable world without an error counts, not the probable one that is a little off."""
    path = torch.tensor([[0.0, 0.5], [30.0, 0.5]])[..., None, None].repeat(1, 1, 3, 2)
    target = torch.tensor([0.0, 30.0])[:, None, None].repeat(1, 3, 2)
    valid, scene = torch.ones(2, 3).bool(), torch.zeros(2).long()
    found = world_metrics(path, torch.tensor([[0.1, 0.9]]), target, valid, scene)
    assert found["avgBrierMinFDE"].item() == pytest.approx(0.81)
    assert found["actorMR"].item() == found["actorCR"].item() == 0


def test_agents_of_different_scenes_do_not_collide() -> None:
    same = torch.zeros(3, 4, 2)
    assert collides(same, torch.tensor([0, 1, 2])).tolist() == [False] * 3
    assert collides(same, torch.tensor([0, 1, 1])).tolist() == [False, True, True]
