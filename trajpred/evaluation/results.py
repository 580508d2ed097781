"""The outcome of an evaluation, its origin (code, machine and data), and its JSON files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa

from trajpred.data.files import atomic_file, require_file
from trajpred.errors import DataError

#: Version of the JSON files: it changes with the meaning of a key, not with new keys.
VERSION = 5
#: No metric in metres, seconds or shares is larger; sums of such numbers do not overflow.
LARGEST = 1e12
#: The fields that contain means of metrics.
_MEANS = {"metrics", "worlds", "horizons", "updates", "breakdowns"}
#: Types of the facts about trainings, stores and machines that tables use.
_FACTS: dict[str, Any] = {
    **dict.fromkeys(("recipe", "weights", "gpu"), str | None),
    **dict.fromkeys(("trajpred", "torch", "commit"), str),
    "wall_s": float,
    "store": dict[str, Any],
    "environment": dict[str, Any],
    "scenarios": dict[str, int],
}


@dataclass(frozen=True)
class Evaluation:
    """The outcome of :func:`trajpred.evaluation.evaluate`.

    Attributes:
        predictor: name of the predictor.
        split: of the store.
        half: of the split: one of :data:`~trajpred.data.splits.HALVES`, or empty for all of it.
        observed_s: seconds of history after which the forecasts were made, if these are not those of the
            recordings; else 0.
        scenarios: number of labelled scenarios that were evaluated.
        seconds: of the future, those that were scored and those that are known; a predictor's horizon may be
            shorter than the data's.
        missing: ``missing[group]`` agents without a forecast, which count in no metric, and ``scenarios``
            in which no agent has one.
        how: the predictor's way of forecasting, where it has several: ``joint``, ``mirrored`` …
        metrics: ``metrics[group][name]``, groups ``focal``, ``scored`` (focal included), ``moving``, ``all``;
            ``count`` is the number of agents.
        worlds: ``worlds[group][name]`` of the groups ``scored`` and ``all``: means of the world metrics over
            scenes, ``count`` of the scenes that have worlds, number of ``actors`` and of ``incomplete``
            scenes.
        calibration: ``calibration[group]``: calibration of probabilities and scales, if computed.
        horizons: ``horizons["3 s"][group][name]``: as if the future ended there.
        updates: ``updates["1.5 s"][group][name]``: error of the forecast made after 1.5 s of history, and its
            change from the one before, over the agents visible at every update; if updates were evaluated.
        breakdowns: ``breakdowns[fact][value][group][name]``: by class, city, manoeuvre, speed …
        per_scenario: ``scenario_id``, unique, and for the groups ``focal`` and ``moving`` the number of
            agents ``GROUP/count`` and their means ``GROUP/METRIC`` (metres, to 0.1 mm; changes between
            updates, too); lists of equal length.
        per_agent: a table of the moving agents, ``track_id`` and their metrics, scenario by scenario as
            ``per_scenario["moving/count"]`` counts them.
        intervals: ``intervals[group][name]`` 95 % bounds of the group's mean by bootstrap over scenarios.
        av2: by metric, the means over all agents of trajpred's and av2's own functions, and the largest
            ``difference``, if compared.
        packages: by the name of a metric, predictor, encoder or decoder of another package, that package.
        training: the checkpoint's record of its training (:class:`trajpred.training.TrainingRecord`).
        store: the data (:func:`store_facts`).
        environment: code and machine (:func:`environment`), and ``wall_s``.
    """

    predictor: str
    split: str
    scenarios: int
    missing: dict[str, int]
    metrics: dict[str, dict[str, float]]
    per_scenario: dict[str, list[Any]] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    store: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    worlds: dict[str, dict[str, float]] = field(default_factory=dict)
    calibration: dict[str, dict[str, Any]] = field(default_factory=dict)
    horizons: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    breakdowns: dict[str, dict[str, dict[str, dict[str, float]]]] = field(default_factory=dict)
    intervals: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    av2: dict[str, dict[str, float]] = field(default_factory=dict)
    how: str = ""
    updates: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    half: str = ""
    observed_s: float = 0.0
    per_agent: pa.Table = field(default_factory=lambda: pa.table({}))
    packages: dict[str, str] = field(default_factory=dict)

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
        return ", ".join(filter(None, (f"{self.scenarios:,} scenarios of {self.split}", self.part)))

    @property
    def covered(self) -> str:
        """The number of scenarios; ``40 of 616`` if no agent of the others was forecast."""
        missing = self.missing.get("scenarios", 0)
        if not missing:
            return f"{self.scenarios:,}"
        return f"{self.scenarios - missing:,} of {self.scenarios:,}"

    @property
    def part(self) -> str:
        """``reporting half, after 0.5 s`` where a part of the data was evaluated, else empty."""
        half = f"{self.half} half" if self.half else ""
        observed = f"after {self.observed_s:g} s" if self.observed_s else ""
        return ", ".join(filter(None, (half, observed)))

    @property
    def partly(self) -> str:
        """``3 of 6 s`` where a part of the future was scored, else empty."""
        scored, known = self.seconds or (0.0, 0.0)
        return f"{scored:g} of {known:g} s" if scored != known else ""

    @property
    def others(self) -> str:
        """``maxFDE of my-lab 1.0`` for what is of other packages, else empty."""
        return ", ".join(f"{name} of {package}" for name, package in self.packages.items())

    @property
    def recipe(self) -> str:
        """Name shared by the seeds of one training used in one way; a baseline's own name."""
        trained = self.training.get("recipe")
        if not trained:
            return self.predictor
        weights = self.training.get("weights")
        start = f"from {weights}" if weights else ""
        return ", ".join(filter(None, (trained, start, self.how)))

    def by_scenario(self, metric: str, group: str = "focal") -> dict[str, float]:
        """Return the mean of ``metric`` over the agents of ``group`` by scenario, NaN where it is unknown.

        Raises: DataError if it is not recorded.
        """
        column = f"{group}/{metric}"
        if column not in self.per_scenario:
            raise DataError(f"the result of {self.predictor} has no {column} of each scenario")
        values = [math.nan if value is None else value for value in self.per_scenario[column]]
        return dict(zip(self.per_scenario["scenario_id"], values, strict=True))

    def worst(self, metric: str, count: int) -> dict[str, float]:
        """Return the ``count`` scenarios with the largest ``metric`` of the focal agent, worst first.

        Raises: DataError if it is not recorded.
        """
        values = self.by_scenario(metric)
        known = [name for name in values if not math.isnan(values[name])]
        worst_first = sorted(known, key=lambda name: -values[name])
        return {name: values[name] for name in worst_first[:count]}


def write_results(path: Path, evaluations: Evaluation | Sequence[Evaluation]) -> None:
    """Write one evaluation as a JSON object, several as a list; values per scenario and agent on one line."""
    if isinstance(evaluations, Evaluation):
        text = _to_text(evaluations)
    else:
        text = "[\n" + ",\n".join(map(_to_text, evaluations)) + "\n]"
    with atomic_file(path) as unfinished:
        unfinished.write_text(text + "\n", encoding="utf-8")


def _to_text(evaluation: Evaluation) -> str:
    lines = [f'"schema": {VERSION}']
    for name, value in asdict(evaluation).items():
        indent = None if name in ("per_scenario", "per_agent") else 1
        text = json.dumps(finite(value), indent=indent, allow_nan=False)
        lines.append(f'"{name}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}"


def finite(value: Any) -> Any:
    """Replace non-finite numbers, which JSON does not have, by None, and tables by their columns."""
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
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        records = content if isinstance(content, list) else [content]
        versions = {record["schema"] for record in records} - {VERSION}
        evaluations = [] if versions else [_evaluation(record) for record in records]
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=path) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"is no result of trajpred evaluate ({error})", file=path) from None
    if versions:
        problem = f"is version {versions.pop()} of the results format, expected {VERSION}: evaluate again"
        raise DataError(problem, file=path, field="schema")
    for evaluation in evaluations:
        for name, correct in _checks(evaluation):
            if not correct:
                raise DataError("is not what trajpred evaluate writes", file=path, field=name)
    return evaluations


def _evaluation(record: dict[str, Any]) -> Evaluation:
    """Build an evaluation from the keys of a file that are known, with NaN for every metric that is null."""
    values: dict[str, Any] = {}
    for column in fields(Evaluation):
        if column.name in record:
            value = record[column.name]
            values[column.name] = _with_nan(value) if column.name in _MEANS else value
    values["per_agent"] = pa.table(record.get("per_agent", {}))
    return Evaluation(**values)


def _with_nan(value: Any) -> Any:
    """Replace None in nested dicts by NaN."""
    if isinstance(value, dict):
        return {name: _with_nan(item) for name, item in value.items()}
    return math.nan if value is None else value


def _checks(evaluation: Evaluation) -> Iterator[tuple[str, bool]]:
    """Yield for each field whether it has the type and keys that tables rely on."""
    for name, expected in get_type_hints(Evaluation).items():
        yield name, _has_type(getattr(evaluation, name), expected)
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
    table = evaluation.per_scenario
    lengths = {len(values) for values in table.values()}
    ids = table.get("scenario_id", [])
    yield "per_scenario", not table or ("scenario_id" in table and len(lengths) == 1)
    for name, values in table.items():
        yield "per_scenario", _is_column(values, is_text=name == "scenario_id")
    yield "per_scenario", len(set(ids)) == len(ids)
    agents = evaluation.per_agent
    if agents.num_columns:
        count = sum(filter(None, table.get("moving/count", [])))
        yield "per_agent", "track_id" in agents.column_names and len(agents) == count
    for name in agents.column_names:
        yield "per_agent", _is_column(agents[name].to_pylist(), is_text=name == "track_id")


def _is_column(values: list[Any], is_text: bool) -> bool:
    """Return whether values from a JSON file are texts, or else numbers and nulls."""
    if is_text:
        return _has_type(values, list[str])
    return all(value is None or _has_type(value, float) for value in values)


def _has_type(value: Any, expected: Any) -> bool:
    """Return whether a value from a JSON file has the ``expected`` type, in the notation of annotations."""
    outer = get_origin(expected)
    inner = get_args(expected)
    if outer is dict:
        return isinstance(value, dict) and all(_has_type(item, inner[1]) for item in value.values())
    if outer is list:
        return isinstance(value, list) and all(_has_type(item, inner[0]) for item in value)
    if expected is float:
        return isinstance(value, int | float) and (abs(value) <= LARGEST or value != value)
    return expected is Any or isinstance(value, expected)
