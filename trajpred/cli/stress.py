"""The command that evaluates with less input, at another time, or again and again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajpred.cli.scenarios import EVERY_S, Positive, open_split
from trajpred.cli.scores import report_gaps, require_outputs, write_and_show
from trajpred.data.environment import processes
from trajpred.data.splits import Group, Half
from trajpred.errors import require

if TYPE_CHECKING:
    from trajpred.evaluation.report import Table
    from trajpred.evaluation.results import Evaluation


def stress(
    *,
    checkpoint: list[str] = ["constant_velocity"],  # noqa: B006
    store: Path | None = None,
    split: str = "val",
    half: Half | None = None,
    limit: Positive | None = None,
    joint: bool = False,
    perturb: list[str] | None = None,
    history: list[float] | None = None,
    observe_s: list[float] | None = None,
    updates: int | None = None,
    every_s: float = EVERY_S,
    group: list[Group] | None = None,
    plausibility: bool = False,
    out: list[Path] | None = None,
    workers: int = -1,
) -> int:
    """Score a model with less input, at another time of the recordings, or at successive updates.

    Example: trajpred stress --checkpoint argoverse-nano --perturb all --group moving

    Args:
        checkpoint: As of evaluate; predictions files are fixed.
        store: Folder written by prepare; by default the sample's.
        split: train, val or test.
        half: Evaluate only this half of the split.
        limit: Evaluate only the first LIMIT scenarios.
        joint: Evaluate joint futures, too.
        perturb: Repeat with no-map, no-boundaries, no-marks, no-crossings, no-lane-types, no-classes (of road
            users), derived-states (headings and velocities from positions), gap (no states in the 0.5 s
            before the last observed step), fewer-agents (half) or noise (0.2 m), or all; several at once are
            joined by +.
        history: Repeat with so many seconds of history.
        observe_s: Move the last observed step to so many seconds after the first recorded one; what was
            recorded later is the future. Several values give several tables.
        updates: Also predict at so many times, the last observed step being the last, and measure how much
            the predictions change between them.
        every_s: Seconds between updates.
        group: Agents of the tables, by default focal.
        plausibility: Also plausibility and calibration, as of evaluate.
        out: Write the table of agents (.parquet), the summaries (.json), or what is printed (.md).
        workers: Processes that run a model on the CPU; -1 for all cores.
    """
    require_outputs(out or [])
    processes(workers)
    require(updates is not None or every_s == EVERY_S, "every_s", "needs --updates")
    rows = open_split(store, split, half)
    from trajpred.evaluation.report import degradation, tables
    from trajpred.evaluation.score import evaluate as score
    from trajpred.evaluation.updates import ObservedStore
    from trajpred.predictors import load_ensemble
    from trajpred.predictors.derived import StreamedPredictor, perturbed, require_free

    predictor = load_ensemble(checkpoint, joint)
    stores = [rows]
    if observe_s:
        require_free(predictor, "observe_s")
        stores = [ObservedStore(rows, seconds) for seconds in observe_s]
    if updates is not None:
        predictor = StreamedPredictor(predictor, every_s, updates)
    groups = group or ["focal"]
    results: list[Evaluation] = []
    report: list[Table] = []
    for data in stores:
        predictors = [predictor, *perturbed(predictor, perturb, history)]
        settings: dict[str, Any] = {"limit": limit, "plausibility": plausibility, "workers": workers}
        variants = [score(variant, data, **settings) for variant in predictors]
        results += variants
        report += tables(variants[0], groups=groups)
        report += degradation(variants, groups)
    write_and_show(results, report, out or [])
    report_gaps(predictor, results[0], rows)
    return 0
