"""Fit a temperature and conformal regions to a model's forecasts, and store them with its weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.evaluation.agents import ScoredAgents, whole_seconds
from trajpred.evaluation.results import store_facts
from trajpred.evaluation.scores import best_modes
from trajpred.files import atomic_file
from trajpred.metrics.calibration import (
    MIN_PROBABILITY,
    ConformalRegions,
    apply_temperature,
    endpoint_scores,
    fit_temperature,
    reliability,
)
from trajpred.model import pretrained
from trajpred.model.checkpoint import CALIBRATION
from trajpred.predictors.baselines import BASELINES
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.predictors.forecast_store import Batch, forecast_store
from trajpred.splits import GROUPS
from trajpred.store import ScenarioStore

#: Minimum number of agents in either half.
MIN_AGENTS = 20


class Sample(NamedTuple):
    """``A`` agents: probabilities ``[A, K]``, best mode ``[A]``, scores ``[A, H]`` metres, type ``[A]``."""

    probability: NDArray[Any]
    best: NDArray[Any]
    score: NDArray[Any]
    object_type: NDArray[Any]

    def select(self, rows: NDArray[np.bool_]) -> Sample:
        """Select the agents ``rows`` ``[A]``."""
        return Sample(*(column[rows] for column in self))


@dataclass(frozen=True)
class CalibrationResult:
    """What was fitted on one half of the scenarios, and its quality on the other.

    Attributes:
        temperature: divisor of the logits; 1 if the fitted one is worse on the other half.
        regions: around the modes' positions.
        ece: expected calibration error without and with the temperature, on the other half.
        nll: mean negative log-likelihood of the best mode, likewise.
        covered: ``[H]`` share of agents of the other half whose position is in the region.
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
    workers: int = 1,
    progress: bool = True,
) -> CalibrationResult:
    """Fit on half of the scenarios of ``store``, which the model must not be trained on, and write ``out``.

    Of the training split, these are the scenarios that the training held out (``data.hold_out``).

    The half of a scenario depends on its id alone. ``out`` is the checkpoint with what was fitted, without
    optimiser states. ``load_predictor`` and the tools apply it to marginal forecasts; ``Forecaster.load``
    returns the model as it was trained.

    Raises: DataError if there are too few scenarios, or the training held none of them out.
    """
    require(group in GROUPS, "group", "must be " + " or ".join(GROUPS))
    require(0 < coverage < 1, "coverage", f"must lie between 0 and 1, is {coverage}")
    require(str(checkpoint) not in BASELINES, "checkpoint", "is a baseline: there is nothing to calibrate")
    same = out.resolve() == pretrained.locate(checkpoint).resolve()
    require(not same and not out.is_dir(), "out", f"must be another file, is {out}")
    predictor = CheckpointPredictor(checkpoint)
    predictor.temperature = 1.0  # ignore an earlier calibration
    if store.split == "train":
        share = predictor.training.get("hold_out", 0.0)
        problem = "has been trained on: train with --data.hold_out 0.05, or calibrate on another split"
        require(share > 0, "split", problem)
        store = store.subset(store.held_out(share))
    batches = forecast_store(
        predictor, store, labelled=True, batch_size=batch_size, workers=workers, progress=progress
    )
    sample, first, horizons = _collect(batches, group)
    few = min(first.sum(), (~first).sum()) < MIN_AGENTS
    require(not few, "store", f"{len(first)} agents are too few to fit and to measure on")
    found = _fit(sample.select(first), sample.select(~first), horizons, coverage)
    _write(predictor.content, out, found, store_facts(store.path))
    return found


def _fit(fit: Sample, rest: Sample, horizons: NDArray[np.float64], coverage: float) -> CalibrationResult:
    """Fit to one half and measure on the ``rest``."""
    temperature = fit_temperature(np.log(np.maximum(fit.probability, MIN_PROBABILITY)), fit.best)
    regions = ConformalRegions.fit(fit.score, fit.object_type, horizons, coverage)
    before, after = (_quality(rest, t) for t in (1.0, temperature))
    if after[1] > before[1]:
        temperature, after = 1.0, before
    inside = np.where(np.isnan(rest.score), np.nan, regions.covered(rest.score, rest.object_type))
    ece, nll = zip(before, after, strict=True)
    agents = (len(fit.best), len(rest.best))
    return CalibrationResult(temperature, regions, ece, nll, np.nanmean(inside, axis=0), agents)


def _quality(rest: Sample, temperature: float) -> tuple[float, float]:
    """Return expected calibration error and mean negative log-likelihood of the best mode."""
    p = apply_temperature(rest.probability, temperature)
    likelihood = p[np.arange(len(rest.best)), rest.best]
    nll = -np.log(np.maximum(likelihood, MIN_PROBABILITY)).mean()
    return reliability(p, rest.best).expected_calibration_error, float(nll)


def _collect(batches: Iterable[Batch], group: str) -> tuple[Sample, NDArray[np.bool_], NDArray[np.float64]]:
    """Collect the agents of ``group``, whether each is fitted on ``[A]``, and the horizons ``[H]`` (s)."""
    parts, halves, horizons = [], [], np.zeros(0)
    for scenarios, found in batches:
        if not scenarios:
            continue
        agents = ScoredAgents.of(scenarios, found)
        horizons = np.array([*whole_seconds(agents.valid.shape[1], agents.step_s)], np.float64)
        known, truth = agents.member[group], (agents.target, agents.valid)
        score = endpoint_scores(agents.trajectory, *truth, horizons, agents.step_s)
        columns = Sample(agents.probability, best_modes(agents), score, agents.object_type)
        parts.append(columns.select(known))
        even = np.array([crc32(s.scenario_id.encode()) % 2 == 0 for s in scenarios])
        halves.append(even[agents.scene[known]])
    require(bool(parts), "split", "has no scenario with a future")
    return Sample(*map(np.concatenate, zip(*parts, strict=True))), np.concatenate(halves), horizons


def _write(content: dict[str, Any], out: Path, found: CalibrationResult, facts: dict[str, Any]) -> None:
    """Write the checkpoint's config, weights and record with the calibration, atomically."""
    fitted = {"temperature": found.temperature, "regions": found.regions.to_json(), "store": facts}
    buffer = BytesIO()  # torch reports a full disk as RuntimeError
    torch.save({**content, CALIBRATION: fitted}, buffer)
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(out) as unfinished:
        unfinished.write_bytes(buffer.getbuffer())
