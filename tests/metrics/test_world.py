"""World metrics against av2's functions, scene by scene."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from av2.datasets.motion_forecasting.eval import metrics as av2
from torch import Tensor

from tests.metrics.test_functional import random_case
from trajpred.metrics import metrics_of, world_metrics
from trajpred.metrics.world import collides


def by_av2(trajectory: np.ndarray, probability: np.ndarray, target: np.ndarray) -> list[float]:
    """The metrics of one scene in the order of ``WORLD_METRICS``."""
    fde = av2.compute_world_fde(trajectory, target)
    best = int(fde.argmin())
    return [
        av2.compute_world_ade(trajectory, target).min(),
        fde.min(),
        av2.compute_world_brier_fde(trajectory, target, probability)[best],
        av2.compute_world_misses(trajectory, target)[:, best].mean(),
        av2.compute_world_collisions(trajectory)[:, best].mean(),
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("apart", [1.0, 10.0])
def test_equals_av2(seed: int, apart: float) -> None:
    """``apart`` decides how often agents collide and miss."""
    draw = np.random.default_rng(seed)
    sizes, K, F = draw.integers(1, 7, 5), int(draw.integers(1, 7)), int(draw.integers(1, 9))
    target = draw.normal(0, apart, (sizes.sum(), F, 2))
    trajectory = target[:, None] + draw.normal(0, 1.5, (sizes.sum(), K, F, 2))
    probability = draw.dirichlet(np.ones(K), len(sizes))
    scene = np.repeat(np.arange(len(sizes)), sizes)
    given = (torch.from_numpy(x) for x in (trajectory, probability, target))
    found = world_metrics(*given, torch.ones(target.shape[:2], dtype=torch.bool), torch.from_numpy(scene))
    expected = [by_av2(trajectory[scene == i], probability[i], target[scene == i]) for i in range(len(sizes))]
    table = torch.stack([found[name] for name in (metric.name for metric in metrics_of("world"))], 1)
    np.testing.assert_allclose(table.numpy(), expected, rtol=1e-10, atol=1e-12)


def test_of_equally_good_worlds_the_more_probable_one_counts() -> None:
    path = torch.zeros(2, 2, 3, 2)
    path[1] += 10.0
    found = world_metrics(
        path, torch.tensor([[0.2, 0.8]]), path[:, 0], torch.ones(2, 3).bool(), torch.zeros(2).long()
    )
    assert found["avgBrierMinFDE"].tolist() == pytest.approx([0.04])


def test_agents_of_other_scenes_are_no_obstacles() -> None:
    paths: Tensor = random_case(0, A=3)[0][:, 0]
    same = paths[:1].expand(3, -1, -1)
    assert collides(same, torch.tensor([0, 1, 2])).tolist() == [False] * 3
    assert collides(same, torch.tensor([0, 1, 1])).tolist() == [False, True, True]
