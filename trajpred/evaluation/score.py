"""Score a predictor on the labelled scenarios of a store: a row per agent, and per scene of joint futures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from trajpred.data.forecast import SAME_PROBABILITY, Forecast
from trajpred.data.geometry import norm, rotate
from trajpred.data.scenario import Scenario
from trajpred.data.splits import GROUPS
from trajpred.data.time import SAME_STEP
from trajpred.errors import DataError, require
from trajpred.evaluation.av2_check import Av2Check
from trajpred.evaluation.origin import environment, store_facts
from trajpred.evaluation.results import Evaluation
from trajpred.evaluation.table import FACTS, agent_field
from trajpred.evaluation.truth import truth_of
from trajpred.evaluation.updates import score_streams
from trajpred.metrics import (
    Column,
    agent_metrics,
    columns_of,
    final_error,
    headline,
    joint_metrics,
    metrics_of,
)
from trajpred.metrics.calibration import laplace_levels
from trajpred.metrics.plausibility import Futures
from trajpred.metrics.registry import MODES, Kind
from trajpred.predictors.forecast_store import forecast_store
from trajpred.predictors.predictions_file import reasons
from trajpred.predictors.predictor import Predictor
from trajpred.store import ScenarioStore
from trajpred.store.windows import ADVICE

#: The groups whose joint futures are scored.
JOINT_GROUPS = ("scored", "all")


def evaluate(
    predictor: Predictor,
    store: ScenarioStore,
    *,
    batch_size: int = 16,
    limit: int | None = None,
    plausibility: bool = False,
    workers: int = 1,
    check_with_av2: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Compute the metrics of a predictor over a split.

    Args:
        predictor: a model, a baseline, a predictions file or an ensemble; a
            :class:`~trajpred.predictors.derived.StreamedPredictor` for the metrics of updates, too.
        store: the split.
        batch_size: scenarios at once, in each process.
        limit: only the first ``limit`` scenarios.
        plausibility: also compute plausibility and calibration, which takes longer.
        workers: as in :func:`~trajpred.predictors.forecast_store.forecast_store`.
        check_with_av2: also compute the metrics with av2's own functions, and compare.
        progress: show a progress bar.

    Raises:
        DataError: no scenario has a recorded future, scenarios differ in length, or the predictor forecasts
            no scored agent.
    """
    _ = store.lengths  # raises if there are several: errors after 3 s and after 6 s have no common mean
    check = Av2Check() if check_with_av2 else None
    start = time.monotonic()
    agents_parts: list[pa.Table] = []
    scenes_parts: list[pa.Table] = []
    scenarios_scored = 0
    step_s = 0.0
    seconds: list[float] = []
    batches = forecast_store(
        predictor,
        store,
        labelled=True,
        batch_size=batch_size,
        limit=limit,
        workers=workers,
        progress=progress,
    )
    for scenarios, forecasts in batches:
        if not scenarios:
            continue
        agents = ScoredAgents.of(scenarios, forecasts, predictor.joint)
        step_s = step_s or agents.step_s
        require_step(agents.step_s, step_s, scenarios[0].scenario_id)
        recorded = scenarios[0].num_steps - scenarios[0].num_observed
        seconds = [round(steps * step_s, 2) for steps in (agents.valid.shape[1], recorded)]
        scenarios_scored += len(scenarios)
        values = score_agents(agents, step_s, plausibility)
        values |= score_streams(scenarios, forecasts, agents, step_s)
        agents_parts.append(agents_table(agents, values, plausibility))
        scenes_parts.append(scenes_table(agents))
        if check is not None:
            check.add(agents)
    if not scenarios_scored:
        raise DataError(_nothing_to_score(store), file=store.path)
    table = pa.concat_tables(agents_parts, promote_options="default")
    if not pc.any(table["predicted"]).as_py():
        raise DataError(_nothing_forecast(predictor, store))
    return Evaluation.of_tables(
        table,
        pa.concat_tables(scenes_parts),
        predictor=predictor.name,
        how=predictor.how,
        training=dict(predictor.training),
        split=store.split,
        half=store.half,
        observed_s=store.observed_s,
        store=store_facts(store.path),
        scenarios=scenarios_scored,
        seconds=seconds,
        av2=check.summary() if check is not None else {},
        environment={**environment(), "wall_s": round(time.monotonic() - start, 1)},
    )


def _nothing_to_score(store: ScenarioStore) -> str:
    """Describe why no scenario can be scored: there is no future, or all futures are pseudo-labels."""
    if len(store) == 0 or store[0].continued == 0:
        return f"split {store.split!r} has no scenario with a future to score"
    problem = f"no scenario of split {store.split!r} has a recorded future"
    return f"{problem}, and what a model continued is never scored: evaluate a split with recorded futures"


def _nothing_forecast(predictor: Predictor, store: ScenarioStore) -> str:
    """Describe that no scored agent was forecast, with the problems of predictions files."""
    problem = f"{predictor.name} forecasts no scored agent of split {store.split!r}"
    causes = reasons(predictor, store.split_ids)
    return f"{problem}: {causes}" if causes else problem


@dataclass(frozen=True)
class ScoredAgents(Futures):
    """``A`` agents of several scenarios with a forecast and a true future, grouped by scenario.

    Where scenarios have fewer modes than others, their first mode is repeated with probability 0.

    Attributes:
        scenario_ids: ``S`` ids, of which ``scene`` ``[A]`` is the index.
        track_id: ``[A]`` strings.
        truth: columns ``[N]`` of all agents with a future (:func:`~trajpred.evaluation.truth.truth_of`).
        predicted: ``[N]`` bool, the ``A`` of them with a forecast.
        member: for each of :data:`GROUPS` ``[A]`` bool.
        target_heading: ``[A, F]`` radians, of the true futures; NaN where the data lack it.
        scale: ``[A, K, F, 2]`` Laplace scales in each agent's own frame; None unless all forecasts have them.
        joint: for each of :data:`JOINT_GROUPS` ``[A]`` bool, True for agents whose scenario is fully
            predicted for that group, with one probability per mode.
        incomplete: for each of :data:`JOINT_GROUPS` ``[S]`` bool, scenarios that miss one of its agents.
    """

    scenario_ids: list[str]
    track_id: NDArray[np.str_]
    truth: dict[str, NDArray[Any]]
    predicted: NDArray[np.bool_]
    member: dict[str, NDArray[np.bool_]]
    target_heading: NDArray[np.float64]
    scale: NDArray[np.float64] | None
    joint: dict[str, NDArray[np.bool_]]
    incomplete: dict[str, NDArray[np.bool_]]

    def __len__(self) -> int:
        return len(self.scene)

    @classmethod
    def of(
        cls, scenarios: Sequence[Scenario], forecasts: Sequence[Forecast], joint: bool = True
    ) -> ScoredAgents:
        """Match forecasts with true futures.

        Args:
            scenarios: with futures.
            forecasts: one for each scenario.
            joint: whether forecasts whose agents share their probabilities are joint.

        Raises: DataError if a forecast is longer than its scenario or not finite, or if numbers of steps or
            time steps differ.
        """
        steps = _common_steps(scenarios, forecasts)
        truth = truth_of(scenarios, steps)
        modes = max(forecast.trajectory.shape[1] for forecast in forecasts)
        parts: list[dict[str, NDArray[Any]]] = []
        for scene, forecast in enumerate(forecasts):
            parts.append(_forecast_columns(forecast, truth["track_id"][truth["scene"] == scene], modes))
        columns: dict[str, Any] = {"scale": None}
        for name in parts[0]:  # scales are None unless all scenarios have them
            if all(name in part for part in parts):
                columns[name] = np.concatenate([part[name] for part in parts])
        predicted: NDArray[np.bool_] = columns["predicted"]
        for name in ("scene", "object_type", "origin", "origin_heading", "velocity"):
            columns[name] = truth[name][predicted]
        scene = columns["scene"]
        member: dict[str, NDArray[np.bool_]] = {group: truth[group][predicted] for group in GROUPS}
        is_joint: dict[str, NDArray[np.bool_]] = {}
        incomplete: dict[str, NDArray[np.bool_]] = {}
        for group in JOINT_GROUPS:
            missing = truth["scene"][truth[group] & ~predicted]
            incomplete[group] = np.bincount(missing, minlength=len(scenarios)) > 0
            candidate = member[group] & ~incomplete[group][scene] & joint
            is_joint[group] = _sharing_probabilities(scene, candidate, columns["probability"])
        return cls(
            **columns,
            scenario_ids=[scenario.scenario_id for scenario in scenarios],
            track_id=truth["track_id"][predicted],
            maps=[scenario.map for scenario in scenarios],
            step_s=scenarios[0].step_s,
            truth=truth,
            target=truth["target"][predicted],
            target_heading=truth["target_heading"][predicted],
            valid=truth["valid"][predicted],
            member=member,
            is_joint=is_joint["scored"],
            joint=is_joint,
            incomplete=incomplete,
        )


def _common_steps(scenarios: Sequence[Scenario], forecasts: Sequence[Forecast]) -> int:
    """Return the number of future steps of all forecasts. Raises: DataError unless all fit together."""
    steps = {forecast.trajectory.shape[2] for forecast in forecasts}
    problem = f"forecasts of {sorted(steps)} steps cannot be evaluated together"
    require(len(steps) == 1, "trajectory", problem)
    [count] = steps
    for scenario in scenarios:
        known = scenario.num_steps - scenario.num_observed
        longer = f"{scenario.scenario_id}: forecast of {count} steps, {known} are known"
        require(known >= count, "trajectory", longer)
        require_step(scenario.step_s, scenarios[0].step_s, scenario.scenario_id)
    return count


def require_step(step_s: float, usual: float, scenario_id: str) -> None:
    """Raise :class:`DataError` unless time steps are equal up to :data:`~trajpred.data.time.SAME_STEP`."""
    problem = f"{scenario_id}: steps of {step_s:g} s and of {usual:g} s cannot be evaluated together"
    require(abs(step_s - usual) < SAME_STEP * usual, "step_s", f"{problem}; {ADVICE}")


def _forecast_columns(forecast: Forecast, track_id: NDArray[np.str_], modes: int) -> dict[str, NDArray[Any]]:
    """Return ``predicted`` ``[N]``, and columns of those of the tracks ``track_id`` ``[N]`` that are."""
    row = forecast.rows(track_id)
    predicted = row >= 0
    row = row[predicted]
    for name in ("trajectory", "probability"):
        finite = bool(np.isfinite(getattr(forecast, name)[row]).all())
        require(finite, name, f"{forecast.scenario_id}: forecast is not finite")
    # Modes are filled up by the first one, with probability 0.
    count = forecast.trajectory.shape[1]
    is_real = np.arange(modes) < count
    mode = np.where(is_real, np.arange(modes), 0)
    columns = {
        "predicted": predicted,
        "trajectory": forecast.trajectory[row][:, mode],
        "modes": np.full(len(row), count),
        "probability": forecast.probability[row][:, mode] * is_real,
        "heading": forecast.heading[row][:, mode],
    }
    if forecast.scale is not None:
        columns["scale"] = forecast.scale[row][:, mode]
    return columns


def _sharing_probabilities(
    scene: NDArray[np.int64], candidate: NDArray[np.bool_], probability: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Select the ``candidate`` agents ``[A]`` of scenes whose candidates share their probabilities.

    Mode k of all of them is then one joint mode.
    """
    rows = np.flatnonzero(candidate)
    first = np.searchsorted(scene[rows], scene[rows])  # of each agent's scene
    differ = np.abs(probability[rows] - probability[rows][first]).max(axis=1, initial=0.0) > SAME_PROBABILITY
    return candidate & ~np.isin(scene, scene[rows][differ])


def whole_seconds(steps: int, step_s: float) -> dict[int, int]:
    """Map the whole seconds within ``steps`` to numbers of steps; seconds between two steps are omitted."""
    counts: dict[int, int] = {}
    for second in range(1, int(1.01 * steps * step_s) + 1):
        count = round(second / step_s)
        if count <= steps and abs(count * step_s - second) < 0.01 * second:
            counts[second] = count
    return counts


def score_agents(
    agents: ScoredAgents, step_s: float, plausibility: bool = False
) -> dict[Column, NDArray[np.floating]]:
    """Compute all metrics of each agent ``[A]``: of the whole future, and as if it ended after each second.

    NaN where a metric is undefined, and at horizons at which an agent is not visible.

    Args:
        step_s: seconds between steps; those of scenarios differ a little.
        plausibility: also compute plausibility and calibration.
    """
    steps = agents.valid.shape[1]
    kinds: list[Kind] = ["displacement"]
    if plausibility:
        kinds += ["plausibility", "calibration"]
    columns: list[Column] = []
    for kind in kinds:
        columns += columns_of(kind)
    values = _values(agents, columns, steps)
    ahead = headline(MODES)
    if plausibility:
        more = [metric for kind in kinds for metric in metrics_of(kind) if metric.ahead]
        more = [metric for metric in more if MODES not in metric.headline]
        ahead += [Column(metric, MODES if metric.kind == "displacement" else None) for metric in more]
    for second, step in whole_seconds(steps, step_s).items():
        visible = agents.valid[:, step - 1]
        columns = [column._replace(ahead=second) for column in ahead]
        for column, value in _values(agents, columns, step).items():
            values[column] = np.where(visible, value, np.nan)
    return values


def _values(
    agents: ScoredAgents, columns: Sequence[Column], steps: int
) -> dict[Column, NDArray[np.floating]]:
    """Compute the columns of each agent ``[A]`` as if the future ended after ``steps``."""
    values: dict[Column, NDArray[np.floating]] = {}
    for kind, of_kind in groupby(columns, lambda column: column.metric.kind):
        wanted = list(of_kind)
        if kind == "displacement":
            errors = agent_metrics(*tensors(agents, steps), columns=wanted)
            values |= {column: errors[column.title].float().numpy() for column in wanted}
            continue
        made = agents.until(steps) if kind == "plausibility" else true_levels(agents, wanted[0].ahead, steps)
        values |= {column: column.metric.compute(made) for column in wanted}
    return values


def tensors(agents: ScoredAgents, steps: int | None = None) -> list[torch.Tensor]:
    """Return the arguments of :func:`~trajpred.metrics.registry.agent_metrics` for the first ``steps``."""
    arrays = (
        agents.trajectory[:, :, :steps],
        agents.probability,
        agents.target[:, :steps],
        agents.valid[:, :steps],
        agents.heading[:, :, :steps],
        agents.target_heading[:, :steps],
    )
    return [torch.from_numpy(array) for array in arrays]


def best_modes(agents: ScoredAgents) -> NDArray[np.int64]:
    """Return the mode ``[A]`` with the least final error; the first one of an agent without a known step."""
    trajectory, _, target, valid, *_ = tensors(agents)
    error = final_error(trajectory, target, valid).numpy()
    return np.where(np.isnan(error), np.inf, error).argmin(axis=1)


def true_levels(agents: ScoredAgents, ahead: int | None, steps: int) -> NDArray[np.float64]:
    """Compute the levels ``[A, F, 2]`` of the intervals that just contain the truth, NaN where it is unknown.

    Of all steps in the mode with the best endpoint; with ``ahead`` of the last of the ``steps`` in the mode
    that is nearest then: :func:`~trajpred.metrics.calibration.laplace_levels` in each agent's own frame.
    """
    if agents.scale is None:
        return np.full((len(agents), 1, 2), np.nan)
    rows = np.arange(len(agents))
    scored = slice(steps)
    mode = best_modes(agents)
    if ahead is not None:
        scored = slice(steps - 1, steps)
        mode = norm(agents.target[:, None, steps - 1] - agents.trajectory[:, :, steps - 1]).argmin(1)
    error = agents.target[:, scored] - agents.trajectory[rows, mode, scored]
    error = rotate(error, -agents.origin_heading[:, None])
    levels = laplace_levels(error, agents.scale[rows, mode, scored])
    return np.where(agents.valid[:, scored, None], levels, np.nan)


def agents_table(
    agents: ScoredAgents, values: dict[Column, NDArray[np.floating]], plausibility: bool = False
) -> pa.Table:
    """Build the table of all agents with a future; metrics are null where undefined or not forecast."""
    truth = agents.truth
    table = pa.table(
        {
            "scenario_id": np.array(agents.scenario_ids)[truth["scene"]],
            **{name: truth[name] for name in ("track_id", *FACTS, *GROUPS)},
            "predicted": agents.predicted,
        }
    )

    def add(field: pa.Field, column: NDArray[Any]) -> None:
        full = np.full(len(agents.predicted), None if column.dtype == object else np.nan, column.dtype)
        full[agents.predicted] = column
        nonlocal table
        table = table.append_column(field, pa.array(full, field.type, from_pandas=True))

    if plausibility:  # what expected calibration errors are computed from
        probability = np.empty(len(agents), object)
        for row, count in enumerate(agents.modes.tolist()):
            probability[row] = agents.probability[row, :count]
        add(pa.field("probability", pa.list_(pa.float64())), probability)
        add(pa.field("best", pa.int64()), best_modes(agents).astype(float))
        add(pa.field("coordinates", pa.int64()), 2.0 * agents.valid.sum(axis=1))
    for column, value in values.items():
        add(agent_field(column), value)
    return table


def scenes_table(agents: ScoredAgents) -> pa.Table:
    """Return a row per scene and group of :data:`JOINT_GROUPS`: joint metrics, null if it is not joint.

    ``complete`` is False where an agent has no forecast; ``actors`` is the number of agents.
    """
    parts: list[pa.Table] = []
    for group in JOINT_GROUPS:
        S = len(agents.scenario_ids)
        actors = np.bincount(agents.scene[agents.member[group]], minlength=S)
        columns: dict[str, Any] = {
            "scenario_id": agents.scenario_ids,
            "group": [group] * S,
            "complete": ~agents.incomplete[group],
            "actors": actors,
        }
        rows = np.flatnonzero(agents.joint[group])
        found = score_joint(agents, rows) if len(rows) else {}
        for metric in metrics_of("joint"):
            values = np.full(S, np.nan)
            if metric.name in found:
                values[np.unique(agents.scene[rows])] = found[metric.name].numpy()
            columns[metric.name] = pa.array(values, from_pandas=True)
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def score_joint(agents: ScoredAgents, rows: NDArray[np.int64]) -> dict[str, torch.Tensor]:
    """Compute the joint metrics ``[S]`` by name of the scenes of the agents ``rows``."""
    _, first, scene = np.unique(agents.scene[rows], return_index=True, return_inverse=True)
    return joint_metrics(
        torch.from_numpy(agents.trajectory[rows]),
        torch.from_numpy(agents.probability[rows][first]),
        torch.from_numpy(agents.target[rows]),
        torch.from_numpy(agents.valid[rows]),
        torch.from_numpy(scene),
    )
