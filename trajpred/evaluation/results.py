"""The outcome of an evaluation, and the JSON files that keep it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from trajpred.errors import DataError

#: Version of the JSON files: what a key means changes with it; new keys do not change it.
SCHEMA = 2


@dataclass(frozen=True)
class Evaluation:
    """What :func:`trajpred.evaluation.evaluate` found.

    Attributes:
        predictor: name of what was scored.
        split: of the store.
        scenarios: how many labelled scenarios were scored.
        missing: judged tracks that the predictor said nothing about; they count in no metric.
        metrics: ``metrics[group][name]``, groups ``focal``, ``scored`` (focal included), ``all``;
            ``count`` is the number of agents.
        worlds: means over scenes of the world metrics and ``count``, of the scenes that have worlds.
        calibration: ``calibration[group]``: how honest probabilities and scales are, if it was looked at.
        horizons: ``horizons["3 s"][group][name]``: as if the future ended there.
        breakdowns: ``breakdowns[fact][value][group][name]``: by class, city, manoeuvre, speed …
        per_scenario: of each focal agent judged ``scenario_id``, ``minADE6``, ``minFDE6``, ``brier-minFDE6``
            (metres, to 0.1 mm); lists of one length.
        training: what the checkpoint says of its training (:class:`trajpred.training_record.TrainingRecord`).
        store: what was scored on (:func:`trajpred.provenance.store_facts`).
        environment: code and machine (:func:`trajpred.provenance.environment`), and ``wall_s``.
    """

    predictor: str
    split: str
    scenarios: int
    missing: int
    metrics: dict[str, dict[str, float]]
    per_scenario: dict[str, list[Any]] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    store: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    worlds: dict[str, float] = field(default_factory=dict)
    calibration: dict[str, dict[str, Any]] = field(default_factory=dict)
    horizons: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    breakdowns: dict[str, dict[str, dict[str, dict[str, float]]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @property
    def recipe(self) -> str:
        """What the same training from another seed shares; a baseline's own name."""
        return self.training.get("recipe") or self.predictor

    def focal(self, metric: str) -> dict[str, float]:
        """``metric`` of the focal agent by scenario. Raises: DataError if the file does not hold it."""
        if metric not in self.per_scenario:
            raise DataError(f"the result of {self.predictor} does not tell {metric} of each scenario")
        return dict(zip(self.per_scenario["scenario_id"], self.per_scenario[metric], strict=True))


def write_results(path: Path, evaluations: Evaluation | Sequence[Evaluation]) -> None:
    """One evaluation as a JSON object, several as a list; what is kept per scenario on one line."""
    if isinstance(evaluations, Evaluation):
        text = _to_text(evaluations)
    else:
        text = "[\n" + ",\n".join(map(_to_text, evaluations)) + "\n]"
    path.write_text(text + "\n")


def _to_text(evaluation: Evaluation) -> str:
    values = {
        name: json.dumps(value, indent=None if name == "per_scenario" else 1)
        for name, value in evaluation.to_json().items()
    }
    return "{\n" + ",\n".join(f'"{name}": {value}' for name, value in values.items()) + "\n}"


def read_results(path: str | Path) -> list[Evaluation]:
    """The evaluations in a file of :func:`write_results`. Raises: DataError."""
    try:
        content = json.loads(Path(path).read_text())
        found = content if isinstance(content, list) else [content]
        known = {one.name for one in fields(Evaluation)}
        return [Evaluation(**{k: v for k, v in one.items() if k in known}) for one in found]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"is no result of tools/evaluate.py ({error})", file=path) from None
