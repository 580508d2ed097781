"""Fit a temperature and conformal regions to a model's forecasts, and keep them with its weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from trajpred.errors import require
from trajpred.evaluation.beyond import best_modes
from trajpred.evaluation.columns import whole_seconds
from trajpred.evaluation.judged import Judged
from trajpred.evaluation.provenance import store_facts
from trajpred.metrics.calibration import apply_temperature, expected_calibration_error, fit_temperature
from trajpred.metrics.conformal import ConformalRegions, endpoint_scores
from trajpred.model import pretrained
from trajpred.model.checkpoint import CALIBRATION, read_checkpoint
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.predictors.predictor import BASELINES, in_batches
from trajpred.store import ScenarioStore

#: Agents that either half needs at least.
LEAST = 20


class Sample(NamedTuple):
    """``A`` agents: probabilities ``[A, K]``, best mode ``[A]``, scores ``[A, H]`` metres, type ``[A]``."""

    probability: NDArray[Any]
    best: NDArray[Any]
    score: NDArray[Any]
    object_type: NDArray[Any]

    def of(self, rows: NDArray[np.bool_]) -> Sample:
        return Sample(*(column[rows] for column in self))


@dataclass(frozen=True)
class Calibrated:
    """What was fitted on one half of the scenarios, and how it does on the other.

    Attributes:
        temperature: logits are divided by it; 1 where the one fitted does worse on the other half.
        regions: around the modes' positions.
        ece: expected calibration error without and with the temperature, on the other half.
        nll: mean negative log-likelihood of the best mode, likewise.
        covered: ``[H]`` share of agents of the other half whose position lies in the region.
        agents: how many were fitted on and measured on.
    """

    temperature: float
    regions: ConformalRegions
    ece: tuple[float, float]
    nll: tuple[float, float]
    covered: NDArray[np.float64]
    agents: tuple[int, int]


def calibrate(
    checkpoint: str | Path,
    store: ScenarioStore,
    out: Path,
    coverage: float = 0.9,
    group: str = "scored",
    batch_size: int = 16,
    progress: bool = True,
) -> Calibrated:
    """Fit on a half of the scenarios of ``store`` that the model was not trained on, and write ``out``.

    Which half a scenario belongs to depends on its id alone. ``out`` is the checkpoint with what was fitted,
    without optimiser states. The tools and ``load_predictor`` apply it to marginal forecasts;
    ``Forecaster.load`` gives the model as it was trained.

    Raises: DataError if there are too few scenarios.
    """
    require(group in ("focal", "scored", "all"), "group", "must be focal, scored or all")
    require(0 < coverage < 1, "coverage", f"must lie between 0 and 1, is {coverage}")
    require(str(checkpoint) not in BASELINES, "checkpoint", "is a baseline: there is nothing to calibrate")
    same = out.resolve() == pretrained.locate(checkpoint).resolve()
    require(not same and not out.is_dir(), "out", f"must be another file, is {out}")
    predictor = CheckpointPredictor(checkpoint)
    predictor.temperature = 1.0  # what was fitted before does not count
    sample, first, horizons = _collect(predictor, store, group, batch_size, progress)
    few = min(first.sum(), (~first).sum()) < LEAST
    require(not few, "store", f"{len(first)} agents are too few to fit and to measure on")
    fit, rest = sample.of(first), sample.of(~first)
    temperature = fit_temperature(np.log(np.maximum(fit.probability, 1e-12)), fit.best)
    regions = ConformalRegions.fit(fit.score, fit.object_type, horizons, coverage)
    before, after = (_nll(apply_temperature(rest.probability, t), rest.best) for t in (1.0, temperature))
    if after > before:  # what was fitted does not carry over to scenarios not fitted on
        temperature, after = 1.0, before
    warm = apply_temperature(rest.probability, temperature)
    inside = np.where(np.isnan(rest.score), np.nan, regions.covered(rest.score, rest.object_type))
    found = Calibrated(
        temperature,
        regions,
        (
            expected_calibration_error(rest.probability, rest.best),
            expected_calibration_error(warm, rest.best),
        ),
        (before, after),
        np.nanmean(inside, axis=0),
        (len(fit.best), len(rest.best)),
    )
    _write(checkpoint, out, found, store_facts(store.path))
    return found


def _nll(probability: NDArray[np.float64], best: NDArray[np.int64]) -> float:
    return float(-np.log(np.maximum(probability[np.arange(len(best)), best], 1e-12)).mean())


def _collect(
    predictor: CheckpointPredictor, store: ScenarioStore, group: str, batch_size: int, progress: bool
) -> tuple[Sample, NDArray[np.bool_], NDArray[np.float64]]:
    """The agents of ``group``, whether their scenario is one to fit on ``[A]``, and horizons ``[H]`` (s)."""
    parts, halves, horizons = [], [], np.zeros(0)
    with tqdm(total=len(store), unit=" scenarios", desc=predictor.name, disable=not progress) as bar:
        for rows in in_batches(range(len(store)), batch_size):
            scenarios = [s for s in (store[row] for row in rows) if s.has_future]
            bar.update(len(rows))
            if not scenarios:
                continue
            some = Judged.of(scenarios, predictor(scenarios))
            horizons = np.array([*whole_seconds(some.valid.shape[1], some.step_s)], np.float64)
            known = some.member[group]
            score = endpoint_scores(some.trajectory, some.target, some.valid, horizons, some.step_s)
            parts.append(Sample(some.probability, best_modes(some), score, some.object_type).of(known))
            even = np.array([crc32(s.scenario_id.encode()) % 2 == 0 for s in scenarios])
            halves.append(even[some.scene[known]])
    require(bool(parts), "store", f"split {store.split!r} has no scenario with a future")
    return Sample(*map(np.concatenate, zip(*parts, strict=True))), np.concatenate(halves), horizons


def _write(checkpoint: str | Path, out: Path, found: Calibrated, facts: dict[str, Any]) -> None:
    """The checkpoint's config, weights and record, with the calibration; whole or not at all."""
    content = read_checkpoint(pretrained.locate(checkpoint))
    kept = {name: value for name, value in content.items() if name.startswith("trajpred_")}
    fitted = {"temperature": found.temperature, "regions": found.regions.to_json(), "store": facts}
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = out.with_name(f".unfinished-{out.name}")
    try:
        torch.save({**kept, "state_dict": content["state_dict"], CALIBRATION: fitted}, unfinished)
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
