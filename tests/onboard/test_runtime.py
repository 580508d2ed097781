"""The runtime says what the model says in PyTorch, wherever the scene lies; and needs little to run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import ROOT
from tests.model.small import batch_of, evaluate_as
from tests.onboard.streams import moved
from trajpred.errors import DataError
from trajpred.forecast import Forecast
from trajpred.lane_map import LaneMap
from trajpred.onboard.forecaster import STAGES, OnboardForecaster, pad
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.predictors.predictor import load_predictor
from trajpred.scenario import Scenario, Tracks
from trajpred.scenario_batch import ScenarioBatch

#: Metres; float32 sums in another order.
TOLERANCE = 1e-3
FORBIDDEN = ("torch", "torch_geometric", "pytorch_lightning", "torchmetrics", "matplotlib", "av2", "pyarrow")
FORBIDDEN += ("onnx", "onnxscript", "jsonargparse", "rich", "shapely", "pandas", "scipy", "joblib", "yaml")


def alone(scenario: Scenario) -> Scenario:
    row = slice(scenario.focal, scenario.focal + 1)
    return replace(scenario, tracks=Tracks(**{k: v[row] for k, v in vars(scenario.tracks).items()}))


def assert_same(found: Forecast, expected: Forecast, atol: float = TOLERANCE) -> None:
    found.validate()
    assert found.track_id.tolist() == expected.track_id.tolist()
    np.testing.assert_allclose(found.trajectory, expected.trajectory, rtol=0, atol=atol)
    np.testing.assert_allclose(found.probability, expected.probability, rtol=0, atol=1e-4)
    assert found.scale is not None and expected.scale is not None
    np.testing.assert_allclose(found.scale, expected.scale, rtol=0, atol=atol)
    np.testing.assert_allclose(found.speed, expected.speed, rtol=0, atol=20 * atol)


@pytest.mark.parametrize("evaluation", ["dense", "edges"])
def test_says_what_the_model_says(
    forecaster: OnboardForecaster, checkpoint: Path, scenes: list[Scenario], evaluation: str
) -> None:
    """Both evaluations of the model, the smallest scene and the largest, one agent, no map, and neither."""
    predictor = CheckpointPredictor(checkpoint)
    evaluate_as(predictor.model, evaluation)
    first, nothing = scenes[0], LaneMap()
    hard = [alone(first), replace(first, map=nothing), replace(alone(first), map=nothing)]
    for scene in [*scenes, *hard]:
        [expected] = predictor([scene])
        assert_same(forecaster.forecast(ScenarioBatch.of([scene])), expected)


def test_tokens_are_those_of_the_encoder(
    forecaster: OnboardForecaster, predictor: CheckpointPredictor, scenes: list[Scenario]
) -> None:
    scene, batch = ScenarioBatch.of(scenes[:1]), batch_of(scenes[:1])
    with torch.no_grad():
        expected = predictor.model.encoder.encode(batch)
    found = forecaster.encode(scene)
    assert found.track_id.tolist() == batch["agent"].track_id.tolist()
    assert found.lane.tolist() == batch["lane"].row.tolist()
    np.testing.assert_allclose(found.agent, expected.agent.numpy(), atol=1e-3)
    np.testing.assert_allclose(found.lane_context, expected.lane.numpy(), atol=1e-3)


def test_is_a_predictor(bundle: Path, predictor: CheckpointPredictor, scenes: list[Scenario]) -> None:
    onboard = load_predictor(bundle)
    for found, expected in zip(onboard(scenes[:2]), predictor(scenes[:2]), strict=True):
        assert_same(found, expected)
    assert onboard.name == f"{predictor.name}, onboard fp32" and onboard.training == predictor.training
    with pytest.raises(DataError, match="joint"):
        load_predictor(bundle, joint=True)


@pytest.mark.parametrize(("away_m", "atol"), [(1e4, 1e-3), (1e6, 1e-2)])
def test_moving_the_scene_moves_the_forecast(
    forecaster: OnboardForecaster, scenes: list[Scenario], away_m: float, atol: float
) -> None:
    by = np.array([away_m, -0.7 * away_m])
    here = forecaster.forecast(ScenarioBatch.of([scenes[1]]))
    there = forecaster.forecast(ScenarioBatch.of([moved(scenes[1], by)]))
    np.testing.assert_allclose(there.trajectory - by, here.trajectory, rtol=0, atol=atol)


def test_a_part_of_the_targets_equals_all_of_them(
    forecaster: OnboardForecaster, scenes: list[Scenario]
) -> None:
    scene = ScenarioBatch.of([scenes[1]])
    every = forecaster.forecast(scene)
    names = [every.track_id[-1], every.track_id[1], every.track_id[-1]]
    part = forecaster.forecast(scene, names)
    assert part.track_id.tolist() == names[:2], "in the order asked for, each once"
    rows = every.rows(part.track_id)
    np.testing.assert_allclose(part.trajectory, every.trajectory[rows], rtol=0, atol=1e-4)
    assert forecaster.forecast(scene, []).trajectory.shape == (0, *every.trajectory.shape[1:])
    with pytest.raises(DataError, match="nobody"):
        forecaster.forecast(scene, ["nobody"])
    assert forecaster.forecast(scene, ["nobody", names[0]], strict=False).track_id.tolist() == names[:1]


def test_the_future_is_not_looked_at(forecaster: OnboardForecaster, scenes: list[Scenario]) -> None:
    scenario, now = scenes[1], scenes[1].num_observed
    valid = scenario.tracks.valid.copy()
    valid[:, now:] = False
    blind = replace(scenario, tracks=replace(scenario.tracks, valid=valid))
    found, expected = (forecaster.forecast(ScenarioBatch.of([one])) for one in (blind, scenario))
    np.testing.assert_array_equal(found.trajectory, expected.trajectory)


def test_scenes_it_was_not_made_for(forecaster: OnboardForecaster, scenes: list[Scenario]) -> None:
    scenario = scenes[0]
    with pytest.raises(DataError, match="num_observed"):
        forecaster.forecast(ScenarioBatch.of([replace(scenario, num_observed=20)]))
    with pytest.raises(DataError, match="step_s"):
        forecaster.forecast(ScenarioBatch.of([replace(scenario, timestamps_ns=2 * scenario.timestamps_ns)]))
    with pytest.raises(DataError, match="scene"):
        forecaster.forecast(ScenarioBatch.of(scenes[:2]))


def test_stages_are_timed(forecaster: OnboardForecaster, scenes: list[Scenario]) -> None:
    forecaster.forecast(ScenarioBatch.of(scenes[:1]))
    assert tuple(forecaster.stage_ms) == STAGES and min(forecaster.stage_ms.values()) > 0


def test_pad() -> None:
    values = np.arange(6, dtype=np.int64).reshape(3, 2)
    assert pad(values, 3) is values
    assert (
        pad(values, 5).tolist() == [[0, 1], [2, 3], [4, 5], [0, 0], [0, 0]]
        and pad(values, 5).dtype == np.int64
    )


NO_TORCH = """
import sys
class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ImportError("forbidden: " + name)
sys.meta_path.insert(0, Forbid())
import numpy as np
from trajpred import Scenario
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.onboard.stream import Detections, StreamingForecaster
from trajpred.scenario_batch import ScenarioBatch
position = np.full((2, 50, 2), np.nan)
position[0] = np.linspace([0, 0], [45, 0], 50)
position[1, 20:] = np.linspace([60, 3.5], [40, 3.5], 30)
scenario = Scenario.from_arrays(position, num_observed=50, map=[[[-50, 0], [150, 0]]])
forecaster = OnboardForecaster({bundle!r})
forecaster.forecast(ScenarioBatch.of([scenario])).validate()
stream = StreamingForecaster(forecaster, scenario.map)
found = stream.update(0.0, Detections(["a"], [[0.0, 0.0]])).validate()
assert found.track_id.tolist() == ["a"] and not {{"torch", "matplotlib"}} & set(sys.modules)
print("forecast")
"""


def test_needs_numpy_and_onnxruntime_alone(bundle: Path) -> None:
    code = NO_TORCH.format(names=FORBIDDEN, bundle=str(bundle))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "forecast\n", done.stderr


@pytest.mark.slow
def test_runs_where_nothing_else_is_installed(bundle: Path, tmp_path: Path) -> None:
    """As the README says: NumPy, onnxruntime, and this package without its dependencies."""
    python = tmp_path / "venv" / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", tmp_path / "venv"],
        [python, "-m", "pip", "install", "-q", "numpy>=2.0", "onnxruntime"],
        [python, "-m", "pip", "install", "-q", "--no-deps", ROOT],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no environment can be made here: {done.stderr[-300:]}")
    code = NO_TORCH.format(names=("nothing",), bundle=str(bundle))
    done = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "forecast\n", done.stderr
    listed = subprocess.run([python, "-m", "pip", "list"], capture_output=True, text=True).stdout
    assert "torch" not in listed
