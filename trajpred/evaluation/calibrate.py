"""Fit a temperature and conformal regions to a model's forecasts, and store them with its weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.data.files import atomic_file
from trajpred.data.splits import CALIBRATION_PART, GROUPS, draw
from trajpred.errors import require
from trajpred.evaluation.agents import ScoredAgents, best_modes, whole_seconds
from trajpred.evaluation.origin import store_facts
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
from trajpred.predictors.predictor import Batch, forecast_store
from trajpred.store import ScenarioStore

#: The parts of the scenarios: the first for fitting, the second for accepting the fit, the third for
#: reporting.
PARTS = ("fit", "accept", "report")
#: Minimum number of agents in each part.
MIN_AGENTS = 20


class Sample(NamedTuple):
    """``A`` agents: probabilities ``[A, K]``, best mode ``[A]``, scores ``[A, H]`` metres, type ``[A]``."""

    probability: NDArray[Any]
    best: NDArray[Any]
    score: NDArray[Any]
    object_type: NDArray[Any]

    def select(self, rows: NDArray[np.bool_]) -> Sample:
        """Select the agents ``rows`` ``[A]``."""
        return Sample._make(values[rows] for values in self)


@dataclass(frozen=True)
class CalibrationResult:
    """The result of a fit on a part of the scenarios, and its quality on another part.

    Attributes:
        temperature: divisor of the logits; 1 if the fitted value is worse on the second part.
        regions: around the modes' positions, fitted to the first two parts.
        ece: expected calibration error without and with the temperature, on the third part.
        nll: mean negative log-likelihood of the best mode, without and with the temperature, on the third
            part.
        covered: ``[H]`` fraction of the third part's agents whose position is in the region.
        agents: number in each of :data:`PARTS`.
    """

    temperature: float
    regions: ConformalRegions
    ece: tuple[float, float]
    nll: tuple[float, float]
    covered: NDArray[np.float64]
    agents: tuple[int, int, int]


def calibrate(
    checkpoint: str | Path,
    store: ScenarioStore,
    out: Path,
    coverage: float = 0.9,
    group: str = "all",
    batch_size: int = 16,
    workers: int = 1,
    progress: bool = True,
) -> CalibrationResult:
    """Fit a temperature and conformal regions to scenarios that the model was not trained on.

    In the training split, these are the scenarios held out by the training (``data.hold_out``). The
    temperature is fitted to a third of the scenarios, and kept unless it is worse on the second; the regions
    are fitted to both; the result is measured on the last third. The part of a scenario depends only on its
    recording.

    ``out`` is the checkpoint with the calibration, without optimiser states. ``load_predictor`` and the tools
    apply it to marginal forecasts; ``Forecaster.load`` returns the model as it was trained.

    Args:
        coverage: share of true positions that the regions are to contain.
        group: the agents that count, one of :data:`~trajpred.data.splits.GROUPS`.

    Raises:
        DataError: too few agents, no scenario held out by the training, or an invalid argument.
    """
    require(group in GROUPS, "group", "must be " + " or ".join(GROUPS))
    require(0 < coverage < 1, "coverage", f"must lie between 0 and 1, is {coverage}")
    require(str(checkpoint) not in BASELINES, "checkpoint", "is a baseline: there is nothing to calibrate")
    overwrites = out.resolve() == pretrained.locate(checkpoint).resolve()
    require(not overwrites and not out.is_dir(), "out", f"must be another file, is {out}")
    predictor = CheckpointPredictor(checkpoint)
    predictor.temperature = 1.0  # ignore an earlier calibration
    if store.split == "train":
        fraction = predictor.training.get("hold_out", 0.0)
        problem = "has been trained on: train with --data.hold_out 0.05, or calibrate on another split"
        require(fraction > 0, "split", problem)
        store = store.subset(store.held_out(fraction))
    batches = forecast_store(
        predictor, store, labelled=True, batch_size=batch_size, workers=workers, progress=progress
    )
    recordings = dict(zip(store.scenario_ids, store.recordings, strict=True))
    sample, part, horizons = _collect(batches, group, recordings)
    counts = np.bincount(part, minlength=len(PARTS)).tolist()
    fit, accept, report = counts
    half = f"its {store.half} half " if store.half else ""
    few = f"has {fit} agents to fit, {accept} to accept and {report} to report on, each needs {MIN_AGENTS}"
    require(min(counts) >= MIN_AGENTS, "store", half + few)
    result = _fit(sample, part, horizons, coverage)
    _write(predictor.content, out, result, store_facts(store.path))
    return result


def _fit(
    sample: Sample, part: NDArray[np.int64], horizons: NDArray[np.float64], coverage: float
) -> CalibrationResult:
    """Fit to the first part, accept on the second, and measure on the third; ``part`` ``[A]``."""
    fit = sample.select(part == PARTS.index("fit"))
    accept = sample.select(part == PARTS.index("accept"))
    report = sample.select(part == PARTS.index("report"))
    temperature = fit_temperature(np.log(np.maximum(fit.probability, MIN_PROBABILITY)), fit.best)
    if _likelihood_loss(accept, temperature) > _likelihood_loss(accept, 1.0):
        temperature = 1.0
    # Regions need no acceptance, so they are also fitted to the second part.
    seen = sample.select(part != PARTS.index("report"))
    regions = ConformalRegions.fit(seen.score, seen.object_type, horizons, coverage)
    inside = np.where(np.isnan(report.score), np.nan, regions.covered(report.score, report.object_type))
    return CalibrationResult(
        temperature,
        regions,
        ece=(_calibration_error(report, 1.0), _calibration_error(report, temperature)),
        nll=(_likelihood_loss(report, 1.0), _likelihood_loss(report, temperature)),
        covered=np.nanmean(inside, axis=0),
        agents=(len(fit.best), len(accept.best), len(report.best)),
    )


def _calibration_error(sample: Sample, temperature: float) -> float:
    """Compute the expected calibration error with a temperature."""
    bins, excess = reliability(apply_temperature(sample.probability, temperature), sample.best)
    return float(np.abs(np.bincount(bins.ravel(), excess.ravel())).sum() / bins.size)


def _likelihood_loss(sample: Sample, temperature: float) -> float:
    """Compute the mean negative log-likelihood of the best mode with a temperature."""
    p = apply_temperature(sample.probability, temperature)
    likelihood = p[np.arange(len(sample.best)), sample.best]
    return float(-np.log(np.maximum(likelihood, MIN_PROBABILITY)).mean())


def _collect(
    batches: Iterable[Batch], group: str, recordings: Mapping[str, str]
) -> tuple[Sample, NDArray[np.int64], NDArray[np.float64]]:
    """Collect the agents of ``group``, each agent's part ``[A]`` (of PARTS), and the horizons ``[H]`` (s).

    ``recordings`` names the recording of each scenario.
    """
    samples = []
    thirds = []
    horizons = np.zeros(0)
    for scenarios, forecasts in batches:
        if not scenarios:
            continue
        agents = ScoredAgents.of(scenarios, forecasts)
        seconds = whole_seconds(agents.valid.shape[1], agents.step_s)
        horizons = np.array(list(seconds), np.float64)
        score = endpoint_scores(agents.trajectory, agents.target, agents.valid, horizons, agents.step_s)
        sample = Sample(agents.probability, best_modes(agents), score, agents.object_type)
        member = agents.member[group]
        samples.append(sample.select(member))
        drawn = np.array([draw(recordings[scenario.scenario_id], CALIBRATION_PART) for scenario in scenarios])
        third = (drawn * len(PARTS)).astype(np.int64)
        thirds.append(third[agents.scene[member]])
    require(bool(samples), "split", "has no scenario with a future")
    columns = zip(*samples, strict=True)
    return Sample._make(map(np.concatenate, columns)), np.concatenate(thirds), horizons


def _write(content: dict[str, Any], out: Path, found: CalibrationResult, facts: dict[str, Any]) -> None:
    """Write the checkpoint's config, weights and record with the calibration, atomically."""
    fitted = {"temperature": found.temperature, "regions": found.regions.to_json(), "store": facts}
    buffer = BytesIO()  # torch reports a full disk as RuntimeError
    torch.save({**content, CALIBRATION: fitted}, buffer)
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(out) as unfinished:
        unfinished.write_bytes(buffer.getbuffer())
