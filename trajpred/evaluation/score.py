"""Score a predictor on the labelled scenarios of a store: a row per agent, and per scene of joint futures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trajpred.data.forecast import Forecast
from trajpred.data.geometry import norm, rotate
from trajpred.data.registry import foreign
from trajpred.data.scenario import Scenario
from trajpred.data.splits import GROUPS
from trajpred.errors import DataError
from trajpred.evaluation.agents import (
    JOINT_GROUPS,
    ScoredAgents,
    best_modes,
    groups_of,
    require_step,
    score_joint,
    tensors,
    whole_seconds,
)
from trajpred.evaluation.av2_check import Av2Check
from trajpred.evaluation.recordings import Scenes
from trajpred.evaluation.results import Evaluation, environment, store_facts
from trajpred.evaluation.table import FACTS, agent_field
from trajpred.evaluation.updates import score_streams
from trajpred.metrics import (
    METRICS,
    Column,
    agent_metrics,
    columns_of,
    headline,
    metrics_of,
)
from trajpred.metrics.calibration import laplace_levels
from trajpred.metrics.registry import MODES
from trajpred.predictors.checkpoint import code_of
from trajpred.predictors.derived import StreamedForecast, completed
from trajpred.predictors.predictions_file import reasons, require_scenes
from trajpred.predictors.predictor import Predictor, forecast_store
from trajpred.store import ScenarioStore

#: Join the tables of this many batches at once.
AT_ONCE = 64


def evaluate(
    predictor: Predictor,
    store: ScenarioStore,
    *,
    batch_size: int = 16,
    limit: int | None = None,
    plausibility: bool = False,
    workers: int = 1,
    check_with_av2: bool = False,
    complete: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Compute the metrics of a predictor over a split.

    Args:
        predictor: a model, a baseline, a predictions file or an ensemble; with a
            :class:`~trajpred.predictors.derived.StreamedPredictor`, also the metrics of updates.
        store: the split.
        batch_size: scenarios at once per process.
        limit: only the first ``limit`` scenarios.
        plausibility: also compute plausibility and calibration, which takes longer.
        workers: as in :func:`~trajpred.predictors.predictor.forecast_store`.
        check_with_av2: also compute the metrics with av2's own functions, and compare.
        complete: score the agents that the predictor leaves out as predicted at constant velocity.
        progress: show a progress bar.

    Raises:
        DataError: no scenario has a recorded future, scenarios differ in length, or the predictor forecasts
            no scored agent.
    """
    _ = store.lengths  # raises if there are several: errors at 3 s and 6 s have no common mean
    check = Av2Check() if check_with_av2 else None
    start = time.monotonic()
    agents_rows = _Rows()
    scenes_rows = _Rows()
    scored = Scenes(dict(zip(store.scenario_ids, store.recordings, strict=True)))
    scenarios_scored = 0
    left_out: Counter[str] = Counter()
    many_modes: Counter[str] = Counter()
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
        many_modes.update(_many_modes(forecasts))
        if complete:
            left_out.update(_left_out(forecasts, scenarios))
            forecasts = [completed(*pair) for pair in zip(forecasts, scenarios, strict=True)]
        agents = ScoredAgents.of(scenarios, forecasts, predictor.joint)
        step_s = step_s or agents.step_s
        require_step(agents.step_s, step_s, scenarios[0].scenario_id)
        recorded = scenarios[0].num_steps - scenarios[0].num_observed
        seconds = [round(steps * step_s, 2) for steps in (agents.valid.shape[1], recorded)]
        scenarios_scored += len(scenarios)
        scored.add(scenarios)
        values = score_agents(agents, step_s, plausibility)
        if isinstance(forecasts[0], StreamedForecast):
            values |= score_streams(scenarios, forecasts, agents, step_s)
        agents_rows.add(agents_table(agents, values, plausibility))
        scenes_rows.add(scenes_table(agents))
        if check is not None:
            check.add(agents)
    if not scenarios_scored:
        raise DataError(_nothing_to_score(store), file=store.path)
    require_scenes(predictor, scored.digests)
    table = scored.joined(agents_rows.table())
    if not pc.any(table["predicted"]).as_py() or left_out["all"] == len(table):
        raise DataError(_nothing_forecast(predictor, store))
    code = {name: metric.compute for name, metric in METRICS.items()} | code_of(predictor)
    return Evaluation.of_tables(
        table,
        scored.joined(scenes_rows.table()),
        predictor=predictor.name,
        how=predictor.how,
        packages=foreign(code),
        training=dict(predictor.training),
        split=store.split,
        half=store.half,
        observed_s=store.observed_s,
        store=store_facts(store.path),
        scenarios=scenarios_scored,
        seconds=seconds,
        completed=dict(left_out),
        many_modes=dict(many_modes),
        faults=reasons(predictor, store.split_ids),
        av2=check.summary() if check is not None else {},
        environment={**environment(), "wall_s": round(time.monotonic() - start, 1)},
    )


def _many_modes(forecasts: Sequence[Forecast]) -> Counter[str]:
    """Count the tracks with more modes than metrics use, by their number of modes."""
    count: Counter[str] = Counter()
    for forecast in forecasts:
        modes = forecast.probability.shape[1]
        if modes > MODES:
            count[str(modes)] += len(forecast.track_id)
    return count


def _left_out(forecasts: Sequence[Forecast], scenarios: Sequence[Scenario]) -> Counter[str]:
    """Count the agents of each group that the forecasts lack."""
    count: Counter[str] = Counter()
    for forecast, scenario in zip(forecasts, scenarios, strict=True):
        is_lacking = ~np.isin(scenario.tracks.track_id, forecast.track_id)
        for group, member in groups_of(scenario).items():
            count[group] += int((member & is_lacking).sum())
    return count


class _Rows:
    """Rows from small tables, which take several times the memory of their values until joined."""

    def __init__(self) -> None:
        self.recent: list[pa.Table] = []
        self.joined: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        """Add a table; joined at intervals, so that each is copied once."""
        self.recent.append(table)
        if len(self.recent) == AT_ONCE:
            self.joined.append(_joined(self.recent).combine_chunks())
            self.recent = []

    def table(self) -> pa.Table:
        return _joined([*self.joined, *self.recent])


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables; columns missing in a table are null there."""
    return pa.concat_tables(tables, promote_options="default")


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


def score_agents(
    agents: ScoredAgents, step_s: float, plausibility: bool = False
) -> dict[Column, NDArray[np.floating]]:
    """Compute all metrics of each agent ``[A]``: for the whole future, and as if it ended after each second.

    NaN where a metric is undefined, and at horizons where an agent is not visible.

    Args:
        step_s: seconds between steps; scenarios differ slightly.
        plausibility: also compute plausibility and calibration.
    """
    steps = agents.valid.shape[1]
    whole = columns_of("displacement")
    ahead = headline(MODES)
    if plausibility:
        whole += columns_of("plausibility") + columns_of("calibration")
        more = [column for column in whole if column.metric.ahead and column.k in (None, MODES)]
        ahead += [column for column in more if MODES not in column.metric.headline]
    values = _values(agents, whole, steps)
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
    errors = [column for column in columns if column.metric.kind == "displacement"]
    computed = agent_metrics(*tensors(agents, steps), columns=errors)
    until = agents.until(steps)
    levels: NDArray[np.float64] | None = None
    values: dict[Column, NDArray[np.floating]] = {}
    for column in columns:
        if column.metric.kind == "displacement":
            values[column] = computed[column.title].float().numpy()
        elif column.metric.kind == "plausibility":
            values[column] = column.metric.values(until, len(agents))
        else:
            if levels is None:
                levels = true_levels(agents, column.ahead, steps)
            values[column] = column.metric.values(levels, len(agents))
    return values


def true_levels(agents: ScoredAgents, ahead: int | None, steps: int) -> NDArray[np.float64]:
    """Compute the levels ``[A, F, 2]`` of the intervals that just contain the truth; NaN where it is unknown.

    For all steps, in the mode with the best endpoint; with ``ahead``, for the last of the ``steps``, in the
    mode nearest then. See :func:`~trajpred.metrics.calibration.laplace_levels`; in each agent's own frame.
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
    known = {name: truth[name] for name in ("track_id", *FACTS, *GROUPS)}
    scenario_ids = np.array(agents.scenario_ids)[truth["scene"]]
    table = pa.table({"scenario_id": scenario_ids, **known, "predicted": agents.predicted})
    computed: dict[pa.Field, NDArray[Any]] = {}
    if plausibility:  # the input of expected calibration errors
        probability = np.empty(len(agents), object)
        for row, count in enumerate(agents.modes.tolist()):
            probability[row] = agents.probability[row, :count]
        computed[pa.field("probability", pa.list_(pa.float64()))] = probability
        computed[pa.field("best", pa.int64())] = best_modes(agents).astype(float)
        computed[pa.field("coordinates", pa.int64())] = 2.0 * agents.valid.sum(axis=1)
    for column, value in values.items():
        computed[agent_field(column)] = value
    for field, value in computed.items():
        full = np.full(len(agents.predicted), None if value.dtype == object else np.nan, value.dtype)
        full[agents.predicted] = value
        table = table.append_column(field, pa.array(full, field.type, from_pandas=True))
    return table


def scenes_table(agents: ScoredAgents) -> pa.Table:
    """Return a row per scene and group of :data:`JOINT_GROUPS`: joint metrics, null if it is not joint.

    ``complete`` is False if an agent has no forecast; ``actors`` is the number of agents.
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
