"""The outcome of an evaluation, and the JSON files that keep it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from trajpred.errors import DataError

#: Version of the JSON files: what a key means changes with it; new keys do not change it.
VERSION = 3
#: Metres, seconds, shares: no figure of ours is larger, and sums of such do not overflow.
LARGEST = 1e12
#: What is known of trainings, stores and machines, as far as tables tell of it.
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
    """What :func:`trajpred.evaluation.evaluate` found.

    Attributes:
        predictor: name of what was scored.
        split: of the store.
        scenarios: how many labelled scenarios were scored.
        missing: ``missing[group]`` judged tracks that the predictor said nothing about; they count in no
            metric.
        how: in what way the predictor was asked, where there are several: ``joint``, ``mirrored`` …
        metrics: ``metrics[group][name]``, groups ``focal``, ``scored`` (focal included), ``all``;
            ``count`` is the number of agents.
        worlds: means over scenes of the world metrics, ``count`` of the scenes that have worlds, and how many
            scenes are ``incomplete``.
        calibration: ``calibration[group]``: how honest probabilities and scales are, if it was looked at.
        horizons: ``horizons["3 s"][group][name]``: as if the future ended there.
        breakdowns: ``breakdowns[fact][value][group][name]``: by class, city, manoeuvre, speed …
        per_scenario: of each focal agent judged ``scenario_id``, ``minADE6``, ``minFDE6``, ``MR6`` and
            ``brier-minFDE6`` (metres, to 0.1 mm); lists of one length.
        intervals: ``intervals[name]`` 95 % bootstrap bounds over scenarios of the focal agents' mean.
        training: what the checkpoint says of its training (:class:`trajpred.training.TrainingRecord`).
        store: what was scored on (:func:`trajpred.evaluation.provenance.store_facts`).
        environment: code and machine (:func:`trajpred.evaluation.provenance.environment`), and ``wall_s``.
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
    worlds: dict[str, float] = field(default_factory=dict)
    calibration: dict[str, dict[str, Any]] = field(default_factory=dict)
    horizons: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    breakdowns: dict[str, dict[str, dict[str, dict[str, float]]]] = field(default_factory=dict)
    intervals: dict[str, list[float]] = field(default_factory=dict)
    how: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"schema": VERSION, **asdict(self)}

    @property
    def recipe(self) -> str:
        """What the same training from another seed, asked in the same way, shares; a baseline's own name."""
        trained, weights = self.training.get("recipe"), self.training.get("weights")
        start = f"from {weights}" if weights else ""
        return ", ".join(filter(None, (trained, start, self.how))) if trained else self.predictor

    def focal(self, metric: str) -> dict[str, float]:
        """``metric`` of the focal agent by scenario. Raises: DataError if the file does not hold it."""
        if metric not in self.per_scenario:
            raise DataError(f"the result of {self.predictor} does not tell {metric} of each scenario")
        values = [math.nan if value is None else value for value in self.per_scenario[metric]]
        return dict(zip(self.per_scenario["scenario_id"], values, strict=True))


def write_results(path: Path, evaluations: Evaluation | Sequence[Evaluation]) -> None:
    """One evaluation as a JSON object, several as a list; what is kept per scenario on one line."""
    if isinstance(evaluations, Evaluation):
        text = _to_text(evaluations)
    else:
        text = "[\n" + ",\n".join(map(_to_text, evaluations)) + "\n]"
    path.write_text(text + "\n", encoding="utf-8")


def _to_text(evaluation: Evaluation) -> str:
    values = {
        name: json.dumps(finite(value), indent=None if name == "per_scenario" else 1, allow_nan=False)
        for name, value in evaluation.to_json().items()
    }
    return "{\n" + ",\n".join(f'"{name}": {value}' for name, value in values.items()) + "\n}"


def finite(value: Any) -> Any:
    """``value`` with null for every number that is not finite: JSON has no other word for it."""
    if isinstance(value, dict):
        return {name: finite(x) for name, x in value.items()}
    if isinstance(value, list):
        return [finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(one: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """The ``known`` keys, with NaN for every metric that is null."""
    means = {"metrics", "worlds", "horizons", "breakdowns"}
    return {name: _nan(one[name]) if name in means else one[name] for name in known & one.keys()}


def _nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _nan(x) for name, x in value.items()}
    return math.nan if value is None else value


def read_results(path: str | Path) -> list[Evaluation]:
    """The evaluations in a file of :func:`write_results`. Raises: DataError, also on other versions."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        found = content if isinstance(content, list) else [content]
        known = {one.name for one in fields(Evaluation)}
        versions = {one["schema"] for one in found} - {VERSION}
        read = [] if versions else [Evaluation(**_numbers(one, known)) for one in found]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"is no result of tools/evaluate.py ({error})", file=path) from None
    if versions:
        problem = f"is version {versions.pop()} of our results, this program reads {VERSION}: score again"
        raise DataError(problem, file=path, field="schema")
    for one in read:
        wrong = next((name for name, right in _looks(one) if not right), None)
        if wrong is not None:
            raise DataError("is not what tools/evaluate.py writes", file=path, field=wrong)
    return read


def _looks(one: Evaluation) -> Iterator[tuple[str, bool]]:
    """For each field of an evaluation that was read, whether it looks like it: what tables rely on."""
    for name, kind in get_type_hints(Evaluation).items():
        yield name, _fits(getattr(one, name), kind)
    yield "wall_s", one.training.get("wall_s", 0) == one.training.get("wall_s", 0)  # NaN is no time
    nested = [one.training.get(name) for name in ("store", "environment")]
    for facts in filter(None, (one.training, one.store, one.environment, *nested)):
        yield "training", isinstance(facts, dict)
        yield from ((name, name not in facts or _fits(facts[name], kind)) for name, kind in _FACTS.items())
        yield "store", not facts.get("scenarios") or {"source", "config"} <= facts.keys()
    for facts in filter(None, (one.environment, nested[1])):
        yield "environment", {"trajpred", "torch"} <= facts.keys()
    yield "metrics", "focal" in one.metrics and all("count" in group for group in one.metrics.values())
    yield "per_scenario", _is_table(one.per_scenario)


def _is_table(columns: dict[str, list[Any]]) -> bool:
    """Whether ``columns`` have one length, ids are texts and all else is numbers or unknown."""
    ids, lengths = columns.get("scenario_id", []), {len(values) for values in columns.values()}
    others = [x for name, values in columns.items() if name != "scenario_id" for x in values]
    numbers = all(x is None or _fits(x, float) for x in others)
    named = not columns or ("scenario_id" in columns and len(lengths) == 1)
    return named and numbers and all(isinstance(x, str) for x in ids)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value from a JSON file is of ``kind``, as the annotations of :class:`Evaluation` write it."""
    outer, inner = get_origin(kind), get_args(kind)
    if outer is dict:
        return isinstance(value, dict) and all(_fits(x, inner[1]) for x in value.values())
    if outer is list:
        return isinstance(value, list) and all(_fits(x, inner[0]) for x in value)
    if kind is float:
        return isinstance(value, int | float) and (abs(value) <= LARGEST or value != value)
    return kind is Any or isinstance(value, kind)
