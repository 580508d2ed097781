"""Commands that score predictions: evaluate, compare."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from trajpred.cli.scenarios import EVERY_S, UPDATES, Count, Positive, open_split, require_streaming
from trajpred.data.environment import processes
from trajpred.data.files import require_writable
from trajpred.data.splits import PAIRED_GROUPS, Group, Half
from trajpred.errors import require

if TYPE_CHECKING:
    from trajpred.evaluation.labels import LabelledStore
    from trajpred.evaluation.report import Table
    from trajpred.evaluation.results import Evaluation
    from trajpred.predictors import Predictor
    from trajpred.store import ScenarioStore

#: Scenarios of a predictions file whose problems are printed.
MAX_PROBLEMS = 10


def evaluate(
    *,
    checkpoint: str = "constant_velocity",
    store: Path | None = None,
    split: str = "val",
    half: Half | None = None,
    labels: Path | None = None,
    k: Annotated[list[int] | None, Parameter(validator=validators.Number(gte=1))] = None,
    by: list[str] | None = None,
    group: list[Group] | None = None,
    limit: Positive | None = None,
    plausibility: bool = False,
    joint: bool = False,
    mirror: bool = False,
    ensemble: list[str] | None = None,
    modes: int | None = None,
    perturb: list[str] | None = None,
    history: list[float] | None = None,
    observe_s: list[float] | None = None,
    streaming: bool = False,
    every_s: float = EVERY_S,
    updates: int = UPDATES,
    against: str | None = None,
    scenes: Count = 10,
    json: Path | None = None,
    markdown: Path | None = None,
    strict: bool = False,
    check_with_av2: bool = False,
    batch_size: Positive = 16,
    workers: int = -1,
) -> int:
    """Score a model, a baseline or a predictions file on the labelled scenarios of a split.

    Example: trajpred evaluate --checkpoint argoverse-nano --store STORE --by class manoeuvre

    Args:
        checkpoint: Path of a checkpoint, run, bundle or predictions file (.parquet), name of shipped weights
            (argoverse-nano), or constant_velocity, constant_turn_rate or lane_following.
        store: Folder written by prepare; by default the sample's.
        split: train, val or test.
        half: Evaluate only this half of the split: decide on one, report the other.
        labels: Futures of a split that has none: a folder of scenario files with all steps.
        k: Evaluate only the K most probable modes; several values give several tables. By default 1 and 6.
        by: Break down by class, city, manoeuvre, speed, neighbours, error (of constant velocity), or all.
        group: Agents of the breakdowns and horizons, by default focal; several are put side by side.
        limit: Evaluate only the first LIMIT scenarios.
        plausibility: Also off-road, wrong-way, infeasible and colliding modes, standing agents that drift,
            these by seconds ahead, and calibration; takes longer.
        joint: Evaluate joint futures, in which mode k of all agents is one future of the scene.
        mirror: Also predict the mirrored scenes with every model, and merge the modes.
        ensemble: More checkpoints or predictions files, whose modes are merged with those of the first.
        modes: Merge to this number of modes; 1 is the best single answer.
        perturb: Repeat with no-map, no-boundaries, no-marks, no-crossings, no-lane-types, no-classes (of road
            users), derived-states (headings and velocities from positions), gap (no states in the 0.5 s
            before the last observed step), fewer-agents (half) or noise (0.2 m), or all; several at once are
            joined by +.
        history: Repeat with so many seconds of history.
        observe_s: Move the last observed step to so many seconds after the first recorded one; what was
            recorded later is the future. Several values give several tables.
        streaming: Also predict at earlier times, and measure how much the predictions change between updates.
        every_s: With --streaming, seconds between updates.
        updates: With --streaming, number of updates; the last one is at the last observed step.
        against: Also evaluate this checkpoint or baseline, and report the difference scenario by scenario.
        scenes: Number of most improved and most degraded scenarios to list.
        json: Write all results to this file (docs/how-to/evaluate.md).
        markdown: Write the tables to this file.
        strict: Exit with 1 if a predictions file has faults or misses agents.
        check_with_av2: Also compute the metrics with av2's own functions, one by one, and exit with 1 if any
            differs, or if a predictions file has faults.
        batch_size: Scenarios per batch.
        workers: Processes that run a model on the CPU; -1 for all cores.
    """
    for path in (json, markdown):
        if path is not None:
            require_writable(path)
    processes(workers)
    require_streaming(streaming, every_s, updates)
    rows = open_split(store, split, half)
    if labels is not None:
        rows = _with_labels(rows, labels)
    from trajpred.evaluation import evaluate as score
    from trajpred.evaluation import write_results
    from trajpred.evaluation.av2_check import agrees_with_av2
    from trajpred.evaluation.comparison import in_common
    from trajpred.evaluation.report import change_tables, fact_names, show, to_markdown
    from trajpred.predictors import load_ensemble
    from trajpred.predictors.derived import StreamedPredictor, perturbed

    fact_names(by or [])  # an unknown one is reported before anything is predicted
    predictor = load_ensemble([checkpoint, *(ensemble or [])], joint, mirror, modes)
    rivals: list[Predictor] = []
    if against:
        rivals = [load_ensemble([against], joint, modes=modes)]
    stores = _observed(rows, observe_s or [], [predictor, *rivals])
    if streaming:
        predictor = StreamedPredictor(predictor, every_s, updates)
        rivals = [StreamedPredictor(rival, every_s, updates) for rival in rivals]
    predictors = [predictor, *perturbed(predictor, perturb, history), *rivals]
    settings: dict[str, Any] = {
        "batch_size": batch_size,
        "limit": limit,
        "ks": k or [1, 6],
        "plausibility": plausibility,
        "workers": workers,
        "check_with_av2": check_with_av2,
    }
    runs: list[list[Evaluation]] = []
    for data in stores:
        results = [score(scored, data, **settings) for scored in predictors]
        runs.append(results)
    all_results = list(chain.from_iterable(runs))
    if json is not None:
        write_results(json, all_results if len(all_results) > 1 else all_results[0])
    report = _tables(runs, len(predictors) - len(rivals), by or [], group or ["focal"])
    pairs: list[list[Evaluation]] = []
    complete = True
    try:
        if against:
            pairs = [in_common([results[-1], results[0]]) for results in runs]
            for before, after in pairs:
                report += change_tables([before], [after], scenes, (against, checkpoint))
    finally:  # what was evaluated is reported, also if there is nothing to compare
        if markdown is not None:
            markdown.write_text(to_markdown(report), encoding="utf-8")
        show(report)
        for results in runs:
            complete &= _report_gaps(predictor, results[0], rows)
            for rival in rivals:
                complete &= _report_gaps(rival, results[-1], rows)
    for before, after in pairs:
        _suggest_page([before], [after], scenes, rows.path, [checkpoint, str(against)])
    faulty = (strict or check_with_av2) and not complete
    agrees = all(agrees_with_av2(result) for result in all_results)
    return int(faulty or not agrees)


def _with_labels(rows: ScenarioStore, folder: Path) -> LabelledStore:
    """Return the split with the futures in ``folder``, and print how many scenarios have one."""
    from trajpred.evaluation.labels import LabelledStore

    labelled = LabelledStore(rows, folder)
    print(f"{folder}: labels of {labelled.labelled} of {len(rows)} scenarios")
    return labelled


def _observed(
    rows: ScenarioStore, observe_s: Sequence[float], predictors: Sequence[Predictor]
) -> list[ScenarioStore]:
    """Return the split once for each last observed step, in seconds; without any, as it is."""
    from trajpred.evaluation.labels import ObservedStore
    from trajpred.predictors.derived import require_free

    if not observe_s:
        return [rows]
    for predictor in predictors:
        require_free(predictor, "observe_s")
    return [ObservedStore(rows, seconds) for seconds in observe_s]


def _tables(
    runs: Sequence[Sequence[Evaluation]], variants: int, by: Sequence[str], groups: Sequence[Group]
) -> list[Table]:
    """Build the tables of each run: of its first result, and the degradation of its first ``variants``."""
    from trajpred.evaluation.report import degradation, tables

    report: list[Table] = []
    for results in runs:
        report += tables(results[0], by, groups)
        report += degradation(results[:variants], groups)
    return report


def _report_gaps(predictor: Predictor, result: Evaluation, rows: ScenarioStore) -> bool:
    """Print missing agents and faults of predictions files; return whether there are no faults."""
    from trajpred.predictors.predictions_file import problems_of

    missing = result.missing
    if missing["all"]:
        print(
            f"\n{predictor.name}: {missing['all']} tracks were not predicted and count in no metric "
            f"(scored: {missing['scored']}, focal: {missing['focal']})."
        )
    problems = problems_of(predictor, rows.split_ids)
    for scenario, faults in list(problems.items())[:MAX_PROBLEMS]:
        print(f"{scenario}: {'; '.join(faults)}", file=sys.stderr)
    if len(problems) > MAX_PROBLEMS:
        print(f"… and {len(problems) - MAX_PROBLEMS} more scenarios", file=sys.stderr)
    return not problems


def compare(*, results: list[Path], group: Group = "focal", scenes: Count = 0) -> int:
    """Print Markdown tables of results: mean and range over seeds, intervals over scenarios, their origin.

    Example: trajpred compare --results baseline.json runs/forecaster/version_*/evaluation.json

    Args:
        results: Files written by evaluate --json and by training; differences are from the first.
        group: Agents of the table of means; intervals and differences are those of focal and moving agents.
        scenes: Number of most improved and most degraded scenarios of two recipes to list.
    """
    from trajpred.evaluation.comparison import in_common
    from trajpred.evaluation.report import change_tables, show
    from trajpred.evaluation.report.of_recipes import (
        by_recipe,
        format_intervals,
        format_origin,
        format_recipes,
    )
    from trajpred.evaluation.results import read_results

    evaluations: list[Evaluation] = []
    for path in results:
        evaluations += read_results(path)
    recipes = by_recipe(evaluations)
    print(f"{format_recipes(recipes, group)}\n")
    recipes = by_recipe(in_common(evaluations))
    reference, *_ = recipes.values()
    for paired in PAIRED_GROUPS:
        count = sum(reference[0].by_scenario("count", paired).values())
        title = f"The {count:,.0f} {paired} agents that all predict"
        title += ", means and differences with 95 % bootstrap intervals over scenarios"
        print(f"{title} (paired):\n\n{format_intervals(recipes, paired)}\n")
    for name, seeds in recipes.items():
        print(f"- {name}: {format_origin(seeds)}")
    if scenes:
        require(len(recipes) == 2, "scenes", f"compares two recipes, {len(recipes)} are given")
        (first, before), (last, after) = recipes.items()
        show(change_tables(before, after, scenes, (first, last)))
        _suggest_page(before, after, scenes, Path("STORE"), ["CHECKPOINT", "AGAINST"])
    return 0


def _suggest_page(
    before: Sequence[Evaluation], after: Sequence[Evaluation], count: int, store: Path, models: Sequence[str]
) -> None:
    """Print the command for the page of both models with the scenarios that changed most."""
    from trajpred.evaluation.comparison import most_changed
    from trajpred.store.sample import store_words

    names: list[str] = []
    for part in most_changed(after, before, count):
        names += [name for name, _ in part]
    if not names:
        return
    words = ["--format", "html", "--out", "changes.html"]
    words += ["--checkpoint", models[0], "--against", models[1]]
    words += store_words(store)
    split = after[0].split
    if split != "val":
        words += ["--split", split]
    words += ["--scenario", *names]
    print("\nSee what changed most, side by side:")
    print(f"trajpred visualize {shlex.join(words)}")
