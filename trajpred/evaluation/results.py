"""The result of an evaluation: a table of agents, its summary, its files, and its origin."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trajpred.data.files import atomic_file, require_file
from trajpred.data.splits import GROUPS, PAIRED_GROUPS
from trajpred.errors import DataError, require
from trajpred.evaluation.table import SCENE, compared_in, members, numbers, whole_columns
from trajpred.metrics import metrics_of
from trajpred.metrics.registry import MODES

#: Version of the files: it changes with the meaning of a key, not with new keys.
VERSION = 6
#: Attributes that are tables or computed from them; a file of tables has the others in its header.
OF_TABLES = ("missing", "metrics", "per_scenario", "agents", "scenes")
#: The key of the header in the metadata of a parquet file.
HEADER = b"trajpred"
#: Largest plausible metric in metres, seconds or fractions; sums of such numbers do not overflow.
LARGEST = 1e12
#: Columns of the per-scenario tables besides the means.
TYPES = {"scenario_id": pa.string(), "count": pa.int64(), "ids": pa.int64()}
#: Optional columns of these tables.
OPTIONAL = {"recording": pa.string(), "digest": pa.int64()}
#: Types of the facts about trainings, stores and machines that tables use.
_FACTS: dict[str, Any] = {
    **dict.fromkeys(("recipe", "weights", "gpu"), str | None),
    **dict.fromkeys(("trajpred", "torch", "commit"), str),
    "wall_s": float,
    "store": dict[str, Any],
    "environment": dict[str, Any],
    "scenarios": dict[str, int],
}


def listing(*parts: str, by: str = ", ") -> str:
    """Join the non-empty parts."""
    return by.join(filter(None, parts))


@dataclass(frozen=True)
class Evaluation:
    """The result of :func:`trajpred.evaluation.evaluate`.

    Attributes:
        predictor: name of the predictor.
        split: split of the store.
        scenarios: number of labelled scenarios evaluated.
        missing: ``missing[group]`` agents without a forecast, which are not counted in any metric, and
            ``scenarios`` in which no agent has one.
        completed: by group, the agents without a forecast that are scored at constant velocity, if these were
            to be completed.
        many_modes: by number of modes, the predicted tracks with more modes than metrics use.
        faults: the most frequent kinds of faults of predictions files, with examples.
        metrics: means over agents, ``metrics[group][name]``, groups ``focal``, ``scored`` (focal included),
            ``moving``, ``all``; ``count`` is the number of agents.
        joint: ``joint[group][name]`` for the groups ``scored`` and ``all``: means of the joint metrics over
            scenes, ``count`` of joint scenes, numbers of ``actors`` and of ``incomplete`` scenes.
        per_scenario: for the groups ``focal`` and ``moving`` a table of the scenarios with such agents:
            ``scenario_id``, its ``recording`` and ``digest``, their ``count``, a checksum of their ``ids``,
            and their means of :func:`~trajpred.evaluation.table.compared_in` (metres, to 0.1 mm).
        packages: the package of each metric, predictor, encoder or decoder from outside trajpred, by its
            name.
        training: the checkpoint's record of its training (:class:`trajpred.training.TrainingRecord`).
        store: the data (:func:`store_facts`).
        environment: code and machine (:func:`environment`), and ``wall_s``.
        av2: if compared, by metric, the means over all agents by trajpred's and av2's functions, and the
            largest ``difference``.
        how: the predictor's way of forecasting, if it has several: ``joint``, ``calibrated`` …
        seconds: seconds of the future that were scored, and that are known; a predictor's horizon may be
            shorter than the data's.
        half: half of the split, one of :data:`~trajpred.data.splits.HALVES`, or empty for all of it.
        observed_s: seconds of history before the forecasts, if they differ from the recordings'; else 0.
        agents: a row per agent with a future (docs/how-to/evaluate.md); None for a summary from a JSON file.
        scenes: a row per scene and group of joint futures; None for a summary from a JSON file.
    """

    predictor: str
    split: str
    scenarios: int
    missing: dict[str, int]
    metrics: dict[str, dict[str, float]]
    per_scenario: dict[str, pa.Table] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    store: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    joint: dict[str, dict[str, float]] = field(default_factory=dict)
    av2: dict[str, dict[str, float]] = field(default_factory=dict)
    how: str = ""
    seconds: list[float] = field(default_factory=list)
    half: str = ""
    observed_s: float = 0.0
    completed: dict[str, int] = field(default_factory=dict)
    many_modes: dict[str, int] = field(default_factory=dict)
    faults: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    agents: pa.Table | None = None
    scenes: pa.Table | None = None

    @classmethod
    def of_tables(cls, agents: pa.Table, scenes: pa.Table | None, **facts: Any) -> Evaluation:
        """Summarise the tables; ``facts`` are the other attributes."""
        metrics: dict[str, dict[str, float]] = {}
        missing: dict[str, int] = {}
        predicted = agents["predicted"].to_numpy()
        for group in GROUPS:
            member = agents[group].to_numpy()
            chosen = member & predicted
            metrics[group] = {"count": int(chosen.sum())}
            missing[group] = int(member.sum() - chosen.sum())
            for column in whole_columns(agents):
                values = numbers(agents, column.name)[chosen]
                if not column.metric.weight and not np.isnan(values).all():
                    metrics[group][column.name] = float(np.nanmean(values))
        covered = pc.count_distinct(agents["scenario_id"].filter(agents["predicted"])).as_py()
        missing["scenarios"] = facts["scenarios"] - covered
        return cls(
            **facts,
            agents=agents,
            scenes=scenes,
            metrics=metrics,
            missing=missing,
            joint={} if scenes is None else joint_means(scenes),
            per_scenario={group: _per_scenario(agents, group) for group in PAIRED_GROUPS},
        )

    def __repr__(self) -> str:
        focal = self.metrics.get("focal", {})
        text = f"{self.predictor}: {self.data}, focal agents"
        for name in ("minADE6", "minFDE6"):
            if name in focal:
                text += f", {name} {focal[name]:.2f}"
        return f"Evaluation({text})"

    @property
    def data(self) -> str:
        """For example ``4,007 scenarios of val, reporting half``."""
        return listing(f"{self.scenarios:,} scenarios of {self.split}", self.part)

    @property
    def covered(self) -> str:
        """The number of scenarios; ``40 of 616`` if the others have no forecast at all."""
        missing = self.missing.get("scenarios", 0)
        if not missing:
            return f"{self.scenarios:,}"
        return f"{self.scenarios - missing:,} of {self.scenarios:,}"

    @property
    def part(self) -> str:
        """``reporting half, after 0.5 s`` if a part of the data was evaluated, else empty."""
        half = f"{self.half} half" if self.half else ""
        observed = f"after {self.observed_s:g} s" if self.observed_s else ""
        return listing(half, observed)

    @property
    def partly(self) -> str:
        """``3 of 6 s`` if a part of the future was scored, else empty."""
        scored, recorded = self.seconds or (0.0, 0.0)
        return f"{scored:g} of {recorded:g} s" if scored != recorded else ""

    @property
    def others(self) -> str:
        """``maxFDE of my-lab 1.0`` for parts from other packages, else empty."""
        return ", ".join(f"{name} of {package}" for name, package in self.packages.items())

    @property
    def scored_modes(self) -> str:
        """The tracks with more modes than metrics use, in a sentence; else empty."""
        if not self.many_modes:
            return ""
        counts = sorted(map(int, self.many_modes))
        modes = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
        tracks = f"{self.predictor}: {sum(self.many_modes.values()):,} tracks have {modes} modes"
        return f"{tracks}, of which metrics of K = {MODES} use the {MODES} most probable"

    @property
    def notes(self) -> list[str]:
        """What means do not show: agents without a forecast, modes that are not scored, faults of files."""
        fates = {
            "are not counted in any metric": self.missing,
            "are scored at constant velocity": self.completed,
        }
        notes = [self.scored_modes]
        for fate, counts in fates.items():
            if counts.get("all"):
                of_groups = ", ".join(f"{group}: {counts[group]:,}" for group in GROUPS)
                notes.append(f"{self.predictor}: agents without a forecast {fate} ({of_groups})")
        if self.faults:
            notes.append(f"{self.predictor}: faults: {self.faults}")
        return [f"{note}." for note in notes if note]

    @property
    def recipe(self) -> str:
        """Name shared by the seeds of one recipe and way of forecasting; a baseline's own name."""
        trained = self.training.get("recipe")
        if not trained:
            return self.predictor
        weights = self.training.get("weights")
        start = f"from {weights}" if weights else ""
        return listing(trained, start, self.how)

    def by_scenario(self, metric: str, group: str = "focal") -> dict[str, float]:
        """Return the mean of ``metric`` over the agents of ``group`` by scenario, NaN where it is unknown.

        Raises: DataError if it is not recorded.
        """
        rows = self.rows(group)
        if metric not in rows.column_names:
            raise DataError(f"the result of {self.predictor} has no {metric} of {group} agents by scenario")
        return dict(zip(rows["scenario_id"].to_pylist(), numbers(rows, metric).tolist(), strict=True))

    def rows(self, group: str, by_agent: bool = False) -> pa.Table:
        """Return ``scenario_id``, ``count`` and metrics of ``group``, with a row per scenario or agent.

        Raises: DataError if they are not recorded.
        """
        if by_agent and self.agents is not None:
            rows = _compared_members(self.agents, group)
            return rows.append_column("count", pa.array(np.ones(len(rows), np.int64)))
        if group not in self.per_scenario:
            raise DataError(f"the result of {self.predictor} has no {group} agents by scenario")
        return self.per_scenario[group]

    def worst(self, metric: str, count: int) -> dict[str, float]:
        """Return the ``count`` scenarios with the largest ``metric`` of the focal agent, worst first.

        Raises: DataError if it is not recorded.
        """
        values = self.by_scenario(metric)
        names = [name for name in values if not math.isnan(values[name])]
        worst_first = sorted(names, key=lambda name: -values[name])
        return {name: values[name] for name in worst_first[:count]}


def joint_means(scenes: pa.Table) -> dict[str, dict[str, float]]:
    """Average the metrics of scenes by group: over scenes, or over actors as on av2's leaderboard."""
    means: dict[str, dict[str, float]] = {}
    for group in scenes["group"].unique().to_pylist():
        rows = scenes.filter(pc.field("group") == group)
        incomplete = len(rows) - pc.sum(rows["complete"]).as_py()
        joint = rows.filter(pc.is_valid(rows[metrics_of("joint")[0].name]))
        means[group] = {"count": len(joint), "incomplete": incomplete}
        if not len(joint):
            continue
        means[group]["actors"] = pc.sum(joint["actors"]).as_py()
        for metric in metrics_of("joint"):
            weight = joint[metric.weight].to_numpy() if metric.weight else None
            means[group][metric.name] = float(np.average(joint[metric.name].to_numpy(), weights=weight))
    return means


def _compared_members(agents: pa.Table, group: str) -> pa.Table:
    """Select a group's agents with a forecast, and the columns of their scenario and of compared metrics."""
    scene_columns = [name for name in SCENE if name in agents.column_names]
    return members(agents, group, ["scenario_id", "track_id", *scene_columns, *compared_in(agents)])


def _per_scenario(agents: pa.Table, group: str) -> pa.Table:
    """Average the compared metrics over each scenario's agents; scenarios without agents are omitted."""
    names = compared_in(agents)
    rows = _compared_members(agents, group)
    scene_columns = [name for name in SCENE if name in rows.column_names]
    aggregates = [
        ("track_id", "list"),
        *((name, "min") for name in scene_columns),
        *((name, "mean") for name in names),
    ]
    means = rows.group_by("scenario_id", use_threads=False).aggregate(aggregates)
    tracks = means["track_id_list"]
    # The checksum identifies a set of tracks.
    checksums = [crc32("\n".join(sorted(ids)).encode()) for ids in tracks.to_pylist()]
    columns: dict[str, Any] = {
        "scenario_id": means["scenario_id"],
        **{name: means[f"{name}_min"] for name in scene_columns},
        "count": pc.list_value_length(tracks).cast(pa.int64()),
        "ids": pa.array(checksums, pa.int64()),
    }
    for name in names:
        columns[name] = pc.round(means[f"{name}_mean"], 4)
    return pa.table(columns)


def write_results(path: Path, evaluations: Evaluation | Sequence[Evaluation]) -> None:
    """Write the concatenated tables of agents (.parquet), or the summaries (.json)."""
    several = [evaluations] if isinstance(evaluations, Evaluation) else list(evaluations)
    if path.suffix == ".parquet":
        _write_tables(path, several)
        return
    text = ",\n".join(map(_to_text, several))
    if len(several) > 1:
        text = f"[\n{text}\n]"
    with atomic_file(path) as unfinished:
        unfinished.write_text(text + "\n", encoding="utf-8")


def _write_tables(path: Path, evaluations: Sequence[Evaluation]) -> None:
    """Write the tables of agents with the column ``evaluation``, which is the index into the header."""
    tables: list[pa.Table] = []
    header: list[dict[str, Any]] = []
    for number, result in enumerate(evaluations):
        assert result.agents is not None
        names = pa.array([result.predictor] * len(result.agents))
        table = result.agents.add_column(0, "predictor", names)
        tables.append(table.add_column(0, "evaluation", pa.array(np.full(len(table), number, np.int16))))
        header.append({"schema": VERSION})
        for attribute in fields(Evaluation):
            if attribute.name not in OF_TABLES:
                header[-1][attribute.name] = getattr(result, attribute.name)
    table = pa.concat_tables(tables, promote_options="default")
    text = json.dumps(finite(header), allow_nan=False)
    with atomic_file(path) as unfinished:
        pq.write_table(table.replace_schema_metadata({HEADER: text}), unfinished, compression="zstd")


def _to_text(evaluation: Evaluation) -> str:
    lines = [f'"schema": {VERSION}']
    for attribute in fields(Evaluation):
        name = attribute.name
        if name in ("agents", "scenes"):
            continue
        indent = None if name == "per_scenario" else 1
        text = json.dumps(finite(getattr(evaluation, name)), indent=indent, allow_nan=False)
        lines.append(f'"{name}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}"


def finite(value: Any) -> Any:
    """Replace non-finite numbers, which JSON lacks, by None, and tables by their columns."""
    if isinstance(value, pa.Table):
        return finite(value.to_pydict())
    if isinstance(value, dict):
        return {name: finite(x) for name, x in value.items()}
    if isinstance(value, list):
        return [finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_results(path: str | Path) -> list[Evaluation]:
    """Read the evaluations of a file of :func:`write_results`. Raises: DataError, also on other versions."""
    require_file(Path(path))
    try:
        records, agents = _read(Path(path))
        for record in records:
            if record["schema"] != VERSION:
                problem = f"is version {record['schema']} of the results format, expected {VERSION}"
                raise DataError(f"{problem}: evaluate again", field="schema")
        evaluations = [_evaluation(record, number, agents) for number, record in enumerate(records)]
        for evaluation in evaluations:
            for name, correct in _checks(evaluation):
                require(correct, name, "is not a result of trajpred evaluate")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from None
    except DataError as error:
        raise error.located(path) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, pa.ArrowException) as error:
        raise DataError(f"is not a result of trajpred evaluate ({error})", file=path) from None
    return evaluations


def _read(path: Path) -> tuple[list[dict[str, Any]], pa.Table | None]:
    """Read a file's data on each evaluation, and the table of agents of a parquet file."""
    agents: pa.Table | None = None
    if path.suffix == ".parquet":
        agents = pq.read_table(path)
        content = json.loads((agents.schema.metadata or {})[HEADER])
    else:
        content = json.loads(path.read_text(encoding="utf-8"))
    return (content if isinstance(content, list) else [content]), agents


def _evaluation(record: dict[str, Any], number: int, table: pa.Table | None) -> Evaluation:
    """Build an evaluation from the known keys of a file, with NaN for null metrics."""
    values = {column.name: record[column.name] for column in fields(Evaluation) if column.name in record}
    for name in ("metrics", "joint"):
        if name in values:
            values[name] = _with_nan(values[name])
    if table is None:
        values["per_scenario"] = {group: _typed(rows) for group, rows in record["per_scenario"].items()}
        return Evaluation(**values)
    agents = table.filter(pc.field("evaluation") == number).drop_columns(["evaluation", "predictor"])
    joint = values.pop("joint")
    return replace(Evaluation.of_tables(agents, None, **values), joint=joint)


def _typed(columns: dict[str, list[Any]]) -> pa.Table:
    """Build a per-scenario table. Raises: DataError if a column has values of another type."""
    arrays: dict[str, pa.Array] = {}
    try:
        for name, values in columns.items():
            arrays[name] = pa.array(values, (TYPES | OPTIONAL).get(name, pa.float64()))
            require(arrays[name].to_pylist() == values, "per_scenario", f"{name} must be integers")
        return pa.table(arrays)
    except (pa.ArrowException, AttributeError, TypeError, OverflowError) as error:
        raise DataError(f"is not a result of trajpred evaluate ({error})", field="per_scenario") from None


def _with_nan(value: Any) -> Any:
    """Replace None in nested dicts by NaN."""
    if isinstance(value, dict):
        return {name: _with_nan(item) for name, item in value.items()}
    return math.nan if value is None else value


def _checks(evaluation: Evaluation) -> Iterator[tuple[str, bool]]:
    """Yield for each field whether it has the required type and keys."""
    for name, expected in get_type_hints(Evaluation).items():
        yield name, name in ("agents", "scenes") or _has_type(getattr(evaluation, name), expected)
    yield "seconds", len(evaluation.seconds) in (0, 2)
    for name in ("missing", "completed"):
        counts = getattr(evaluation, name)
        yield name, "all" not in counts or counts.keys() >= {*GROUPS}
    yield "many_modes", all(map(str.isdecimal, evaluation.many_modes))
    training = evaluation.training
    wall_s = training.get("wall_s", 0)
    yield "wall_s", wall_s == wall_s  # not NaN
    facts: list[Any] = [training, evaluation.store, evaluation.environment]
    facts += [training.get("store"), training.get("environment")]
    for group in filter(None, facts):
        yield "training", isinstance(group, dict)
        for name, expected in _FACTS.items():
            yield name, name not in group or _has_type(group[name], expected)
    counted = ["count" in group for group in evaluation.metrics.values()]
    yield "metrics", "focal" in evaluation.metrics and all(counted)
    for table in evaluation.per_scenario.values():
        for name in TYPES:
            yield "per_scenario", name in table.column_names and not table[name].null_count
        yield "per_scenario", pc.count_distinct(table["scenario_id"]).as_py() == len(table)
        for name in {*table.column_names} - {"scenario_id", "recording"}:
            yield "per_scenario", bool((np.abs(np.nan_to_num(numbers(table, name))) <= LARGEST).all())


def _has_type(value: Any, expected: Any) -> bool:
    """Return whether a value from a JSON file has the ``expected`` type, written as an annotation."""
    if isinstance(value, bool):  # an integer to isinstance
        return expected in (bool, Any)
    outer = get_origin(expected)
    inner = get_args(expected)
    if outer is dict:
        return isinstance(value, dict) and all(_has_type(item, inner[1]) for item in value.values())
    if outer is list:
        return isinstance(value, list) and all(_has_type(item, inner[0]) for item in value)
    if expected is float:
        return isinstance(value, int | float) and (abs(value) <= LARGEST or value != value)
    return expected is Any or isinstance(value, expected)
