"""Compare a bundle with the PyTorch model it was exported from, on real scenes and on edge cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.files import progress_bar
from trajpred.data.forecast import Forecast
from trajpred.data.geometry import norm
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError, require
from trajpred.export.graphs import port_names
from trajpred.features.scene_graph import build_batch
from trajpred.model import Forecaster
from trajpred.onboard.bundle import FUSED, SIGNATURES
from trajpred.onboard.encoder import OnboardEncoder, pad
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.predictors.checkpoint import CheckpointPredictor

#: Limit (m) on the distance between corresponding points of the futures, for 99 % of the agents.
TOLERANCE_M = 1e-3
#: Least limit (m) on this distance for all agents; otherwise ten times the tolerance.
LARGEST_M = 1e-2
#: Limit on differences of probabilities.
MAX_PROBABILITY_CHANGE = 1e-3
#: Limit on the relative increase of the mean minFDE.
MAX_METRIC_CHANGE = 1e-3
#: Limit on the relative difference of every token, for encoders exported alone.
MAX_TOKEN_CHANGE = 1e-4


@dataclass(frozen=True)
class Case:
    """The comparison on one scene.

    Attributes:
        name: the scenario's id and how it was changed.
        agents: number of agents in the model's input.
        lanes: number of lanes in the model's input.
        largest: maximum over the agents of the largest distance (m) between corresponding points of their
            futures; for the encoder alone, maximum relative difference of the tokens.
        probability: largest difference of a probability; None for the encoder alone.
    """

    name: str
    agents: int
    lanes: int
    largest: float
    probability: float | None = None


@dataclass(frozen=True)
class Check:
    """The result of a comparison.

    The relative difference of a token is the length of the difference divided by the root mean square length
    of the scene's tokens.

    Attributes:
        limit: limit on ``usual``.
        unit: ``m``, or ``relative`` for the encoder alone.
        cases: one per scene.
        usual: 99 % quantile of the agents' distances; for tokens the maximum.
        largest: maximum over agents or tokens.
        scored: number of focal agents with a known future.
        min_fde: their mean minFDE in PyTorch and in the bundle, metres; None if there are none.
    """

    limit: float
    unit: str
    cases: tuple[Case, ...]
    usual: float
    largest: float
    scored: int = 0
    min_fde: tuple[float, float] | None = None

    def summary(self) -> str:
        """Describe the result in one sentence."""
        if self.unit != "m":
            return f"all tokens are within {self.largest:.1g} of PyTorch's, relative (limit {self.limit:g})"
        text = f"99 % of the agents are within {self.usual:.2g} m of PyTorch's futures "
        text += f"(limit {self.limit:g} m), all within {self.largest:.2g} m"
        if self.min_fde is None:
            return text
        pytorch, bundle = self.min_fde
        return f"{text}; focal minFDE {pytorch:.4f} m in PyTorch, {bundle:.4f} m in the bundle"


def check(
    bundle: Path,
    predictor: CheckpointPredictor,
    scenarios: Sequence[Scenario],
    tolerance_m: float = TOLERANCE_M,
    fused: bool = False,
    progress: bool = False,
) -> Check:
    """Compare ``bundle`` with the model it was exported from.

    Args:
        scenarios: scenarios with the model's time step; the first is also compared with only its focal agent,
            without a map, and both.
        tolerance_m: limit for 99 % of the agents; see :func:`require_limits`.
        fused: also compare ``forecaster.onnx`` with the three graphs.

    Raises: DataError that names the exceeded limit.
    """
    forecaster = OnboardForecaster(bundle)
    if fused:
        content = forecaster.bundle.read(f"{FUSED}.onnx")
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    cases: list[Case] = []
    distances: list[NDArray[np.float64]] = []
    expected_errors: list[float] = []
    onboard_errors: list[float] = []
    for name, scenario in _scenes(predictor.model, forecaster, scenarios, progress):
        batch = ScenarioBatch.of([scenario])
        [expected] = predictor.forecast([scenario])
        onboard = forecaster.forecast(batch)
        distance = _distance(expected, onboard)
        distances.append(distance)
        case = Case(
            name=name,
            agents=len(onboard.track_id),
            lanes=len(forecaster.localise(batch).lanes.row),
            largest=float(distance.max()),
            probability=float(np.abs(expected.probability - onboard.probability).max()),
        )
        cases.append(case)
        expected_error = _focal_min_fde(scenario, expected)
        onboard_error = _focal_min_fde(scenario, onboard)
        if expected_error is not None and onboard_error is not None:
            expected_errors.append(expected_error)
            onboard_errors.append(onboard_error)
        if fused:
            require_equal(session, example_arrays(forecaster, scenario))
    min_fde = None
    if expected_errors:
        min_fde = (float(np.mean(expected_errors)), float(np.mean(onboard_errors)))
    all_distances = np.concatenate(distances)
    result = Check(
        limit=tolerance_m,
        unit="m",
        cases=tuple(cases),
        usual=float(np.quantile(all_distances, 0.99)),
        largest=float(all_distances.max()),
        scored=len(expected_errors),
        min_fde=min_fde,
    )
    require_limits(result, bundle)
    return result


def check_encoder(
    bundle: Path, model: Forecaster, scenarios: Sequence[Scenario], progress: bool = False
) -> Check:
    """Compare tokens, poses and row order of ``bundle`` with those of ``model``, like :func:`check`."""
    encoder = OnboardEncoder(bundle)
    scenes = _scenes(model, encoder, scenarios, progress)
    cases = [_compare_tokens(name, scenario, model, encoder) for name, scenario in scenes]
    largest = float(np.max([case.largest for case in cases]))  # NaN if any is
    if not largest <= MAX_TOKEN_CHANGE:
        excess = f"a token differs by {largest:.3g}, relative; the limit is {MAX_TOKEN_CHANGE:g}"
        raise DataError(f"the bundle differs from the model: {excess}", file=bundle.name)
    return Check(MAX_TOKEN_CHANGE, "relative", tuple(cases), largest, largest)


def _compare_tokens(name: str, scenario: Scenario, model: Forecaster, encoder: OnboardEncoder) -> Case:
    """Compare the tokens of a scenario's agents and lanes, relative to their usual length."""
    batch = build_batch([scenario], model.scene)
    with torch.inference_mode():
        expected = model.encoder.encode(batch).nodes.numpy()
    onboard = encoder.encode(ScenarioBatch.of([scenario]))
    agents = onboard.agent_valid
    lanes = onboard.lane_valid
    same_agents = np.array_equal(batch["agent"].track_id, onboard.track_id[agents])
    same_lanes = np.array_equal(batch["lane"].row.numpy(), onboard.lane_row[lanes])
    if not same_agents or not same_lanes:
        raise DataError("the bundle encodes other agents or lanes than the model", field="track_id")
    tokens = np.concatenate((onboard.agent[agents], onboard.lane[lanes]))
    length = np.sqrt((np.linalg.norm(expected, axis=1) ** 2).mean())
    largest = float(np.linalg.norm(tokens - expected, axis=1).max() / length)
    return Case(name, int(agents.sum()), int(lanes.sum()), largest)


def _scenes(
    model: Forecaster, runtime: OnboardEncoder, scenarios: Sequence[Scenario], progress: bool
) -> Iterator[tuple[str, Scenario]]:
    """Yield the scenarios, then the edge cases of the first one.

    Meanwhile ``model`` selects agents and lanes like the bundle, whose sizes may be fixed.
    """
    require(bool(scenarios), "scenarios", "are required to check a bundle")
    first = scenarios[0]
    scene = model.scene
    focal_alone = first.tracks.take(np.array([first.focal]))
    alone = replace(first, tracks=focal_alone)
    scenes = [(scenario.scenario_id, scenario) for scenario in scenarios]
    scenes += [
        (f"{first.scenario_id}, focal agent alone", alone),
        (f"{first.scenario_id}, no map", replace(first, map=LaneMap())),
        (f"{first.scenario_id}, focal agent alone, no map", replace(alone, map=LaneMap())),
    ]
    model.scene = replace(scene, features=runtime.bundle.features)
    try:
        yield from progress_bar(scenes, "comparing with PyTorch", unit=" scenes", shown=progress)
    finally:
        model.scene = scene


def require_limits(result: Check, bundle: Path) -> None:
    """Raise a DataError that names the first exceeded limit."""
    probability = float(np.max([case.probability or 0 for case in result.cases]))  # NaN if any is
    pytorch, onboard = result.min_fde or (0.0, 0.0)
    max_min_fde = pytorch * (1 + MAX_METRIC_CHANGE) + 1e-3
    largest_m = max(LARGEST_M, 10 * result.limit)
    option = "; --tolerance-m sets another one"
    limits = (
        ("99 % of the agents are within {} m", result.usual, result.limit, option),
        ("the largest distance is {} m", result.largest, largest_m, option),
        ("a probability differs by {}", probability, MAX_PROBABILITY_CHANGE, ""),
        ("focal minFDE increases to {} m", onboard, max_min_fde, ""),
    )
    for text, value, limit, advice in limits:
        if not value <= limit:
            excess = f"{text.format(f'{value:.4g}')}, the limit is {limit:.4g}{advice}"
            raise DataError(f"the bundle differs from the model: {excess}", file=bundle.name)


def example_arrays(runtime: OnboardEncoder, scenario: Scenario) -> dict[str, NDArray[Any]]:
    """Compute inputs and outputs of every graph by ``GRAPH/NAME``; all agents are targets."""
    scene = runtime.localise(ScenarioBatch.of([scenario]))
    agents = len(scene.inputs["agent_valid"])
    lanes = len(scene.inputs["lane_valid"])
    values = dict(scene.inputs)
    for name, array in runtime.lanes.lane_inputs(scene.lanes.row).items():
        values[name] = pad(array, lanes)
    values["target"] = pad(np.arange(len(scene.agents.track_id)), agents)
    for graph in runtime.GRAPHS:
        names = port_names(SIGNATURES[graph].outputs)
        values.update(zip(names, runtime.run(graph, values), strict=True))
    arrays: dict[str, NDArray[Any]] = {}
    for graph, ports in runtime.bundle.info["graphs"].items():
        for port in (*ports["inputs"], *ports["outputs"]):
            name = port["name"]
            arrays[f"{graph}/{name}"] = values[name]
    return arrays


def require_equal(session: onnxruntime.InferenceSession, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise DataError unless the fused graph gives its outputs in ``arrays`` for its inputs."""
    inputs = {port.name: arrays[f"{FUSED}/{port.name}"] for port in session.get_inputs()}
    for port, value in zip(SIGNATURES[FUSED].outputs, session.run(None, inputs), strict=True):
        if not np.allclose(value, arrays[f"{FUSED}/{port.name}"], rtol=1e-3, atol=1e-3):
            raise DataError("differs from the three graphs", file=f"{FUSED}.onnx", field=port.name)


def _distance(expected: Forecast, onboard: Forecast) -> NDArray[np.float64]:
    """Return ``[A]`` the largest distance (m) between corresponding points of each agent's futures."""
    order = onboard.rows(expected.track_id)
    if len(expected.track_id) != len(onboard.track_id) or (order < 0).any():
        raise DataError("the bundle predicts other agents than the model", field="track_id")
    difference = expected.trajectory - onboard.trajectory[order]
    return norm(difference).max(axis=(1, 2))


def _focal_min_fde(scenario: Scenario, forecast: Forecast) -> float | None:
    """Return the focal agent's minFDE (m), or None if its last future step is unknown."""
    row = int(forecast.rows(np.array([scenario.focal_id]))[0])
    end = scenario.num_steps - 1
    step = end - scenario.num_observed
    is_predicted = row >= 0 and 0 <= step < forecast.trajectory.shape[2]
    if not is_predicted or not scenario.tracks.valid[scenario.focal, end]:
        return None
    truth = scenario.tracks.position[scenario.focal, end]
    return float(norm(forecast.trajectory[row, :, step] - truth).min())
