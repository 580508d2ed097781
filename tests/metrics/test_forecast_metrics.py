"""ForecastMetrics: the same means for any batches, and over two processes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from trajpred.metrics import ForecastMetrics, agent_metrics, columns_of, joint_metrics

A = 23
#: The K of the headline metrics.
COLUMNS = [column for column in columns_of("displacement") if column.metric.headline]
#: Agents of each update of a process.
FIRST_PROCESS = (slice(0, 4), slice(4, 5), slice(5, 17))
#: Those of the only update of another process, which has no focal agent.
SECOND_PROCESS = slice(17, 23)
Batch = tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Tensor]]


def batch(agents: slice = slice(None)) -> Batch:
    """The same random agents every time, some partly or entirely without a future."""
    draw = torch.Generator().manual_seed(7)
    target = torch.randn(A, 8, 2, generator=draw) * 10
    trajectory = target[:, None] + torch.randn(A, 6, 8, 2, generator=draw) * 1.5
    probability = torch.rand(A, 6, generator=draw).softmax(dim=1)
    valid = torch.rand(A, 8, generator=draw) < 0.7
    valid[3] = False
    scored = torch.rand(A, generator=draw) < 0.6
    focal = (torch.arange(A) < 16) & scored
    moving = valid.all(dim=1) & (target[:, -1].norm(dim=1) >= 3)
    groups = {"focal": focal[agents], "scored": scored[agents], "moving": moving[agents]}
    return trajectory[agents], probability[agents], target[agents], valid[agents], groups


def computed(*slices: slice) -> dict[str, dict[str, float]]:
    metrics = ForecastMetrics()
    for agents in slices:
        metrics.update(*batch(agents))
    return metrics.compute()


def assert_same(means: dict[str, dict[str, float]], expected: dict[str, dict[str, float]]) -> None:
    """Equal up to the order of addition of float64 numbers."""
    assert means.keys() == expected.keys()
    for name, values in expected.items():
        assert means[name] == pytest.approx(values, rel=1e-13, abs=0)


def test_means_are_those_of_the_agents_of_each_group() -> None:
    trajectory, probability, target, valid, groups = batch()
    means = computed(slice(None))
    metrics = agent_metrics(trajectory, probability, target, valid, columns=COLUMNS)
    groups["all"] = torch.ones(A, dtype=torch.bool)
    for group, member in groups.items():
        counted = member & valid.any(dim=1)
        expected = {name: values[counted].double().mean().item() for name, values in metrics.items()}
        expected["count"] = int(counted.sum())
        assert means[group] == pytest.approx(expected, rel=1e-13)
    assert means["all"]["count"] == A - 1  # agent 3 has no future


def test_a_probability_that_is_not_finite_leaves_no_mode_the_most_probable() -> None:
    """As a trajectory that is not finite does, it makes the means of its groups NaN, and no other agent's."""
    trajectory, probability, target, valid, groups = batch()
    expected = agent_metrics(trajectory, probability, target, valid, columns=COLUMNS)
    agent = int(groups["focal"].nonzero()[0])
    unchanged = torch.arange(A) != agent
    for value in (torch.nan, torch.inf):
        probability[agent, 2] = value
        metrics = agent_metrics(trajectory, probability, target, valid, columns=COLUMNS)
        for name, values in metrics.items():
            assert values[agent].isnan()
            before = expected[name][unchanged]
            torch.testing.assert_close(values[unchanged], before, equal_nan=True, rtol=0, atol=0)
        means = ForecastMetrics()
        means.update(trajectory, probability, target, valid, groups)
        focal = means.compute()["focal"]
        for name in means.names:
            assert math.isnan(focal[name])


def test_a_scene_with_such_a_probability_has_no_best_joint_mode() -> None:
    trajectory, _, target, valid, _ = batch()
    valid[3] = True
    scene = (torch.arange(A) >= 9).long()
    probability = torch.full((2, 6), 1 / 6)
    expected = joint_metrics(trajectory, probability, target, valid, scene)
    probability[1, 4] = torch.nan
    for name, values in joint_metrics(trajectory, probability, target, valid, scene).items():
        assert values[0] == expected[name][0]
        assert values[1].isnan()


def test_means_do_not_depend_on_batches_or_processes() -> None:
    expected = computed(slice(None))
    assert_same(computed(*FIRST_PROCESS, SECOND_PROCESS), expected)
    single_agents = [slice(i, i + 1) for i in reversed(range(A))]
    assert_same(computed(*single_agents, slice(0, 0)), expected)
    first = ForecastMetrics()
    for agents in FIRST_PROCESS:
        assert_same(first(*batch(agents)), computed(agents))  # calling returns the means of the batch
    second = ForecastMetrics()
    second.update(*batch(SECOND_PROCESS))
    first.merge_state(second)
    assert_same(first.compute(), expected)


def test_sums_are_float64() -> None:
    """A float32 sum stops growing by 1 m at 2²⁴ m: fewer agents than a validation split has."""
    metrics = ForecastMetrics(groups=("all",))
    metre = torch.tensor([[[[1.0, 0.0]]]])
    for trajectory in (metre * 2**25, metre):
        metrics.update(trajectory, torch.ones(1, 1), torch.zeros(1, 1, 2), torch.ones(1, 1).bool())
    assert metrics.compute()["all"]["minFDE1"] == (2**25 + 1) / 2


def test_non_finite_forecasts_make_their_groups_nan_and_empty_groups_have_no_means() -> None:
    trajectory, probability, target, valid, groups = batch()
    broken = int((groups["scored"] & ~groups["focal"] & valid.any(1)).nonzero()[0])
    trajectory[broken] = torch.nan
    metrics = ForecastMetrics()
    metrics.update(trajectory, probability, target, valid, groups)
    assert math.isnan(metrics.compute()["scored"]["minADE6"])
    assert metrics.compute()["focal"] == pytest.approx(computed(slice(None))["focal"], rel=1e-13)
    assert computed(SECOND_PROCESS)["focal"] == {"count": 0}
    with pytest.raises(ValueError, match="focal"):
        metrics.update(trajectory, probability, target, valid, {"scored": groups["scored"]})
