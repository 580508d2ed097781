"""The encoder alone gives the model's tokens with poses and masks, for whole scenes and update by update."""

from __future__ import annotations

import gc
import weakref
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import rejects
from tests.model.small import batch_of
from tests.onboard.conftest import with_sizes
from tests.scenes import moment
from trajpred.data.batch import ScenarioBatch
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.integrations.replay import detections
from trajpred.onboard import Detections, OnboardEncoder, OnboardForecaster, StreamingEncoder
from trajpred.predictors.checkpoint import CheckpointPredictor


@pytest.fixture(scope="module")
def encoder(encoder_bundle: Path) -> OnboardEncoder:
    return OnboardEncoder(encoder_bundle, threads=1)


@pytest.mark.parametrize("row", [0, -1])
def test_tokens_and_poses_are_the_models(
    encoder: OnboardEncoder, predictor: CheckpointPredictor, scenes: list[Scenario], row: int
) -> None:
    """Poses against the scenario itself: the last valid state, and a point of each lane's centerline."""
    scenario, batch = scenes[row], batch_of([scenes[row]])
    with torch.no_grad():
        expected = predictor.model.encoder.encode(batch)
    found = encoder.encode(ScenarioBatch.of([scenario]))
    assert found.scenario_id == scenario.scenario_id
    assert found.agent_valid.all()
    assert found.lane_valid.all()
    assert found.track_id.tolist() == batch["agent"].track_id.tolist()
    assert found.lane_row.tolist() == batch["lane"].row.tolist()
    np.testing.assert_allclose(found.agent, expected.agent.numpy(), atol=1e-3)
    np.testing.assert_allclose(found.lane, expected.lane.numpy(), atol=1e-3)

    tracks = scenario.tracks
    for name, position, heading in zip(
        found.track_id, found.agent_position, found.agent_heading, strict=True
    ):
        track = int(np.flatnonzero(tracks.track_id == name)[0])
        last = int(np.flatnonzero(tracks.valid[track, : scenario.num_observed])[-1])
        np.testing.assert_allclose(position, tracks.position[track, last], atol=1e-4)
        np.testing.assert_allclose(heading, tracks.heading[track, last], atol=1e-6)
    segments = found.lane_row < len(scenario.map)
    line = scenario.map.centerline
    for lane, position in zip(found.lane_row[segments], found.lane_position[segments], strict=True):
        points = line.values[line.offsets[lane] : line.offsets[lane + 1], :2]
        assert np.linalg.norm(points - position, axis=1).min() <= np.linalg.norm(np.ptp(points, axis=0))


def test_an_encoder_is_freed_without_collector(encoder_bundle: Path, scenes: list[Scenario]) -> None:
    """A session that waits for the collector is freed in whatever process forks next, where it hangs."""
    encoder = OnboardEncoder(encoder_bundle, threads=1)
    encoder.encode(ScenarioBatch.of(scenes[:1]))
    freed = weakref.ref(encoder)
    gc.disable()
    try:
        del encoder
        assert freed() is None
    finally:
        gc.enable()


def test_a_whole_bundle_gives_the_same_tokens(
    encoder: OnboardEncoder, shared_forecaster: OnboardForecaster, bundle: Path, scenes: list[Scenario]
) -> None:
    scene = ScenarioBatch.of(scenes[:1])
    expected = encoder.encode(scene)
    for other in (shared_forecaster, OnboardEncoder(bundle, threads=1)):
        for field in fields(expected):
            np.testing.assert_array_equal(
                getattr(other.encode(scene), field.name), getattr(expected, field.name)
            )


def test_fixed_sizes_give_padding_and_masks(
    encoder: OnboardEncoder, encoder_bundle: Path, scenes: list[Scenario], tmp_path: Path
) -> None:
    fixed = OnboardEncoder(with_sizes(encoder_bundle, tmp_path / "fixed"), threads=1)
    for scene in (scenes[0], replace(scenes[0], map=LaneMap())):
        one = ScenarioBatch.of([scene])
        found, expected = fixed.encode(one), encoder.encode(one)
        A, L = len(expected.agent), len(expected.lane)
        assert A < 40
        assert L < 200
        assert found.agent.shape == (40, 16)
        assert found.lane.shape == (200, 16)
        assert found.agent_valid.tolist() == [True] * A + [False] * (40 - A)
        assert found.lane_valid.tolist() == [True] * L + [False] * (200 - L)
        np.testing.assert_allclose(found.agent[:A], expected.agent, atol=1e-4)
        np.testing.assert_allclose(found.lane[:L], expected.lane, atol=1e-4)
        np.testing.assert_array_equal(found.agent_position[:A], expected.agent_position)
        for name in ("agent", "agent_position", "agent_heading"):
            assert not getattr(found, name)[A:].any()
        assert not found.lane[L:].any()
        assert (found.lane_row[L:] == -1).all()


def test_every_update_has_the_tokens_of_that_moment(
    encoder: OnboardEncoder, predictor: CheckpointPredictor, scenes: list[Scenario]
) -> None:
    scenario = scenes[0]
    stream = StreamingEncoder(encoder, scenario.map)
    for step in range(scenario.num_observed):
        found = stream.update(scenario.timestamps_ns[step] / 1e9, detections(scenario, step))
        assert not found.warnings
        if step not in (0, 20, 49):
            continue
        batch = batch_of([moment(scenario, step)])
        with torch.no_grad():
            expected = predictor.model.encoder.encode(batch)
        rows = [found.track_id.tolist().index(name) for name in batch["agent"].track_id]
        np.testing.assert_allclose(found.agent[rows], expected.agent.numpy(), atol=2e-3)
        assert found.lane_row.tolist() == batch["lane"].row.tolist()
        assert found.stage_ms["encoder"] > 0


def test_bad_input_gives_a_reason(encoder: OnboardEncoder, scenes: list[Scenario]) -> None:
    stream = StreamingEncoder(encoder, scenes[0].map)
    found = stream.update(0.0, Detections([], []))
    assert (found.agent.shape, found.lane.shape, found.not_encoded) == ((0, 16), (0, 16), {})
    found = stream.update(0.1, Detections(["a", "b"], [[0.0, 0.0], [np.nan, 0.0]]))
    assert found.track_id.tolist() == ["a"]
    assert "not finite" in found.not_encoded["b"]


def test_forecasts_need_a_decoder(encoder_bundle: Path) -> None:
    rejects("contains the encoder alone: use OnboardEncoder", OnboardForecaster, encoder_bundle)
