"""The runtime predicts what the model predicts in PyTorch, and needs NumPy and onnxruntime only."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT, blocks, rejects
from tests.onboard.conftest import with_sizes
from tests.scenes import alone, hidden, moved
from trajpred.data.batch import ScenarioBatch
from trajpred.data.forecast import Forecast
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.onboard import OnboardForecaster
from trajpred.onboard.forecaster import rule_forecast
from trajpred.predictors import load_predictor
from trajpred.predictors.baselines import constant_velocity
from trajpred.predictors.checkpoint import CheckpointPredictor

FORBIDDEN = ("torch", "torch_geometric", "pytorch_lightning", "torchmetrics", "matplotlib", "av2", "pyarrow")
FORBIDDEN += ("onnx", "onnxscript", "jsonargparse", "rich", "shapely", "pandas", "scipy", "joblib", "yaml")


def assert_same(found: Forecast, expected: Forecast, atol: float = 1e-3) -> None:
    """Compare within rounding: sums in float32 have another order."""
    assert found.validate().track_id.tolist() == expected.track_id.tolist()
    np.testing.assert_allclose(found.trajectory, expected.trajectory, rtol=0, atol=atol)
    np.testing.assert_allclose(found.probability, expected.probability, rtol=0, atol=1e-4)
    np.testing.assert_allclose(np.array(found.scale), np.array(expected.scale), rtol=0, atol=atol)
    np.testing.assert_allclose(found.speed, expected.speed, rtol=0, atol=20 * atol)


@pytest.mark.parametrize("evaluation", ["dense", "edges"])
def test_forecast_is_the_models(
    shared_forecaster: OnboardForecaster, checkpoint: Path, scenes: list[Scenario], evaluation: str
) -> None:
    """The smallest and largest scene, one agent, no map, and both; and where attention runs over edges."""
    predictor = CheckpointPredictor(checkpoint)
    predictor.model.encoder.evaluation = predictor.model.decoder.evaluation = evaluation
    first, empty = scenes[0], LaneMap()
    edge_cases = [alone(first), replace(first, map=empty), replace(alone(first), map=empty)]
    for scene in [*scenes, *edge_cases]:
        [expected] = predictor([scene])
        assert_same(shared_forecaster.forecast(ScenarioBatch.of([scene])), expected)


def test_bundle_is_a_predictor(bundle: Path, predictor: CheckpointPredictor, scenes: list[Scenario]) -> None:
    onboard = load_predictor(bundle)
    for found, expected in zip(onboard(scenes[:2]), predictor(scenes[:2]), strict=True):
        assert_same(found, expected)
    assert onboard.name == f"{predictor.name}, onboard fp32"
    assert onboard.training == predictor.training
    rejects("joint", load_predictor, bundle, joint=True)


def test_padding_to_fixed_sizes_changes_no_forecast(
    bundle: Path, shared_forecaster: OnboardForecaster, scenes: list[Scenario], tmp_path: Path
) -> None:
    """Beyond the fixed sizes the nearest agents are kept."""
    fixed = OnboardForecaster(with_sizes(bundle, tmp_path / "fixed"), threads=1)
    for scene in (scenes[0], replace(scenes[0], map=LaneMap())):
        expected = shared_forecaster.forecast(ScenarioBatch.of([scene]))
        assert_same(fixed.forecast(ScenarioBatch.of([scene])), expected)
        target = expected.track_id[:1].tolist()
        found = fixed.forecast(ScenarioBatch.of([scene]), target)
        np.testing.assert_allclose(found.trajectory, expected.trajectory[:1], rtol=0, atol=1e-3)
    assert len(fixed.forecast(ScenarioBatch.of([scenes[-1]])).validate().track_id) == 40


def test_forecast_moves_with_the_scene_and_ignores_the_future(
    shared_forecaster: OnboardForecaster, scenes: list[Scenario]
) -> None:
    scenario = scenes[0]
    here = shared_forecaster.forecast(ScenarioBatch.of([scenario]))
    for away_m, atol in ((1e4, 1e-3), (1e6, 1e-2)):
        by = (away_m, -0.7 * away_m)
        there = shared_forecaster.forecast(ScenarioBatch.of([moved(scenario, by, 0.0)]))
        np.testing.assert_allclose(there.trajectory - by, here.trajectory, rtol=0, atol=atol)
    past = hidden(scenario, np.s_[:, scenario.num_observed :])
    found = shared_forecaster.forecast(ScenarioBatch.of([past]))
    np.testing.assert_array_equal(found.trajectory, here.trajectory)


def test_targets(shared_forecaster: OnboardForecaster, scenes: list[Scenario]) -> None:
    """Each once, in the order given; ids that are not agents raise or are omitted."""
    scene = ScenarioBatch.of([scenes[0]])
    every = shared_forecaster.forecast(scene)
    names = [every.track_id[-1], every.track_id[1], every.track_id[-1]]
    part = shared_forecaster.forecast(scene, names)
    assert part.track_id.tolist() == names[:2]
    rows = every.rows(part.track_id)
    np.testing.assert_allclose(part.trajectory, every.trajectory[rows], rtol=0, atol=1e-4)
    assert shared_forecaster.forecast(scene, []).trajectory.shape == (0, *every.trajectory.shape[1:])
    rejects("stranger", shared_forecaster.forecast, scene, ["stranger"])
    found = shared_forecaster.forecast(scene, ["stranger", names[0]], strict=False)
    assert found.track_id.tolist() == names[:1]


def test_unfit_scenes_are_rejected(shared_forecaster: OnboardForecaster, scenes: list[Scenario]) -> None:
    scenario = scenes[0]
    slow = replace(scenario, timestamps_ns=2 * scenario.timestamps_ns)
    for field, given in (("step_s", [slow]), ("scene", scenes[:2])):
        assert rejects("", shared_forecaster.forecast, ScenarioBatch.of(given)).field == field


def test_a_provider_that_onnxruntime_lacks_is_named(bundle: Path) -> None:
    """It would warn and compute on the CPU."""
    providers = ["NoneExecutionProvider", "CPUExecutionProvider"]
    rejects(f"'providers'.*{'.*'.join(providers)}", OnboardForecaster, bundle, providers=providers)


CODE = """
import sys
class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {forbidden}:
            raise ImportError("forbidden: " + name)
sys.meta_path.insert(0, Forbid())
import numpy as np
from trajpred import Scenario
from trajpred.onboard import Detections, OnboardForecaster, StreamingForecaster
from trajpred.data.batch import ScenarioBatch
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


def test_runs_without_other_packages(bundle: Path) -> None:
    code = CODE.format(forbidden=FORBIDDEN, bundle=str(bundle))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "forecast\n", done.stderr


@pytest.mark.parametrize(
    ("page", "word", "part"),
    [
        ("README.md", "OnboardForecaster", "bundle"),
        ("docs/how-to/onboard.md", "OnboardForecaster", "bundle"),
        ("docs/how-to/onboard.md", "OnboardEncoder", "encoder"),
    ],
)
def test_examples_of_the_documentation_run(
    page: str, word: str, part: str, exported: Path, scenes: list[Scenario], tmp_path: Path, monkeypatch: Any
) -> None:
    """The first block of ``page`` that contains ``word``."""
    monkeypatch.chdir(tmp_path)
    Path("bundle").symlink_to(exported / part)
    names: dict[str, Any] = {"lane_map": scenes[0].map, "scenario": scenes[0]}
    exec(next(block for block in blocks(ROOT / page, "python") if word in block), names)
    if part == "encoder":
        assert names["tokens"].track_id.tolist() == ["AV"]
        assert not names["tokens"].not_encoded
    else:
        assert len(names["forecast"].track_id) == 2
        assert not names["forecast"].not_predicted


def test_a_rule_for_a_history_of_one_step_keeps_the_step() -> None:
    position, velocity = np.zeros((1, 3, 2)), np.full((1, 3, 2), [4.0, 0.0])
    scenario = Scenario.from_arrays(position, num_observed=3, step_s=0.5, velocity=velocity)
    scene = ScenarioBatch.of([scenario]).window(1, 0)
    found = rule_forecast(constant_velocity, scene, np.array([0]), modes=2, horizon=4)
    np.testing.assert_allclose(found.trajectory[0, 0, :, 0], [2, 4, 6, 8], atol=1e-9)


def test_lanes_are_encoded_once(forecaster: OnboardForecaster, bundle: Path, scenes: list[Scenario]) -> None:
    """Only new and changed lanes are encoded; another map object with known lanes is not."""
    scenario = scenes[1]
    first = forecaster.forecast(ScenarioBatch.of([scenario]))
    lanes = forecaster.localise(ScenarioBatch.of([scenario])).lanes
    known = forecaster.lanes.encoded
    assert known == len(lanes.row) > 0
    again = forecaster.forecast(ScenarioBatch.of([replace(scenario, map=replace(scenario.map))]))
    assert forecaster.lanes.encoded == known
    np.testing.assert_array_equal(again.trajectory, first.trajectory)

    row = int(lanes.row[lanes.row < len(scenario.map)][0])
    line = scenario.map.centerline
    values = line.values.copy()
    values[(line.offsets[row] + line.offsets[row + 1]) // 2] += 0.5
    bent = replace(scenario.map, centerline=replace(line, values=values))
    changed = ScenarioBatch.of([replace(scenario, map=bent)])
    found = forecaster.forecast(changed)
    assert forecaster.lanes.encoded == known + 1
    expected = OnboardForecaster(bundle).forecast(changed)
    np.testing.assert_allclose(found.trajectory, expected.trajectory, rtol=0, atol=1e-4)


def test_lanes_of_an_overlapping_tile_are_known(
    forecaster: OnboardForecaster, scenes: list[Scenario]
) -> None:
    """Positions along a lane are rounded differently beside other lanes: half of them were taken for new."""
    whole = scenes[1]
    rows = np.arange(1, len(whole.map), 2)
    tile = replace(whole, map=whole.map.take(rows, np.zeros(0, np.int64)))
    forecaster.forecast(ScenarioBatch.of([whole]))
    known = forecaster.lanes.encoded
    forecaster.forecast(ScenarioBatch.of([tile]))
    assert forecaster.lanes.encoded == known
    assert len(forecaster.localise(ScenarioBatch.of([tile])).lanes.row) > 10
