"""ForecastMetrics: the same numbers however the agents are batched, and over two processes."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from trajpred.metrics import ForecastMetrics, average_error, final_error

A = 23
#: Agents of each update, for each of the two processes: uneven, and one of them has no focal agent.
SPLITS = ((slice(0, 4), slice(4, 5), slice(5, 17)), (slice(17, 23),))
Batch = tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Tensor]]
NAMES = ["minADE1", "minFDE1", "MR1", "brier-minFDE1", "minADE6", "minFDE6", "MR6", "brier-minFDE6"]


def batch(agents: slice = slice(None)) -> Batch:
    """The same random agents every time, some partly or wholly without a future."""
    draw = torch.Generator().manual_seed(7)
    target = torch.randn(A, 8, 2, generator=draw) * 10
    trajectory = target[:, None] + torch.randn(A, 6, 8, 2, generator=draw) * 1.5
    probability = torch.rand(A, 6, generator=draw).softmax(dim=1)
    valid = torch.rand(A, 8, generator=draw) < 0.7
    valid[3] = False
    scored = torch.rand(A, generator=draw) < 0.6
    focal = (torch.arange(A) < 16) & scored
    groups = {"focal": focal[agents], "scored": scored[agents]}
    return trajectory[agents], probability[agents], target[agents], valid[agents], groups


def computed(*slices: slice) -> dict[str, dict[str, float]]:
    metrics = ForecastMetrics()
    for agents in slices:
        metrics.update(*batch(agents))
    return metrics.compute()


def assert_same(found: dict[str, dict[str, float]], expected: dict[str, dict[str, float]]) -> None:
    """Equal up to the order in which float64 numbers were added."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-13, abs=0)


def test_means_by_group_and_name() -> None:
    trajectory, probability, target, valid, groups = batch()
    found = computed(slice(None))
    assert list(found) == ["focal", "scored", "all"]
    everyone = torch.ones(A, dtype=torch.bool)
    for group, member in (groups | {"all": everyone}).items():
        judged = member & valid.any(dim=1)
        assert list(found[group]) == ["count", *NAMES]
        assert found[group]["count"] == judged.sum()
        for k in (1, 6):
            p, top = probability.topk(k)  # no two are equal
            modes = trajectory.take_along_dim(top[..., None, None], 1)
            ade = average_error(modes, target, valid).amin(1)
            fde, best = final_error(modes, target, valid).min(1)
            brier = fde + (1 - p.take_along_dim(best[:, None], 1)[:, 0]) ** 2
            expected = {
                f"minADE{k}": ade[judged].double().mean(),
                f"minFDE{k}": fde[judged].double().mean(),
                f"MR{k}": (fde[judged] > 2).double().mean(),
                f"brier-minFDE{k}": brier[judged].double().mean(),
            }
            for name, value in expected.items():
                assert found[group][name] == pytest.approx(value.item(), rel=1e-13)
    assert found["focal"]["minADE6"] != found["scored"]["minADE6"]  # the groups do differ
    assert found["all"]["count"] == A - 1  # agent 3 has no future


def test_batching_does_not_matter() -> None:
    expected = computed(slice(None))
    assert_same(computed(*SPLITS[0], *SPLITS[1]), expected)
    assert_same(computed(*(slice(i, i + 1) for i in reversed(range(A)))), expected)
    assert_same(computed(slice(0, 0), slice(None), slice(0, 0)), expected)


def test_forward_gives_the_batch_and_keeps_the_sum() -> None:
    metrics = ForecastMetrics()
    for agents in SPLITS[0]:
        assert_same(metrics(*batch(agents)), computed(agents))
    assert_same(metrics.compute(), computed(*SPLITS[0]))
    metrics.reset()
    metrics.update(*batch(SPLITS[1][0]))
    assert_same(metrics.compute(), computed(*SPLITS[1]))


def test_sums_are_float64() -> None:
    """A float32 sum stops growing by 1 m at 2²⁴ m: fewer agents than a validation split has."""
    metrics = ForecastMetrics(ks=(1,), groups=("all",))
    one = (torch.tensor([[[[1.0, 0.0]]]]), torch.ones(1, 1), torch.zeros(1, 1, 2), torch.ones(1, 1).bool())
    far = (one[0] * 2**25, *one[1:])
    metrics.update(*far)
    metrics.update(*one)
    assert metrics.compute()["all"]["minFDE1"] == (2**25 + 1) / 2


def test_a_group_without_agents_has_no_means() -> None:
    trajectory, probability, target, valid, groups = batch()
    nobody = {name: torch.zeros_like(member) for name, member in groups.items()}
    metrics = ForecastMetrics()
    metrics.update(trajectory, probability, target, valid, nobody)
    found = metrics.compute()
    assert found["focal"] == {"count": 0}
    assert found["scored"] == {"count": 0}
    assert found["all"]["count"] == A - 1


def test_a_broken_forecast_shows_in_its_groups_only() -> None:
    trajectory, probability, target, valid, groups = batch()
    broken = int(groups["scored"].logical_and(~groups["focal"]).logical_and(valid.any(1)).nonzero()[0])
    trajectory[broken] = torch.nan
    metrics = ForecastMetrics()
    metrics.update(trajectory, probability, target, valid, groups)
    found = metrics.compute()
    assert math.isnan(found["scored"]["minADE6"])
    assert found["focal"] == pytest.approx(computed(slice(None))["focal"], rel=1e-13)


@pytest.mark.parametrize("change", [{"focal": None}, {"buses": "focal"}])
def test_the_groups_must_be_the_ones_agreed(change: dict[str, str | None]) -> None:
    *tensors, groups = batch()
    given = dict(groups)
    for name, source in change.items():
        if source is None:
            del given[name]
        else:
            given[name] = groups[source]
    with pytest.raises(ValueError, match="focal"):
        ForecastMetrics().update(*tensors, given)


def work(rank: int, folder: str) -> None:
    """One of two processes: its share of the updates, then the result over both."""
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    metrics = ForecastMetrics()
    for agents in SPLITS[rank]:
        metrics.update(*batch(agents))
    (Path(folder) / f"{rank}.json").write_text(json.dumps(metrics.compute()))
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo")
def test_two_processes_give_what_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform == "linux":
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    torch.multiprocessing.spawn(work, (str(tmp_path),), nprocs=2)
    expected = computed(slice(None))
    for rank in range(2):
        assert_same(json.loads((tmp_path / f"{rank}.json").read_text()), expected)
    assert expected["focal"]["count"] > 0
    assert computed(*SPLITS[1])["focal"] == {"count": 0}  # without the other process it would differ
