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
from trajpred.evaluation.origin import environment, store_facts
from trajpred.evaluation.results import Evaluation
from trajpred.evaluation.table import FACTS, agent_field
from trajpred.evaluation.updates import score_streams
from trajpred.metrics import METRICS, Column, agent_metrics, columns_of, headline, metrics_of
from trajpred.metrics.calibration import laplace_levels
from trajpred.metrics.registry import MODES
from trajpred.predictors.checkpoint import code_of
from trajpred.predictors.derived import StreamedForecast, completed
from trajpred.predictors.predictions_file import reasons, require_scenes
from trajpred.predictors.predictor import Predictor, forecast_store
from trajpred.store import ScenarioStore

#: Join the tables of this many batches at once.
AT_ONCE = 64
#: Fewer recordings than this are divided into blocks of time.
FEW_RECORDINGS = 10
#: Least and greatest length of a block of time, in windows. Windows at a border overlap two blocks: with
#: blocks of k windows, the variance of a mean is underestimated by 1 / (3 k).
BLOCK_WINDOWS = (3.0, 6.0)
#: Blocks are lengthened only while at least this many remain.
MANY_BLOCKS = 12


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
        batch_size, limit, workers, progress: as in :func:`~trajpred.predictors.predictor.forecast_store`.
        plausibility: also compute plausibility and calibration, which takes longer.
        check_with_av2: also compute the metrics with av2's own functions, and compare.
        complete: score the agents that the predictor leaves out as predicted at constant velocity.

    Raises:
        DataError: no scenario has a recorded future, scenarios differ in length, or the predictor forecasts
            no scored agent.
    """
    _ = store.lengths  # raises if there are several: errors at 3 s and 6 s have no common mean
    start = time.monotonic()
    scores = _Scores(store, plausibility, Av2Check() if check_with_av2 else None)
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
        scores.many_modes.update(_many_modes(forecasts))
        if complete:
            scores.left_out.update(_left_out(forecasts, scenarios))
            forecasts = [completed(*pair) for pair in zip(forecasts, scenarios, strict=True)]
        scores.add(scenarios, forecasts, predictor.joint)
    if not scores.digests:
        raise DataError(_nothing_to_score(store), file=store.path)
    require_scenes(predictor, scores.digests)
    table = scores.with_scenes(scores.agents)
    if not pc.any(table["predicted"]).as_py() or scores.left_out["all"] == len(table):
        raise DataError(_nothing_forecast(predictor, store))
    code = {name: metric.compute for name, metric in METRICS.items()} | code_of(predictor)
    return Evaluation.of_tables(
        table,
        scores.with_scenes(scores.scenes),
        predictor=predictor.name,
        how=predictor.how,
        packages=foreign(code),
        training=dict(predictor.training),
        split=store.split,
        half=store.half,
        observed_s=store.observed_s,
        store=store_facts(store.path),
        scenarios=len(scores.digests),
        seconds=scores.seconds,
        completed=dict(scores.left_out),
        many_modes=dict(scores.many_modes),
        faults=reasons(predictor, store.split_ids),
        av2=scores.check.summary() if scores.check is not None else {},
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


class _Scores:
    """The scores of all batches so far, and the scored scenes.

    Attributes:
        check: compares the metrics with av2's, if requested.
        agents: rows of :func:`agents_table`.
        scenes: rows of :func:`scenes_table`.
        digests: :attr:`~trajpred.data.scenario.Scenario.digest` of each scored scenario, by id.
        step_s: seconds between steps.
        seconds: scored and recorded seconds of the futures.
        left_out: number of agents of each group that were not forecast but completed.
        many_modes: number of tracks with more modes than metrics use, by their number of modes.
    """

    def __init__(self, store: ScenarioStore, plausibility: bool, check: Av2Check | None) -> None:
        self.plausibility = plausibility
        self.check = check
        self.agents = _Rows()
        self.scenes = _Rows()
        self.digests: dict[str, int] = {}
        self.step_s = 0.0
        self.seconds: list[float] = []
        self.left_out: Counter[str] = Counter()
        self.many_modes: Counter[str] = Counter()
        self._recordings = dict(zip(store.scenario_ids, store.recordings, strict=True))
        self._start_s: list[float] = []
        self._window_s = 0.0

    def add(self, scenarios: Sequence[Scenario], forecasts: Sequence[Forecast], joint: bool) -> None:
        """Score a batch; ``joint`` as for :meth:`ScoredAgents.of`."""
        agents = ScoredAgents.of(scenarios, forecasts, joint)
        step_s = self.step_s or agents.step_s
        require_step(agents.step_s, step_s, scenarios[0].scenario_id)
        self.step_s = step_s
        scored_steps = agents.valid.shape[1]
        self.seconds = [round(steps * step_s, 2) for steps in (scored_steps, scenarios[0].num_future)]
        for scenario in scenarios:
            self.digests[scenario.scenario_id] = scenario.digest
            self._start_s.append(float(scenario.timestamps_ns[0]) * 1e-9)
            self._window_s = max(self._window_s, scenario.num_steps * scenario.step_s)
        values = score_agents(agents, step_s, self.plausibility)
        if isinstance(forecasts[0], StreamedForecast):
            values |= score_streams(scenarios, forecasts, agents, step_s)
        self.agents.add(agents_table(agents, values, self.plausibility))
        self.scenes.add(scenes_table(agents))
        if self.check is not None:
            self.check.add(agents)

    def with_scenes(self, rows: _Rows) -> pa.Table:
        """Return ``rows`` with the columns :data:`~trajpred.evaluation.table.SCENE` after the first one."""
        table = rows.table()
        ids = list(self.digests)
        recordings = [self._recordings[name] for name in ids]
        of_windows = units(recordings, np.array(self._start_s), self._window_s)
        index = pc.index_in(table["scenario_id"], pa.array(ids))
        table = table.add_column(1, "recording", pa.chunked_array([of_windows]).take(index))
        digests = pa.chunked_array([pa.array(list(self.digests.values()), pa.int64())])
        return table.add_column(2, "digest", digests.take(index))


def units(recordings: Sequence[str], start_s: NDArray[np.float64], window_s: float) -> list[str]:
    """Return the unit of each window ``[S]`` for intervals: its recording, or a block of time in it.

    Overlapping windows are not independent. Fewer recordings than :data:`FEW_RECORDINGS` are divided into
    equal blocks of at least :data:`BLOCK_WINDOWS` windows (longer if more time was recorded), so that windows
    of two blocks overlap only at the border.

    Args:
        recordings: recording of each window.
        start_s: ``[S]`` seconds at which the windows start.
        window_s: length of a window in seconds.

    Example:
        >>> units(["a", "a", "a"], np.array([0.0, 1.0, 70.0]), 11.0)
        ['a 0', 'a 0', 'a 1']
    """
    names, recording = np.unique(list(recordings), return_inverse=True)
    alone = len(names) == len(recordings)  # no two windows share a recording
    if alone or len(names) >= FEW_RECORDINGS:
        return list(recordings)
    first = np.full(len(names), np.inf)
    np.minimum.at(first, recording, start_s)
    last = np.full(len(names), -np.inf)
    np.maximum.at(last, recording, start_s)
    length = last - first
    windows = np.clip(length.sum() / window_s / MANY_BLOCKS, *BLOCK_WINDOWS)
    # Blocks of a recording have the same length: a short rest would count as a unit, and vary more.
    blocks = np.maximum(np.floor(length / (windows * window_s) + 1e-6), 1)
    block_s = np.maximum(length / blocks, window_s)
    block = ((start_s - first[recording]) / block_s[recording]).astype(int)
    block = np.minimum(block, blocks[recording].astype(int) - 1)
    return [f"{name} {number}" for name, number in zip(recordings, block.tolist(), strict=True)]


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
        slow = [column for column in whole if column.metric.ahead and column.k in (None, MODES)]
        ahead += [column for column in slow if MODES not in column.metric.headline]
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
    """Compute the columns ``[A]``, which share ``ahead``, as if the future ended after ``steps``."""
    errors = [column for column in columns if column.metric.kind == "displacement"]
    computed = agent_metrics(*tensors(agents, steps), columns=errors)
    until = agents.until(steps)
    calibration = [column for column in columns if column.metric.kind == "calibration"]
    levels = true_levels(agents, calibration[0].ahead, steps) if calibration else None
    values: dict[Column, NDArray[np.floating]] = {}
    for column in columns:
        kind = column.metric.kind
        if kind == "displacement":
            values[column] = computed[column.title].float().numpy()
        else:
            scored = until if kind == "plausibility" else levels
            values[column] = column.metric.values(scored, len(agents))
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
    facts = {name: truth[name] for name in ("track_id", *FACTS, *GROUPS)}
    scenario_ids = np.array(agents.scenario_ids)[truth["scene"]]
    table = pa.table({"scenario_id": scenario_ids, **facts, "predicted": agents.predicted})
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
        metrics = score_joint(agents, rows) if len(rows) else {}
        for metric in metrics_of("joint"):
            values = np.full(S, np.nan)
            if metric.name in metrics:
                values[np.unique(agents.scene[rows])] = metrics[metric.name].numpy()
            columns[metric.name] = pa.array(values, from_pandas=True)
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)
