"""The forecaster on real scenes: its symmetries, its two evaluations, and scenes with next to nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tests.graph.scenes import FAR, QUARTER, moved, other_future, straight, with_tracks
from tests.model.small import (
    assert_same,
    batch_of,
    evaluate_as,
    largest_change,
    small_config,
    small_model,
)
from trajpred.errors import DataError
from trajpred.lane_map import LaneMap
from trajpred.predictors.motion import constant_velocity
from trajpred.scenario import Scenario
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.training.losses import prediction_losses

each_evaluation = pytest.mark.parametrize("evaluation", ["edges", "dense"])
each_kind = pytest.mark.parametrize("joint", [False, True], ids=["marginal", "joint"])


@each_evaluation
@each_kind
@pytest.mark.parametrize("angle", [QUARTER, -2.0])
def test_moving_and_turning_the_scene_changes_nothing_but_the_frame(
    model: LitForecaster, real: list[Scenario], evaluation: str, angle: float, joint: bool
) -> None:
    forecaster = evaluate_as(model, evaluation).forecaster
    before, after = (batch_of(s) for s in (real, [moved(s, FAR, angle) for s in real]))
    with torch.inference_mode():
        assert_same(forecaster(after, joint), forecaster(before, joint))
    turn = np.exp(1j * angle)
    forecasts = (forecaster.forecast(batch, joint) for batch in (before, after))
    for a, b in zip(*forecasts, strict=True):
        expected = (a.trajectory @ [1, 1j]) * turn + complex(*FAR)
        np.testing.assert_allclose(b.trajectory @ [1, 1j], expected, rtol=0, atol=5e-3)
        np.testing.assert_allclose(b.probability, a.probability, rtol=0, atol=1e-3)


def test_what_is_moved_alone_is_noticed(model: LitForecaster, real: list[Scenario]) -> None:
    """The test above has teeth: the model sees the map, and where it lies."""
    near = (0.5, 0.5)
    with torch.inference_mode():
        before = model(batch_of(real))
        for other in (
            [moved(s, near, 0.0, map_too=False) for s in real],
            [replace(s, map=LaneMap()) for s in real],
        ):
            assert largest_change(model(batch_of(other)), before) > 0.02
        batch = batch_of(real)
        batch["lane"].points[::2] += 0.3
        assert largest_change(model(batch), before) > 0.02


@pytest.mark.parametrize(("pose", "seen"), [("bias", True), ("values", True), ("none", False)])
def test_where_relative_poses_enter(real: list[Scenario], pose: str, seen: bool) -> None:
    """A neighbour's pose changes what an agent hears if poses enter anywhere, and nothing if they do not."""
    config = small_config()
    for part in ("encoder", "decoder"):
        config[part]["init_args"] |= {"pose": pose}
    config["decoder"]["init_args"] |= {"refine_layers": 0, "propose_radius_m": 1e6}
    torch.manual_seed(0)
    model, batch = LitForecaster.build(config).eval(), batch_of(real[:1])
    with torch.inference_mode():
        before = model(batch)
        batch["agent"].heading[1] += 0.5
        batch["agent"].position[1] += 1.0
        assert (largest_change(model(batch), before) > 1e-3) == seen


def test_the_future_is_not_seen(model: LitForecaster, real: list[Scenario]) -> None:
    with torch.inference_mode():
        before, after = (model(batch_of(s)) for s in (real, [other_future(s) for s in real]))
    assert largest_change(after, before) == 0


@each_kind
def test_dense_equals_edges(model: LitForecaster, real: list[Scenario], joint: bool) -> None:
    found, batch = {}, batch_of(real)
    for evaluation in ("edges", "dense"):
        model.zero_grad()
        prediction = evaluate_as(model, evaluation).forecaster(batch, joint)
        prediction_losses(prediction, batch, model.loss, joint)["loss"].backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        found[evaluation] = prediction, gradients
    assert_same(found["dense"][0], found["edges"][0])
    for name, gradient in found["edges"][1].items():
        tolerance = 1e-3 * float(gradient.abs().max()) + 1e-5
        torch.testing.assert_close(found["dense"][1][name], gradient, rtol=0, atol=tolerance)


@each_evaluation
@each_kind
def test_a_batch_equals_its_scenes_one_by_one(
    model: LitForecaster, real: list[Scenario], evaluation: str, joint: bool
) -> None:
    scenes = [*real, straight(2)]  # the last one has no map
    forecaster = evaluate_as(model, evaluation).forecaster
    with torch.inference_mode():
        batch = batch_of(scenes)
        together, ptr = forecaster(batch, joint), batch["agent"].ptr
        for i, scene in enumerate(scenes):
            assert_same(forecaster(batch_of([scene]), joint), together, slice(ptr[i], ptr[i + 1]))


@each_evaluation
@each_kind
def test_the_order_of_agents_does_not_matter(
    model: LitForecaster, real: list[Scenario], evaluation: str, joint: bool
) -> None:
    forecaster = evaluate_as(model, evaluation).forecaster
    order = np.random.default_rng(0).permutation(len(real[0].tracks))
    before, after = batch_of(real[:1]), batch_of([with_tracks(real[0], order)])
    row = [before["agent"].track_id.tolist().index(name) for name in after["agent"].track_id.tolist()]
    assert row != sorted(row)
    with torch.inference_mode():
        assert_same(forecaster(after, joint), forecaster(before, joint), torch.tensor(row))


@each_evaluation
def test_heads_that_say_nothing_leave_constant_velocity(real: list[Scenario], evaluation: str) -> None:
    model = evaluate_as(small_model(), evaluation)
    for head in (model.forecaster.decoder.propose_head, model.forecaster.decoder.refine_head):
        nn.init.zeros_(head.points[-1].weight)
        nn.init.zeros_(head.points[-1].bias)
    for scenario, forecast in zip(real, model.forecaster.forecast(batch_of(real)), strict=True):
        expected = constant_velocity(scenario)
        row = expected.rows(forecast.track_id)
        assert scenario.focal_id in forecast.track_id and forecast.scenario_id == scenario.scenario_id
        for name in ("trajectory", "speed"):
            a, b = getattr(forecast, name), getattr(expected, name)[row]
            np.testing.assert_allclose(a, np.broadcast_to(b, a.shape), rtol=0, atol=5e-3, err_msg=name)
        turn = np.exp(1j * forecast.heading) / np.exp(1j * expected.heading[row])
        np.testing.assert_allclose(turn, 1, atol=0.05)
        assert forecast.scale is not None
        np.testing.assert_allclose(forecast.scale, 1.0)


def first_step_only(s: Scenario) -> Scenario:
    valid = s.tracks.valid.copy()
    valid[:, : s.num_observed - 1] = False
    return with_tracks(replace(s, tracks=replace(s.tracks, valid=valid)), np.flatnonzero(valid.any(1)))


def no_future(s: Scenario) -> Scenario:
    valid = s.tracks.valid.copy()
    valid[:, s.num_observed :] = False
    return replace(s, tracks=replace(s.tracks, valid=valid))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@each_evaluation
def test_half_precision_predicts_much_the_same(
    model: LitForecaster, real: list[Scenario], evaluation: str, dtype: torch.dtype
) -> None:
    batch, forecaster = batch_of(real), evaluate_as(model, evaluation).forecaster
    with torch.inference_mode():
        before = forecaster(batch, joint=True)
        with torch.autocast("cpu", dtype):
            after = forecaster(batch, joint=True)
    assert largest_change(after, before) < 0.5
    assert {x.dtype for x in vars(after).values()} == {torch.float32}


SPARSE: dict[str, Callable[[list[Scenario]], list[Scenario]]] = {
    "no lanes": lambda real: [replace(real[0], map=LaneMap())],
    "no lanes in one scene": lambda real: [real[0], replace(real[0], map=LaneMap())],
    "one agent": lambda real: [with_tracks(real[0], np.array([real[0].focal]))],
    "one agent and no lanes": lambda _: [straight(1)],
    "a history of one step": lambda real: [first_step_only(real[0])],
    "no future": lambda real: [no_future(real[0])],
    "all in one place": lambda _: [straight(4, gap_m=0.0, map=[[[0, 0], [9, 0]], [[0, 0], [9, 0]]])],
}


@each_evaluation
@pytest.mark.parametrize("case", SPARSE)
def test_scenes_with_next_to_nothing_stay_finite(real: list[Scenario], case: str, evaluation: str) -> None:
    model, batch = evaluate_as(small_model().train(), evaluation), batch_of(SPARSE[case](real))
    prediction = model(batch)
    losses = model.losses(batch)
    losses["loss"].backward()
    assert all(value.isfinite().all() for value in (*vars(prediction).values(), *losses.values()))
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert case != "no future" or losses["loss"] == 0


def test_data_of_other_lengths_are_refused_in_one_sentence(model: LitForecaster) -> None:
    x = np.stack((np.arange(50.0), np.zeros(50)), -1)[None]
    with pytest.raises(DataError) as error:
        model(batch_of([Scenario.from_arrays(x, num_observed=20)]))
    assert str(error.value) == "this model predicts 60 steps from 50, the data have 30 from 20"


def test_data_without_a_future_are_predicted(model: LitForecaster) -> None:
    x = np.stack((np.arange(50.0), np.zeros(50)), -1)[None]
    batch = batch_of([Scenario.from_arrays(x, num_observed=50)])
    assert model(batch).trajectory.shape == (1, 6, 60, 2)
    [forecast] = model.forecaster.forecast(batch)
    assert forecast.trajectory.shape == (1, 6, 60, 2)
