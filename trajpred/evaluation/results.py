"""The outcome of an evaluation, its origin (code, machine and data), and its JSON files."""

from __future__ import annotations

import json
import math
import platform
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from trajpred import __version__
from trajpred.errors import DataError
from trajpred.files import atomic_file
from trajpred.store.manifest import read_manifest

#: Version of the JSON files: it changes with the meaning of a key, not with new keys.
VERSION = 5
#: No metric in metres, seconds or shares is larger; sums of such numbers do not overflow.
LARGEST = 1e12
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
        half: of the split: one of :data:`~trajpred.splits.HALVES`, or empty for all of it.
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
        intervals: ``intervals[group][name]`` 95 % bounds of the group's mean by bootstrap over scenarios.
        av2: by metric, the means over all agents of trajpred's and av2's own functions, and the largest
            ``difference``, if compared.
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

    def __repr__(self) -> str:
        focal = self.metrics.get("focal", {})
        best = "".join(f", {name} {focal[name]:.2f}" for name in ("minADE6", "minFDE6") if name in focal)
        return f"Evaluation({self.predictor}: {self.data}, focal agents{best})"

    @property
    def data(self) -> str:
        """For example ``4,007 scenarios of val, reporting half``."""
        return ", ".join(filter(None, (f"{self.scenarios:,} scenarios of {self.split}", self.part)))

    @property
    def covered(self) -> str:
        """The number of scenarios; ``40 of 616`` if no agent of the others was forecast."""
        missing = self.missing.get("scenarios", 0)
        return f"{self.scenarios - missing:,} of {self.scenarios:,}" if missing else f"{self.scenarios:,}"

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
    def recipe(self) -> str:
        """Name shared by the seeds of one training used in one way; a baseline's own name."""
        trained, weights = self.training.get("recipe"), self.training.get("weights")
        start = f"from {weights}" if weights else ""
        return ", ".join(filter(None, (trained, start, self.how))) if trained else self.predictor

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
        known = [(name, value) for name, value in self.by_scenario(metric).items() if value == value]
        return dict(sorted(known, key=lambda item: -item[1])[:count])


def write_results(path: Path, evaluations: Evaluation | Sequence[Evaluation]) -> None:
    """Write one evaluation as a JSON object, several as a list; values per scenario on one line."""
    if isinstance(evaluations, Evaluation):
        text = _to_text(evaluations)
    else:
        text = "[\n" + ",\n".join(map(_to_text, evaluations)) + "\n]"
    with atomic_file(path) as unfinished:
        unfinished.write_text(text + "\n", encoding="utf-8")


def _to_text(evaluation: Evaluation) -> str:
    values = {
        name: json.dumps(finite(value), indent=None if name == "per_scenario" else 1, allow_nan=False)
        for name, value in {"schema": VERSION, **asdict(evaluation)}.items()
    }
    return "{\n" + ",\n".join(f'"{name}": {value}' for name, value in values.items()) + "\n}"


def finite(value: Any) -> Any:
    """Replace non-finite numbers, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {name: finite(x) for name, x in value.items()}
    if isinstance(value, list):
        return [finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_results(path: str | Path) -> list[Evaluation]:
    """Read the evaluations of a file of :func:`write_results`. Raises: DataError, also on other versions."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        found = content if isinstance(content, list) else [content]
        known = {one.name for one in fields(Evaluation)}
        versions = {one["schema"] for one in found} - {VERSION}
        read = [] if versions else [Evaluation(**_with_nan(one, known)) for one in found]
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=path) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"is no result of trajpred evaluate ({error})", file=path) from None
    if versions:
        problem = f"is version {versions.pop()} of the results format, expected {VERSION}: evaluate again"
        raise DataError(problem, file=path, field="schema")
    for one in read:
        wrong = next((name for name, correct in _checks(one) if not correct), None)
        if wrong is not None:
            raise DataError("is not what trajpred evaluate writes", file=path, field=wrong)
    return read


def _with_nan(one: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """Select the ``known`` keys, with NaN for every metric that is null."""

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: convert(x) for name, x in value.items()}
        return math.nan if value is None else value

    means = {"metrics", "worlds", "horizons", "updates", "breakdowns"}
    return {name: convert(one[name]) if name in means else one[name] for name in known & one.keys()}


def _checks(one: Evaluation) -> Iterator[tuple[str, bool]]:
    """Yield for each field whether it has the type and keys that tables rely on."""
    for name, expected in get_type_hints(Evaluation).items():
        yield name, _has_type(getattr(one, name), expected)
    yield "wall_s", one.training.get("wall_s", 0) == one.training.get("wall_s", 0)  # not NaN
    nested = [one.training.get(name) for name in ("store", "environment")]
    for facts in filter(None, (one.training, one.store, one.environment, *nested)):
        yield "training", isinstance(facts, dict)
        yield from ((name, name not in facts or _has_type(facts[name], t)) for name, t in _FACTS.items())
    yield "metrics", "focal" in one.metrics and all("count" in group for group in one.metrics.values())
    table = one.per_scenario
    lengths, ids = {len(values) for values in table.values()}, table.get("scenario_id", [])
    yield "per_scenario", not table or ("scenario_id" in table and len(lengths) == 1)
    for name, values in table.items():
        expected = str if name == "scenario_id" else float
        optional = name != "scenario_id"
        yield "per_scenario", all((x is None and optional) or _has_type(x, expected) for x in values)
    yield "per_scenario", len({*ids}) == len(ids)


def _has_type(value: Any, expected: Any) -> bool:
    """Return whether a value from a JSON file has the ``expected`` type, in the notation of annotations."""
    outer, inner = get_origin(expected), get_args(expected)
    if outer is dict:
        return isinstance(value, dict) and all(_has_type(x, inner[1]) for x in value.values())
    if outer is list:
        return isinstance(value, list) and all(_has_type(x, inner[0]) for x in value)
    if expected is float:
        return isinstance(value, int | float) and (abs(value) <= LARGEST or value != value)
    return expected is Any or isinstance(value, expected)


def environment() -> dict[str, Any]:
    """Describe versions and hardware of this process, as plain values.

    ``trajpred`` (version), ``commit`` and ``dirty`` (in a git checkout only), ``torch``, ``cpu``, ``threads``
    and ``gpu`` (None without one).
    """
    import torch  # results are read without it

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    machine = {"cpu": cpu_model(), "threads": torch.get_num_threads(), "gpu": gpu}
    return {"trajpred": __version__, **commit(), "torch": str(torch.__version__), **machine}


def commit(package: Path = Path(__file__).parents[1]) -> dict[str, Any]:
    """Return ``commit``, and whether the package differs from it (``dirty``); empty outside a checkout.

    The package must be tracked by the repository: an environment may lie inside another project's checkout.
    Files beside the package (results, notes) do not make it dirty.
    """
    if _git(package, "ls-files", "--", "__init__.py") in (None, ""):
        return {}
    changes = _git(package, "status", "--porcelain", "--", ".")
    return {"commit": _git(package, "rev-parse", "HEAD"), "dirty": changes != ""}


def _git(folder: Path, *command: str) -> str | None:
    """Return the output of git; None if it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", folder, *command], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name, as far as the system reports it."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def store_facts(store: Path) -> dict[str, Any]:
    """Return a store's ``source``, ``config`` (a hash of how it was made), and ``scenarios`` of each split.

    Raises: DataError.
    """
    manifest = read_manifest(store)
    counts = {name: split.get("scenarios") for name, split in manifest["splits"].items()}
    return {"source": manifest.get("source"), "config": manifest.get("config"), "scenarios": counts}
