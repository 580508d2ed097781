"""Whether the numbers can be trusted: rounding, far places, masks of any kind, and the same twice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from tests.conftest import ROOT
from tests.graph.scenes import moved, straight
from tests.model.small import batch_of, evaluate_as, small_model
from tests.model.test_published_encoders import each_system, small
from trajpred.benchmark.timing import own_process, use_threads
from trajpred.forecast import Forecast
from trajpred.geometry import norm
from trajpred.graph.config import FeatureConfig
from trajpred.graph.scene_graph import SceneBatch, build_batch
from trajpred.lane_map import LaneMap, Ragged
from trajpred.model import Forecaster, Prediction
from trajpred.scenario import Scenario
from trajpred.sources import argoverse1
from trajpred.store.codec import encode_batch, encode_row
from trajpred.store.decoder import PARTS, decode, views
from trajpred.training.lit_forecaster import LitForecaster

#: As far from the origin as no city frame is, metres.
VERY_FAR = (1e7, -1e7)
STEPS, OBSERVED = 110, 50


@pytest.fixture(scope="module")
def argoverse1_scenes() -> list[Scenario]:
    """Twenty of the validation scenes that ship."""
    paths = argoverse1.discover(ROOT / "datasets" / "argoverse1")["val"][:600:30]
    return [argoverse1.read_scenario(path) for path in paths]


def trained(name: str, request: pytest.FixtureRequest) -> tuple[LitForecaster, list[Scenario]]:
    """Weights that ship, and real scenes of the data they are for."""
    scenes = {"argoverse2-demo": "real", "argoverse1-small": "argoverse1_scenes"}[name]
    return Forecaster.from_pretrained(name), request.getfixturevalue(scenes)


each_trained = pytest.mark.parametrize("name", ["argoverse2-demo", "argoverse1-small"])


def in_double(model: LitForecaster, batch: SceneBatch) -> Prediction:
    """What ``model`` predicts when every number of it and of ``batch`` is a float64."""

    def wide(x: Tensor) -> Tensor:
        return x.double() if x.is_floating_point() else x

    found: Prediction = deepcopy(model).double()(deepcopy(batch).apply(wide))
    return found


@each_trained
@torch.inference_mode()
def test_float32_is_float64_to_a_tenth_of_a_millimetre(name: str, request: pytest.FixtureRequest) -> None:
    model, scenes = trained(name, request)
    batch = build_batch(scenes, model.scene)
    found, exact = model(batch), in_double(model, batch)
    assert exact.trajectory.dtype == exact.logits.dtype == torch.float64
    apart = norm(found.trajectory - exact.trajectory).amax((1, 2))  # of each agent, over modes and steps
    assert 0 < apart.quantile(0.99) < 5e-5 and apart.max() < 1e-4
    assert (found.logits.softmax(-1) - exact.logits.softmax(-1)).abs().max() < 1e-5


@torch.inference_mode()
@each_system
def test_every_system_computes_in_float64_if_its_weights_do(
    path: Path, decoder: dict[str, Any], real: list[Scenario]
) -> None:
    model, batch = small(path, **decoder).eval(), batch_of(real[:1])
    found, exact = model(batch), in_double(model, batch)
    assert {x.dtype for x in vars(exact).values() if x is not None} == {torch.float64}
    apart = float(norm(found.trajectory - exact.trajectory).max())
    assert 0 < apart < 1e-3


def stored(scenario: Scenario) -> Scenario:
    """``scenario`` as a store gives it back."""
    values, offsets = views(encode_batch([encode_row(scenario, heights=False)]))
    parts = [part[start:stop] for part, (start, stop) in zip(values, offsets.tolist(), strict=True)]
    assert len(parts) == len(PARTS)
    return decode(parts)


@each_trained
@pytest.mark.parametrize(("through_store", "within_m"), [(False, 1e-4), (True, 0.05)])
def test_ten_thousand_kilometres_away_forecasts_are_the_same(
    name: str, through_store: bool, within_m: float, request: pytest.FixtureRequest
) -> None:
    """Through a store other positions are rounded up there, by a millimetre, and that looks like motion."""
    model, here = trained(name, request)
    there = [moved(scenario, VERY_FAR, 0.0) for scenario in here]
    if through_store:
        here, there = ([stored(scenario) for scenario in scenes] for scenes in (here, there))
    forecasts: list[list[Forecast]] = [
        model.forecaster.forecast(build_batch(scenes, model.scene)) for scenes in (here, there)
    ]
    apart, moved_p = [], []
    for a, b in zip(*forecasts, strict=True):
        assert a.track_id.tolist() == b.track_id.tolist()
        apart.append(norm(b.trajectory - VERY_FAR - a.trajectory).max((1, 2)))
        moved_p.append(np.abs(b.probability - a.probability).max())
    assert np.quantile(np.concatenate(apart), 0.99) < within_m and max(moved_p) < 0.1 * within_m
    assert np.concatenate(apart).max() < 10 * within_m


@torch.inference_mode()
def test_agents_ten_kilometres_apart_are_as_exact(model: LitForecaster) -> None:
    batch = batch_of([straight(2, gap_m=1e4)])
    assert norm(model(batch).trajectory - in_double(model, batch).trajectory).max() < 1e-3


#: How an agent may have been seen, ``[T]`` each; the future is part of it.
SEEN: dict[str, Callable[[np.random.Generator], NDArray[np.bool_]]] = {
    "always": lambda random: np.ones(STEPS, bool),
    "now and then": lambda random: random.random(STEPS) < 0.3,
    "once": lambda random: np.arange(STEPS) == random.integers(STEPS),
    "now alone": lambda random: np.arange(STEPS) == OBSERVED - 1,
    "with a gap": lambda random: np.abs(np.arange(STEPS) - random.integers(STEPS)) > random.integers(1, 30),
    "then lost": lambda random: np.arange(STEPS) < random.integers(1, OBSERVED),
    "later": lambda random: np.arange(STEPS) > random.integers(OBSERVED - 2, STEPS - 1),
    "at the end of the future": lambda random: np.isin(np.arange(STEPS), (OBSERVED - 1, STEPS - 1)),
}
#: Which boundaries a lane has.
SIDES = ("none", "left", "right", "both")


def lanes(sides: list[str], random: np.random.Generator) -> LaneMap:
    """A lane for each of ``sides``; every other one is of no length."""
    centers = [random.normal(0, 20 * (i % 2), (3, 2)) + random.normal(0, 20, 2) for i in range(len(sides))]
    left, right = (
        Ragged.from_rows(
            [
                c + np.array([0, dy]) if side in (name, "both") else []
                for c, side in zip(centers, sides, strict=True)
            ],
            2,
        )
        for name, dy in (("left", 1.7), ("right", -1.7))
    )
    following = [[(i + 1) % len(sides)] for i in range(len(sides))]  # one lane alone follows itself
    bare = LaneMap.from_centerlines(centers, successors=following)
    return replace(bare, left_boundary=left, right_boundary=right)


@st.composite
def scenes(draw: st.DrawFn) -> Scenario:
    """Up to four agents seen in any way, standing or moving, in one place or not, and up to three lanes."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    patterns = draw(st.lists(st.sampled_from([*SEEN]), min_size=1, max_size=4))
    valid = np.stack([SEEN[name](random) for name in patterns])
    valid[0, OBSERVED - 1] |= not valid[0, :OBSERVED].any()  # the focal agent has been seen
    valid = valid[valid.any(1)]
    start = random.normal(0, draw(st.sampled_from([0.0, 20.0])), (len(valid), 1, 2))
    speed = random.normal(0, draw(st.sampled_from([0.0, 10.0])), (len(valid), 1, 2))
    return Scenario.from_arrays(
        start + speed * np.arange(STEPS)[:, None] / 10,
        valid=valid,
        num_observed=OBSERVED,
        map=lanes(draw(st.lists(st.sampled_from(SIDES), max_size=3)), random),
    )


def assert_finite(model: LitForecaster, batch: SceneBatch) -> None:
    """Predictions, losses, and the gradients of all weights."""
    model.zero_grad()
    prediction, losses = model(batch), model.losses(batch)
    losses["loss"].backward()
    values = [x for x in vars(prediction).values() if x is not None]
    assert all(x.isfinite().all() for x in (*values, *losses.values()))
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("evaluation", ["edges", "dense"])
@settings(max_examples=30, deadline=None)
@given(chosen=st.lists(scenes(), min_size=1, max_size=2))
def test_whatever_was_seen_everything_stays_finite(evaluation: str, chosen: list[Scenario]) -> None:
    model = evaluate_as(small_model().train(), evaluation)
    assert_finite(model, batch_of(chosen))


@each_system
@settings(max_examples=5, deadline=None)
@given(scene=scenes())
def test_so_it_does_in_every_system(path: Path, decoder: dict[str, Any], scene: Scenario) -> None:
    assert_finite(small(path, **decoder).train(), batch_of([scene]))


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_computed_twice_is_the_same_to_the_last_bit(threads: int, real: list[Scenario]) -> None:
    """With the same number of threads: two forwards, and two trainings of two steps with their dropout."""
    batch = batch_of(real)

    def trained() -> list[Tensor]:
        model = small_model()
        with torch.inference_mode():
            found = model.forecaster(batch, joint=True)
        torch.manual_seed(1)
        optimizer = torch.optim.AdamW(model.train().parameters(), 1e-3)
        for _ in range(2):
            optimizer.zero_grad()
            model.losses(batch)["loss"].backward()
            optimizer.step()
        return [*vars(found).values(), *model.state_dict().values()]

    with use_threads(threads):
        first, second = trained(), trained()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


#: MB a process may hold at most: a forward, and a training step with its optimiser.
_PEAK = """
import re, sys
from pathlib import Path
import numpy as np, torch
from trajpred import Scenario
from trajpred.benchmark.model import DEFAULT_MODEL
from trajpred.graph.config import FeatureConfig, SceneConfig
from trajpred.graph.scene_graph import build_batch
from trajpred.training.lit_forecaster import LitForecaster
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
agents, lanes, most_agents, most_lanes = map(int, sys.argv[1:])
random = np.random.default_rng(0)
start, velocity = random.uniform(-80, 80, (agents, 1, 2)), random.normal(size=(agents, 1, 2))
center = random.uniform(-80, 80, (lanes, 1, 2)) + [[-5.0, 0], [5, 0]]
track = start + velocity * np.arange(110)[:, None] / 10
scene = Scenario.from_arrays(track, num_observed=50, map=list(center))
model, before = LitForecaster.build(DEFAULT_MODEL), peak()
batch = build_batch([scene], SceneConfig(FeatureConfig(max_agents=most_agents, max_lanes=most_lanes)))
with torch.inference_mode():
    model.eval()(batch)
forward = peak()
optimizer = torch.optim.AdamW(model.train().parameters())
model.losses(batch)["loss"].backward()
optimizer.step()
print([batch["agent"].num_nodes, batch["lane"].num_nodes, forward - before, peak() - before])
"""
LIMITS = FeatureConfig()


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
@pytest.mark.parametrize(
    ("size", "limits", "forward_mb", "step_mb"),
    [
        ((1, 0), (LIMITS.max_agents, LIMITS.max_lanes), 50, 100),
        ((500, 2000), (LIMITS.max_agents, LIMITS.max_lanes), 150, 450),
        pytest.param((500, 2000), (500, 2000), 1200, 4000, marks=pytest.mark.slow),
    ],
)
def test_memory_of_one_scene(
    size: tuple[int, int], limits: tuple[int, int], forward_mb: float, step_mb: float
) -> None:
    agents, lanes, forward, step = own_process(_PEAK, *size, *limits)
    assert (agents, lanes) == (min(size[0], limits[0]), min(size[1], limits[1]))
    assert forward < forward_mb and step < step_mb
