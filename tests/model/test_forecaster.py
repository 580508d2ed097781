"""The forecaster on real scenes: invariances, equal evaluations, sparse scenes, and rejected input."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.loader import DataLoader

from tests.conftest import rejects
from tests.model.small import assert_same, batch_of, evaluate_as, largest_change, small_config, small_model
from tests.scenes import FAR, QUARTER, assert_same_forecasts, moved, other_future, straight, with_tracks
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.features.scene_graph import build_batch
from trajpred.model import Forecaster, HeadDecoder, Prediction, SceneDecoder, SceneEncoder, TokenEncoder
from trajpred.predictors.baselines import constant_velocity
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.training.losses import Labels, joint_losses, mode_losses


@pytest.mark.parametrize("evaluation", ["edges", "dense"])
@pytest.mark.parametrize("angle", [QUARTER, -2.0])
def test_a_scene_alone_moved_and_turned_has_the_forecast_that_it_has_in_a_batch_moved_and_turned(
    model: LitForecaster, real: list[Scenario], evaluation: str, angle: float
) -> None:
    there = [*(moved(scenario, FAR, angle) for scenario in real), straight(2)]
    forecaster = evaluate_as(model, evaluation).forecaster
    batch = batch_of([*real, straight(2)])  # the last one has no map, and stays where it is
    ptr = batch["agent"].ptr
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    for joint in (False, True):
        with torch.inference_mode():
            together = forecaster(batch, joint)
        for i, forecast in enumerate(forecaster.forecast(batch, joint)):
            alone = batch_of([there[i]])
            with torch.inference_mode():
                assert_same(forecaster(alone, joint), together, slice(ptr[i], ptr[i + 1]))
            [found] = forecaster.forecast(alone, joint)
            expected = forecast.trajectory @ turn.T + FAR if i < len(real) else forecast.trajectory
            np.testing.assert_allclose(found.trajectory, expected, rtol=0, atol=5e-3)
            np.testing.assert_allclose(found.probability, forecast.probability, rtol=0, atol=1e-3)


def test_the_prediction_depends_on_the_map_and_its_pose(model: LitForecaster, real: list[Scenario]) -> None:
    """The invariance above is not met by ignoring the input."""
    beside_the_map = moved(real[0], (0.5, 0.5), 0.0, map_too=False)
    without_map = replace(real[0], map=LaneMap())
    with torch.inference_mode():
        before = model(batch_of(real[:1]))
        for changed in (beside_the_map, without_map):
            assert largest_change(model(batch_of([changed])), before) > 0.02
        batch = batch_of(real)
        before = model(batch)
        batch["lane"].points[::2] += 1.0
        assert largest_change(model(batch), before) > 0.02


@pytest.mark.parametrize(("pose", "used"), [("bias", True), ("values", True), ("none", False)])
def test_relative_poses_enter_where_the_config_says(real: list[Scenario], pose: str, used: bool) -> None:
    config = small_config()
    for part in ("encoder", "decoder"):
        config[part]["init_args"] |= {"pose": pose}
    config["decoder"]["init_args"] |= {"refine_layers": 0, "propose_radius_m": 1e6}
    torch.manual_seed(0)
    model = LitForecaster.build(config).eval()
    batch = batch_of(real[:1])
    with torch.inference_mode():
        before = model(batch)
        batch["agent"].heading[1] += 0.5
        batch["agent"].position[1] += 1.0
        assert (largest_change(model(batch), before) > 1e-3) == used


def test_the_future_does_not_enter_the_prediction(model: LitForecaster, real: list[Scenario]) -> None:
    with torch.inference_mode():
        before = model(batch_of(real))
        after = model(batch_of([other_future(s) for s in real]))
    assert largest_change(after, before) == 0


@pytest.mark.parametrize("joint", [False, True], ids=["marginal", "joint"])
def test_dense_and_edge_evaluation_agree_in_values_and_gradients(
    model: LitForecaster, real: list[Scenario], joint: bool
) -> None:
    batch = batch_of(real)

    def evaluate(evaluation: str) -> tuple[Prediction, dict[str, Tensor]]:
        model.zero_grad()
        prediction = evaluate_as(model, evaluation).forecaster(batch, joint)
        losses_of = joint_losses if joint else mode_losses
        losses_of(prediction, Labels.of(batch, model.loss), model.loss)["loss"].backward()
        named = model.named_parameters()
        return prediction, {name: p.grad.clone() for name, p in named if p.grad is not None}

    expected, gradients = evaluate("edges")
    prediction, dense_gradients = evaluate("dense")
    assert_same(prediction, expected)
    for name, gradient in gradients.items():
        tolerance = 1e-3 * float(gradient.abs().max()) + 1e-5
        torch.testing.assert_close(dense_gradients[name], gradient, rtol=0, atol=tolerance)


def test_the_order_of_agents_does_not_matter(model: LitForecaster, real: list[Scenario]) -> None:
    order = np.random.default_rng(0).permutation(len(real[0].tracks))
    before = batch_of(real[:1])
    after = batch_of([with_tracks(real[0], order)])
    names = before["agent"].track_id.tolist()
    row = [names.index(name) for name in after["agent"].track_id.tolist()]
    assert row != sorted(row)
    with torch.inference_mode():
        for joint in (False, True):
            prediction = model.forecaster(after, joint)
            expected = model.forecaster(before, joint)
            assert_same(prediction, expected, torch.tensor(row))


def test_zero_offsets_predict_constant_velocity_in_the_city_frame(real: list[Scenario]) -> None:
    model = small_model()
    for head in (model.forecaster.decoder.propose_head, model.forecaster.decoder.refine_head):
        nn.init.zeros_(head.points[-1].weight)
        nn.init.zeros_(head.points[-1].bias)
    for scenario, forecast in zip(real, model.forecaster.forecast(batch_of(real)), strict=True):
        expected = constant_velocity(scenario)
        row = expected.rows(forecast.track_id)
        assert scenario.focal_id in forecast.track_id
        assert forecast.scenario_id == scenario.scenario_id
        for name in ("trajectory", "speed"):
            a = getattr(forecast, name)
            b = getattr(expected, name)[row]
            np.testing.assert_allclose(a, np.broadcast_to(b, a.shape), rtol=0, atol=5e-3, err_msg=name)
        turned = forecast.heading - expected.heading[row]
        np.testing.assert_allclose(np.sin(turned), 0, atol=0.05)
        assert (np.cos(turned) > 0).all()
        np.testing.assert_allclose(forecast.scale, 1.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_changes_little_and_returns_float32(
    model: LitForecaster, real: list[Scenario], dtype: torch.dtype
) -> None:
    batch = batch_of(real)
    with torch.inference_mode():
        before = model.forecaster(batch, joint=True)
        with torch.autocast("cpu", dtype):
            after = model.forecaster(batch, joint=True)
    assert largest_change(after, before) < 0.5
    assert {x.dtype for x in after.tensors.values()} == {torch.float32}


def test_other_lengths_and_time_steps_are_rejected(model: LitForecaster) -> None:
    for scenario, message in (
        (straight(1).window(20, 30), "^this model predicts 60 steps from 50, the data have 30 from 20"),
        (straight(1, step_s=0.2), r"expects a time step of 0\.1 s, the data have one of 0\.2 s"),
    ):
        rejects(message, model.forecaster.forecast, batch_of([scenario]))


@pytest.mark.parametrize("encoder", ["SceneEncoder", "GraphTransformerSceneEncoder", "StarSceneEncoder"])
def test_batches_of_pyg_s_loader_are_forecast_like_ours(real: list[Scenario], encoder: str) -> None:
    forecaster = small_model(
        encoder={"class_path": f"trajpred.model.{encoder}", "init_args": {"dim": 32, "heads": 4}}
    ).forecaster.eval()
    ours = build_batch(real, forecaster.scene)
    scenes = [build_batch([scenario], forecaster.scene) for scenario in real]
    [theirs] = DataLoader(scenes, batch_size=3)
    for store, other in zip(ours.stores, theirs.stores, strict=True):
        for name, value in store.items():
            if name != "track" and isinstance(value, Tensor):  # rows of the batch's tracks; of the scene's
                # Lanes are resampled along the whole batch.
                tolerance = 1e-6 if name == "points" else 0.0
                torch.testing.assert_close(value, other[name], rtol=0, atol=tolerance)
    assert theirs.num_graphs == 3
    assert theirs.names == ours.names == [scenario.scenario_id for scenario in real]
    for joint in (False, True):
        forecasts = forecaster.forecast(ours, joint)
        assert_same_forecasts(forecasts, forecaster.forecast(theirs, joint), atol=2e-3, of_probability=1e-3)
    weights = forecaster.encoder.attention_weights(ours)
    for a, b in zip(weights, forecaster.encoder.attention_weights(theirs), strict=True):
        assert a.track_id.tolist() == b.track_id.tolist()
        np.testing.assert_allclose(a.weight, b.weight, rtol=0, atol=1e-4)
    [nested] = DataLoader([ours, ours], batch_size=2)
    rejects("batch': holds batches of several scenes", forecaster.forecast, nested)


class NothingReturned(TokenEncoder):
    def interact(self, x: Tensor, graph: Any) -> Any:
        x + x.mean(0)


class AnotherShape(TokenEncoder):
    def interact(self, x: Tensor, graph: Any) -> Tensor:
        return x[:-1]


class TupleDecoder(SceneDecoder):
    def forward(self, tokens: Any, batch: Any, joint: bool = False, agents: Tensor | None = None) -> Any:
        path = torch.zeros(len(tokens.agent), self.modes, self.horizon, 2)
        return path, path[:, :, 0, 0]


class WithoutAgents(SceneDecoder):
    def forward(self, tokens: Any, batch: Any, joint: bool = False) -> Any:  # type: ignore[override]
        raise AssertionError


class Returning(SceneDecoder):
    """Returns futures of the agents that are asked for, and then what a test replaces."""

    def __init__(self, horizon: int = 60, dim: int = 16, modes: int = 6) -> None:
        super().__init__(horizon, dim, modes)
        self.replaced: dict[str, Any] = {}

    def forward(
        self, tokens: Any, batch: Any, joint: bool = False, agents: Tensor | None = None
    ) -> Prediction:
        count = len(tokens.agent if agents is None else agents)
        path = torch.ones(count, self.modes, self.horizon, 2)
        fields = {"trajectory": path, "scale": path, "logits": path[:, :, 0, 0]}
        return Prediction(**fields | self.replaced)


PATH = torch.ones(4, 6, 60, 2)


@pytest.mark.parametrize(
    ("replaced", "sentence"),
    [
        ({"trajectory": torch.ones(9, 6, 60, 2)}, "trajectory [agents, modes, horizon, 2] = [4, 6, 60, 2], "),
        ({"trajectory": PATH[:, :, :-1]}, "returned [4, 6, 59, 2], see docs/how-to/own-model.md"),
        ({"scale": None}, "must return scale [agents, modes, horizon, 2] = [4, 6, 60, 2], returned none"),
        ({"scale": PATH[..., 0]}, "returned [4, 6, 60]"),
        ({"logits": PATH[:, :5, 0, 0]}, "must return logits [agents, modes] = [4, 6], returned [4, 5]"),
        ({"proposal": PATH[:2]}, "must return proposal [agents, modes, horizon, 2]"),
        ({"groups": 2}, "= [4, 12, 60, 2], returned [4, 6, 60, 2]"),
        ({"trajectory": PATH * math.nan}, "returned trajectory that is not finite"),
        ({"scale": -PATH}, "returned scale that is not positive"),
    ],
)
def test_decoder_outputs_are_checked(replaced: dict[str, Any], sentence: str, real: list[Scenario]) -> None:
    decoder = Returning().train()
    batch = batch_of(real[:1])
    tokens = SceneEncoder(16, 2, 1).encode(batch)
    agents = torch.arange(4)
    decoder.replaced = replaced
    caught = rejects("", decoder, tokens, batch, agents=agents)
    assert sentence in str(caught)
    assert "Returning" in str(caught)
    decoder.replaced = {}
    assert decoder(tokens, batch, agents=agents).logits.shape == (4, 6)
    assert len(decoder(tokens, batch).logits) == len(tokens.agent)
    rejects(r"WithoutAgents\.forward must take tokens, batch, joint, agents", WithoutAgents)


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (
            type("Unfinished", (TokenEncoder,), {}),
            "field 'encoder': Unfinished must have an interact, see docs/how-to/own-model.md",
        ),
        (NothingReturned, "NothingReturned.interact must return a tensor of the shape of its input"),
        (AnotherShape, "AnotherShape.interact must return a tensor of the shape of its input"),
        (type("Unfinished", (SceneDecoder,), {}), "field 'decoder': Unfinished must have a forward"),
        (TupleDecoder, "TupleDecoder must return a Prediction, returned a tuple"),
    ],
)
def test_unusable_parts_are_named(part: type[nn.Module], sentence: str, real: list[Scenario]) -> None:
    encoder: Any = part(dim=16) if issubclass(part, TokenEncoder) else SceneEncoder(16, 2, 1)
    decoder: Any = part(dim=16) if issubclass(part, SceneDecoder) else HeadDecoder(dim=16)
    assert sentence in str(rejects("", lambda: Forecaster(encoder, decoder).forecast(batch_of(real[:1]))))
