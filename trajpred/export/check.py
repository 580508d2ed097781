"""Whether a bundle does what the model does: onnxruntime against PyTorch on real scenes, and on hard ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.export.precision import Rule
from trajpred.forecast import Forecast
from trajpred.geometry import norm
from trajpred.lane_map import LaneMap
from trajpred.onboard.bundle import FUSED, GRAPHS, SIGNATURES
from trajpred.onboard.forecaster import OnboardForecaster, pad
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.scenario import Scenario, Tracks
from trajpred.scenario_batch import ScenarioBatch

#: Probabilities may differ by so much where trajectories are held to a millimetre.
PROBABILITY = 1e-3
#: All graphs as one: inputs in order -> outputs in order.
Run = Callable[[Sequence[NDArray[Any]]], Sequence[NDArray[Any]]]


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

    def summary(self) -> str:
        """In a sentence."""
        held = f"99 % of the agents lie within {self.usual_m:.2g} m of PyTorch's futures "
        held += f"(allowed: {self.tolerance_m:g}), the farthest {self.largest_m:.2g} m"
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
        tolerance_m: for 99 % of the agents, if not that of ``rule``; any may then lie ten times as far.
        fused: hold ``forecaster.onnx`` equal to the three graphs as well.

    Raises: DataError if it is not met, or if the error of the forecasts rises by more than ``rule`` allows.
    """
    require(bool(scenarios), "scenarios", "are needed to check the bundle on")
    forecaster, config = OnboardForecaster(bundle), predictor.model.scene
    whole = _fused(forecaster) if fused else None
    rule = rule if tolerance_m is None else within_tolerance(rule, tolerance_m)
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
            if whole is not None:
                hold_equal(whole, example_arrays(forecaster, scenario), f"{FUSED}.onnx")
    finally:
        predictor.model.scene = config
    every = np.concatenate(moved)
    fde = np.array([pair for pair in errors if None not in pair], np.float64).reshape(-1, 2)
    mean = tuple(fde.mean(axis=0).tolist()) if len(fde) else (float("nan"),) * 2
    result = Check(
        rule.usual_m,
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


def within_tolerance(rule: Rule, tolerance_m: float) -> Rule:
    """``rule`` with ``tolerance_m`` for 99 % of the agents, and room for the others."""
    farthest = None if rule.largest_m is None else max(rule.largest_m, 10 * tolerance_m)
    return rule._replace(usual_m=tolerance_m, largest_m=farthest)


def _judge(result: Check, rule: Rule, bundle: Path) -> None:
    """Raises: DataError that names the limit that was broken."""
    farthest, likely = (rule.largest_m, PROBABILITY) if rule.largest_m else (np.inf, np.inf)
    probability = max(case.probability for case in result.cases)
    before, after = result.min_fde
    limits = (
        (result.usual_m, result.tolerance_m, "99 % of the agents lie within {} m, allowed are {}"),
        (result.largest_m, farthest, "the farthest point lies {} m away, allowed are {} for any"),
        (probability, likely, "a probability differs by {}, allowed are {}"),
        (after, before * (1 + rule.metric) + 1e-3, "focal minFDE rises to {} m, allowed are {}"),
    )
    for found, allowed, told in limits:
        if found > allowed:
            broken = told.format(f"{found:.4g}", f"{allowed:.4g}")
            raise DataError(f"the bundle does not do what the model does: {broken}", file=bundle.name)


def _fused(forecaster: OnboardForecaster) -> Run:
    """The fused graph of a bundle."""
    content = forecaster.bundle.graph(FUSED)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [port.name for port in SIGNATURES[FUSED].inputs]
    return lambda given: session.run(None, dict(zip(names, given, strict=True)))


def hold_equal(run: Run, arrays: Mapping[str, NDArray[Any]], file: str, tolerance: float = 1e-3) -> None:
    """All graphs as one give what the three give in ``arrays`` (``GRAPH/NAME``). Raises: DataError."""
    given = [arrays[f"{FUSED}/{port.name}"] for port in SIGNATURES[FUSED].inputs]
    for port, value in zip(SIGNATURES[FUSED].outputs, run(given), strict=True):
        if not np.allclose(value, arrays[f"{FUSED}/{port.name}"], rtol=tolerance, atol=tolerance):
            raise DataError("gives something else than the three graphs", file=file, field=port.name)


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
