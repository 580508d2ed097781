"""Whether a bundle does what the model does: onnxruntime against PyTorch on real scenes, and on hard ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.evaluation.predictors import CheckpointPredictor
from trajpred.export.precision import Rule
from trajpred.export.runtime import OnboardForecaster, pad
from trajpred.export.signature import FUSED, GRAPHS, SIGNATURES
from trajpred.forecast import Forecast
from trajpred.geometry import norm
from trajpred.lane_map import LaneMap
from trajpred.scenario import Scenario, Tracks
from trajpred.scenario_batch import ScenarioBatch

#: Probabilities may differ by so much where trajectories are held to a millimetre.
PROBABILITY = 1e-3


@dataclass(frozen=True)
class Case:
    """One scene, both ways.

    Attributes:
        name: the scenario's id, and what was done to it.
        agents, lanes: how many the model saw.
        usual_m, largest_m: of the distances between the farthest points of every agent, what 99 % stay
            within, and the largest.
        probability: largest difference.
    """

    name: str
    agents: int
    lanes: int
    usual_m: float
    largest_m: float
    probability: float


@dataclass(frozen=True)
class Check:
    """What was compared, and what was found.

    Attributes:
        tolerance_m: what 99 % of the agents had to stay within.
        cases: each scene.
        usual_m, largest_m: over all agents of all scenes.
        scored: focal agents with a future; min_fde: their mean minFDE in PyTorch and in the bundle, metres.
    """

    tolerance_m: float
    cases: tuple[Case, ...]
    usual_m: float
    largest_m: float
    scored: int
    min_fde: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """Plain values, None for what is not known."""
        known = None if np.isnan(self.min_fde[0]) else self.min_fde
        return {**asdict(self), "min_fde": known}

    def told(self) -> str:
        """In a sentence."""
        held = f"99 % of the agents lie within {self.usual_m:.2g} m of PyTorch's futures, the farthest "
        held += f"{self.largest_m:.2g} m (allowed: {self.tolerance_m:g})"
        if np.isnan(self.min_fde[0]):
            return held
        before, after = self.min_fde
        return f"{held}; focal minFDE {before:.4f} m in PyTorch, {after:.4f} m here"


def check(
    bundle: Path,
    predictor: CheckpointPredictor,
    scenarios: Sequence[Scenario],
    rule: Rule,
    tolerance_m: float | None = None,
    fused: bool = False,
) -> Check:
    """Compare ``bundle`` with the model it was made from.

    Args:
        scenarios: real ones; the first of them also alone with its focal agent, and without a map.
        tolerance_m: for 99 % of the agents, if not that of ``rule``.
        fused: hold ``forecaster.onnx`` equal to the three graphs as well.

    Raises: DataError if it is not met, or if the error of the forecasts rises by more than ``rule`` allows.
    """
    require(bool(scenarios), "scenarios", "are needed to check the bundle on")
    forecaster, config = OnboardForecaster(bundle), predictor.model.scene
    predictor.model.scene = replace(config, features=forecaster.bundle.features)  # fixed sizes are limits
    cases, moved, errors = [], [], []
    try:
        for name, scenario in _hard(scenarios):
            scene = ScenarioBatch.of([scenario])
            [expected], found = predictor([scenario]), forecaster.forecast(scene)
            apart = _apart(expected, found)
            moved.append(apart)
            shift = float(np.abs(expected.probability - found.probability).max())
            low, high = float(np.quantile(apart, 0.99)), float(apart.max())
            lanes = len(forecaster.localise(scene).lanes.row)
            cases.append(Case(name, len(apart), lanes, low, high, shift))
            errors += [[_min_fde(scenario, one) for one in (expected, found)]]
            if fused:
                _hold_equal(forecaster, scenario)
    finally:
        predictor.model.scene = config
    every = np.concatenate(moved)
    fde = np.array([pair for pair in errors if None not in pair], np.float64).reshape(-1, 2)
    mean = tuple(fde.mean(axis=0).tolist()) if len(fde) else (float("nan"),) * 2
    allowed = rule.usual_m if tolerance_m is None else tolerance_m
    result = Check(
        allowed,
        tuple(cases),
        float(np.quantile(every, 0.99)),
        float(every.max()),
        len(fde),
        (mean[0], mean[1]),
    )
    _judge(result, rule, bundle)
    return result


def window(scenario: Scenario, history: int, horizon: int) -> Scenario:
    """The steps around the last observed one that a model of these lengths is made for. Raises: DataError."""
    now = scenario.num_observed
    if (now, scenario.num_steps - now) == (history, horizon):
        return scenario
    require(now >= history, "history", f"scenario {scenario.scenario_id} has {now} steps, needed: {history}")
    part = slice(now - history, min(now + horizon, scenario.num_steps))
    tracks = scenario.tracks
    there = tracks.valid[:, part].any(axis=1)
    by_step = ("valid", "position", "heading", "velocity")
    cut = {
        name: (values[there, part] if name in by_step else values[there])
        for name, values in vars(tracks).items()
    }
    times = scenario.timestamps_ns[part]
    return replace(scenario, tracks=Tracks(**cut), timestamps_ns=times, num_observed=history)


def _hard(scenarios: Sequence[Scenario]) -> Iterator[tuple[str, Scenario]]:
    """The scenarios, and the first of them alone with its focal agent, and without a map."""
    for scenario in scenarios:
        yield scenario.scenario_id, scenario
    first = scenarios[0]
    row = slice(first.focal, first.focal + 1)
    alone = Tracks(**{name: values[row] for name, values in vars(first.tracks).items()})
    yield f"{first.scenario_id}, focal agent alone", replace(first, tracks=alone)
    yield f"{first.scenario_id}, no map", replace(first, map=LaneMap())
    yield f"{first.scenario_id}, focal agent alone, no map", replace(first, tracks=alone, map=LaneMap())


def _apart(a: Forecast, b: Forecast) -> NDArray[np.float64]:
    """``[A]`` metres between the farthest two points of the forecasts of each agent."""
    order = b.rows(a.track_id)
    if len(a.track_id) != len(b.track_id) or (order < 0).any():
        raise DataError("forecasts other agents than the model", field="track_id")
    distance: NDArray[np.float64] = norm(a.trajectory - b.trajectory[order]).max(axis=(1, 2))
    return distance


def _min_fde(scenario: Scenario, forecast: Forecast) -> float | None:
    """The focal agent's, metres; None where its last future step is not known."""
    row, end = int(forecast.rows(np.array([scenario.focal_id]))[0]), scenario.num_steps - 1
    steps = end - scenario.num_observed
    known = 0 <= steps < forecast.trajectory.shape[2] and scenario.tracks.valid[scenario.focal, end]
    if row < 0 or not known:
        return None
    truth = scenario.tracks.position[scenario.focal, end]
    return float(norm(forecast.trajectory[row, :, steps] - truth).min())


def _judge(result: Check, rule: Rule, bundle: Path) -> None:
    if result.usual_m > result.tolerance_m or result.largest_m > (rule.largest_m or np.inf):
        raise DataError(f"the bundle does not do what the model does: {result.told()}", file=bundle.name)
    if rule.largest_m and max(case.probability for case in result.cases) > PROBABILITY:
        raise DataError(f"a probability differs by more than {PROBABILITY}", file=bundle.name)
    before, after = result.min_fde
    if after > before * (1 + rule.metric) + 1e-3:
        raise DataError(f"minFDE rises from {before:.3f} to {after:.3f} m", file=bundle.name)


def _hold_equal(forecaster: OnboardForecaster, scenario: Scenario) -> None:
    """The fused graph gives what the three give. Raises: DataError."""
    arrays = example_arrays(forecaster, scenario)
    content = forecaster.bundle.graph(FUSED)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    given = {port.name: arrays[f"{FUSED}/{port.name}"] for port in SIGNATURES[FUSED].inputs}
    for port, value in zip(SIGNATURES[FUSED].outputs, session.run(None, given), strict=True):
        if not np.allclose(value, arrays[f"{FUSED}/{port.name}"], rtol=1e-3, atol=1e-3):
            raise DataError(f"{FUSED}.onnx gives another {port.name} than the three graphs", field=port.name)


def example_arrays(forecaster: OnboardForecaster, scenario: Scenario) -> dict[str, NDArray[Any]]:
    """Inputs and outputs of every graph for ``scenario``, as ``GRAPH/NAME``; all agents are predicted."""
    scene = forecaster.localise(ScenarioBatch.of([scenario]))
    looks = forecaster.lanes.looks(scene.lanes.row)
    agents, lanes = (len(scene.inputs[name]) for name in ("agent_valid", "lane_valid"))
    values = scene.inputs | {name: pad(look, lanes) for name, look in looks.items()}
    values["target"] = pad(np.arange(len(scene.agents.track_id)), agents)
    for graph in GRAPHS:
        names = [port.name for port in SIGNATURES[graph].outputs]
        values |= dict(zip(names, forecaster.run(graph, values), strict=True))
    return {
        f"{graph}/{port.name}": values[port.name]
        for graph, signature in SIGNATURES.items()
        for side in signature
        for port in side
    }
