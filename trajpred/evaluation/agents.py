"""The agents of an evaluation: facts about them, and their forecasts beside their true futures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.data.forecast import SAME_PROBABILITY, Forecast
from trajpred.data.geometry import Pose, last_step, norm, relative_pose, wrap_angle
from trajpred.data.motion import heading_known, steady_heading
from trajpred.data.scenario import Scenario
from trajpred.data.splits import GROUPS
from trajpred.data.time import SAME_STEP
from trajpred.data.tracks import OBJECT_TYPES, agent_groups
from trajpred.errors import require
from trajpred.features.agents import last_poses
from trajpred.metrics import final_error, joint_metrics
from trajpred.metrics.plausibility import Futures
from trajpred.store.reader import ADVICE

#: The groups whose joint futures are scored.
JOINT_GROUPS = ("scored", "all")
#: The columns of the truth for scored agents.
OF_TRUTH = (
    *("scene", "track_id", "object_type", "size", "origin", "origin_heading", "velocity"),
    *("target", "target_heading", "valid"),
)
#: Neighbours are the other agents within this distance (metres) at the last observed step.
NEIGHBOUR_M = 30.0
#: Manoeuvres in order of precedence; ``straight`` is the rest.
MANOEUVRES = ("stationary", "U-turn", "left turn", "right turn", "lane change", "straight")
#: A stationary agent stays within this distance (metres) of its origin.
STATIONARY_M = 2.0
#: Change of heading (radians) beyond which a future is a turn.
TURN = np.deg2rad(30.0)
#: Change of heading (radians) beyond which a turn is a U-turn.
U_TURN = np.deg2rad(135.0)
#: A lane change ends farther than this to the side (metres) …
ASIDE_M = 2.5
#: … at most at this slope …
SLOPE = 0.25
#: … and turns by less than this (radians).
PARALLEL = np.deg2rad(10.0)


def groups_of(scenario: Scenario, steps: int | None = None) -> dict[str, NDArray[np.bool_]]:
    """Return which tracks ``[A]`` are in each group: visible at the last observed step, with a future.

    Only the first ``steps`` future steps count, by default all.
    """
    tracks = scenario.tracks
    start = scenario.num_observed
    end = scenario.num_steps if steps is None else start + steps
    future = tracks.valid[:, start:end]
    distance = norm(tracks.position[:, end - 1] - tracks.position[:, start - 1])
    is_evaluated = tracks.valid[:, start - 1] & future.any(axis=1)
    return agent_groups(tracks.category, is_evaluated, future.all(axis=1), distance)


def truth_of(scenarios: Sequence[Scenario], steps: int) -> dict[str, NDArray[Any]]:
    """Return facts about the ``N`` agents of the group ``all``, by column; ``scene`` ``[N]`` is ascending.

    Headings that data lack are NaN in the future, and completed as for models at the last observed step;
    single headings turned by π are turned back.
    """
    parts: list[dict[str, NDArray[Any]]] = []
    for scene, scenario in enumerate(scenarios):
        part = _truth(scenario, steps)
        part["scene"] = np.full(len(part["track_id"]), scene)
        parts.append(part)
    columns: dict[str, NDArray[Any]] = {}
    for name in parts[0]:
        columns[name] = np.concatenate([part[name] for part in parts])
    return columns


def _truth(scenario: Scenario, steps: int) -> dict[str, NDArray[Any]]:
    """Return the columns of :func:`truth_of` for one scenario, without ``scene``."""
    groups = groups_of(scenario, steps)
    rows = np.flatnonzero(groups["all"])
    tracks = scenario.tracks
    now = scenario.num_observed - 1
    future = slice(now + 1, now + 1 + steps)
    valid = tracks.valid[rows, future]
    position = tracks.position[rows, now]
    velocity = tracks.velocity[rows, now]
    target = tracks.position[rows, future]

    has_heading = heading_known(tracks.heading[rows], tracks.position[rows], tracks.valid[rows])
    steady = steady_heading(tracks.heading[rows], has_heading, scenario.step_s)
    heading = np.where(has_heading[:, now], steady[:, now], last_poses(scenario, rows).heading)
    target_heading = np.where(has_heading, steady, np.nan)[:, future]

    is_visible = tracks.valid[:, now]
    distance = norm(position[:, None] - tracks.position[None, is_visible, now])
    last = last_step(valid)
    end_at_constant_velocity = position + velocity * ((last + 1) * scenario.step_s)[:, None]
    frame = Pose(position[:, None], heading[:, None])
    local = relative_pose(Pose(target, target_heading), frame)
    manoeuvre = manoeuvres(local.position, local.heading, valid)
    return {
        **{group: groups[group][rows] for group in GROUPS},
        "track_id": tracks.track_id[rows],
        "target": target,
        "target_heading": target_heading,
        "valid": valid,
        "object_type": tracks.object_type[rows],
        "size": tracks.box()[rows],
        "origin": position,
        "origin_heading": heading,
        "velocity": velocity,
        "class": np.array(OBJECT_TYPES)[tracks.object_type[rows]],
        "city": np.full(len(rows), scenario.city or "unknown"),
        "manoeuvre": np.array(MANOEUVRES)[manoeuvre],
        "speed": norm(velocity),
        "neighbours": (distance <= NEIGHBOUR_M).sum(axis=1) - 1,  # without itself
        "error": norm(end_at_constant_velocity - target[np.arange(len(rows)), last]),
    }


def manoeuvres(
    future: NDArray[np.float64], heading: NDArray[np.float64], valid: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Classify each agent's manoeuvre by its future up to the last valid step: index into :data:`MANOEUVRES`.

    ``stationary`` without a valid step. The map is not used: a bend in the road is a turn, and a lane change
    on a bend is not detected.

    Args:
        future: ``[A, F, 2]`` metres in the agent's own frame at the last observed step (x ahead, y left).
        heading: ``[A, F]`` radians in that frame; NaN where unknown, which counts as no turn.
        valid: ``[A, F]``.
    """
    row = np.arange(len(valid))
    last = last_step(valid)
    x, y = future[row, last].T
    turned = wrap_angle(heading[row, last])
    farthest = np.where(valid, norm(future), 0.0).max(axis=1, initial=0.0)
    conditions = (
        farthest < STATIONARY_M,
        abs(turned) > U_TURN,
        turned > TURN,
        turned < -TURN,
        (abs(y) > ASIDE_M) & (abs(y) < SLOPE * x) & (abs(turned) < PARALLEL),
        np.ones(len(valid), bool),
    )
    return np.stack(conditions).argmax(axis=0)


@dataclass(frozen=True)
class ScoredAgents(Futures):
    """``A`` agents of several scenarios with a forecast and a true future, grouped by scenario.

    In scenarios with fewer modes than others, the first mode is repeated with probability 0.

    Attributes:
        scenario_ids: ``S`` ids, indexed by ``scene`` ``[A]``.
        track_id: ``[A]`` strings.
        truth: columns ``[N]`` of all agents with a future (:func:`~trajpred.evaluation.agents.truth_of`).
        predicted: ``[N]`` bool, True for the ``A`` agents with a forecast.
        member: for each of :data:`GROUPS` ``[A]`` bool.
        target_heading: ``[A, F]`` radians, of the true futures; NaN where the data lack it.
        scale: ``[A, K, F, 2]`` Laplace scales in each agent's own frame; None unless all forecasts have them.
        joint: for each of :data:`JOINT_GROUPS` ``[A]`` bool, True for agents whose scenario is fully
            predicted for that group, with one probability per mode.
        incomplete: for each of :data:`JOINT_GROUPS` ``[S]`` bool, scenarios without a forecast for one of its
            agents.
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
        for name in OF_TRUTH:
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
            maps=[scenario.map for scenario in scenarios],
            step_s=scenarios[0].step_s,
            truth=truth,
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
        recorded = scenario.num_future
        longer = f"{scenario.scenario_id}: forecast of {count} steps, {recorded} are known"
        require(recorded >= count, "trajectory", longer)
        require_step(scenario.step_s, scenarios[0].step_s, scenario.scenario_id)
    return count


def require_step(step_s: float, usual: float, scenario_id: str) -> None:
    """Raise :class:`DataError` unless time steps are equal up to :data:`~trajpred.data.time.SAME_STEP`."""
    problem = f"{scenario_id}: steps of {step_s:g} s and of {usual:g} s cannot be evaluated together"
    require(abs(step_s - usual) < SAME_STEP * usual, "step_s", f"{problem}; {ADVICE}")


def _forecast_columns(forecast: Forecast, track_id: NDArray[np.str_], modes: int) -> dict[str, NDArray[Any]]:
    """Return ``predicted`` ``[N]``, and columns for the predicted ones of the tracks ``track_id`` ``[N]``."""
    row = forecast.rows(track_id)
    predicted = row >= 0
    row = row[predicted]
    for name in ("trajectory", "probability"):
        finite = bool(np.isfinite(getattr(forecast, name)[row]).all())
        require(finite, name, f"{forecast.scenario_id}: forecast is not finite")
    # Fill up modes with the first one, with probability 0.
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

    Mode k of all candidates is then one joint mode.
    """
    rows = np.flatnonzero(candidate)
    first = np.searchsorted(scene[rows], scene[rows])  # of each agent's scene
    differ = np.abs(probability[rows] - probability[rows][first]).max(axis=1, initial=0.0) > SAME_PROBABILITY
    return candidate & ~np.isin(scene, scene[rows][differ])


def whole_seconds(steps: int, step_s: float) -> dict[int, int]:
    """Map the whole seconds within ``steps`` to numbers of steps; seconds between steps are omitted."""
    counts: dict[int, int] = {}
    for second in range(1, int(1.01 * steps * step_s) + 1):
        count = round(second / step_s)
        if count <= steps and abs(count * step_s - second) < 0.01 * second:
            counts[second] = count
    return counts


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
    """Return the mode ``[A]`` with the least final error; the first one for agents without a known step."""
    trajectory, _, target, valid, *_ = tensors(agents)
    error = final_error(trajectory, target, valid).numpy()
    return np.where(np.isnan(error), np.inf, error).argmin(axis=1)


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
