"""Commands that score predictions: evaluate, stress, compare."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajpred.cli.scenarios import EVERY_S, Count, Positive, open_split
from trajpred.data.environment import command_words, processes
from trajpred.data.files import require_writable
from trajpred.data.splits import PAIRED_GROUPS, Group, Half
from trajpred.errors import DataError, require

if TYPE_CHECKING:
    from trajpred.evaluation.report import Table
    from trajpred.evaluation.results import Evaluation
    from trajpred.predictors import Predictor
    from trajpred.store import ScenarioStore

#: Number of scenarios of a predictions file whose problems are printed.
MAX_PROBLEMS = 10
#: Suffixes of the files that an evaluation can be written to.
OUTPUTS = (".parquet", ".json", ".md")


def evaluate(
    *,
    checkpoint: list[str] = ["constant_velocity"],  # noqa: B006
    store: Path | None = None,
    split: str = "val",
    half: Half | None = None,
    limit: Positive | None = None,
    joint: bool = False,
    modes: int | None = None,
    by: list[str] | None = None,
    group: list[Group] | None = None,
    plausibility: bool = False,
    against: str | None = None,
    out: list[Path] | None = None,
    check_with_av2: bool = False,
    workers: int = -1,
) -> int:
    """Score a model, a baseline or a predictions file on the labelled scenarios of a split.

    Example: trajpred evaluate --checkpoint argoverse-nano --by class manoeuvre --out evaluation.parquet

    Args:
        checkpoint: Path of a checkpoint, run, bundle or predictions file (.parquet, .h5), name of shipped
            weights (argoverse-nano), or constant_velocity, constant_turn_rate or lane_following. Several are
            merged into an ensemble.
        store: Folder written by prepare; by default the sample's.
        split: train, val or test.
        half: Evaluate only this half of the split: choose models on one, report on the other.
        limit: Evaluate only the first LIMIT scenarios.
        joint: Evaluate joint futures, in which mode k of all agents is one future of the scene.
        modes: Merge into this number of modes; 1 gives one future, the probability-weighted mean.
        by: Break down by class, city, manoeuvre, speed, neighbours, error (of constant velocity), or all.
        group: Agents of the breakdowns and horizons, by default focal.
        plausibility: Also report off-road, wrong-way, infeasible and colliding modes and the drift of
            stationary agents, by seconds ahead, and calibration; takes longer.
        against: Also evaluate this checkpoint or baseline, and report the differences paired by agent.
        out: Write the table of agents (.parquet), the summary for compare (.json), or the printed tables
            (.md).
        check_with_av2: Also compute the metrics with av2's own functions, and exit with 1 if any differs or a
            predictions file has faults.
        workers: Processes that run a model on the CPU; -1 for all cores.
    """
    require_outputs(out or [])
    processes(workers)
    rows = open_split(store, split, half)
    from trajpred.evaluation.av2_check import agrees_with_av2
    from trajpred.evaluation.recipes import change_tables
    from trajpred.evaluation.report import tables
    from trajpred.evaluation.score import evaluate as score
    from trajpred.evaluation.table import fact_names
    from trajpred.predictors import load_ensemble
    from trajpred.predictors.derived import of_same_seconds

    fact_names(by or [])  # an unknown one is reported before anything is predicted
    predictors = [load_ensemble(checkpoint, joint, modes=modes)]
    if against is not None:
        predictors = of_same_seconds([*predictors, load_ensemble([against], joint, modes=modes)])
    settings: dict[str, Any] = {"limit": limit, "plausibility": plausibility, "workers": workers}
    settings["check_with_av2"] = check_with_av2
    results = [score(predictor, rows, **settings) for predictor in predictors]
    report = tables(results[0], by or [], group or ["focal"])
    try:
        if against is not None:
            report += change_tables(results[1:], results[:1], (results[1].predictor, results[0].predictor))
    finally:  # report the evaluation even if there is nothing to compare
        write_and_show(results, report, out or [])
        faulty = [report_faults(predictor, rows) for predictor in predictors]
    if against is not None:
        _suggest_page(results[1:], results[:1], rows.path, [checkpoint[0], against])
    if not check_with_av2:
        return 0
    return int(any(faulty) or not all(agrees_with_av2(result) for result in results))


def require_outputs(out: Sequence[Path]) -> None:
    """Raise :class:`DataError` unless results can be written to these files."""
    for path in out:
        require(path.suffix in OUTPUTS, "out", f"must end in {', '.join(OUTPUTS)}, is {path}")
        require_writable(path)


def write_and_show(results: Sequence[Evaluation], report: Sequence[Table], out: Sequence[Path]) -> None:
    """Write results to files, and print the tables."""
    from trajpred.evaluation.report import note_of, show, to_markdown
    from trajpred.evaluation.results import write_results

    note = note_of(results)
    for path in out:
        if path.suffix == ".md":
            path.write_text(to_markdown(report, note), encoding="utf-8")
        else:
            write_results(path, results)
    show(report, note)


def report_faults(predictor: Predictor, rows: ScenarioStore) -> bool:
    """Print the faults of predictions files by scenario; return whether there are any."""
    from trajpred.predictors.predictions_file import problems_of

    problems = problems_of(predictor, rows.split_ids)
    for scenario, faults in list(problems.items())[:MAX_PROBLEMS]:
        print(f"{scenario}: {'; '.join(faults)}", file=sys.stderr)
    if len(problems) > MAX_PROBLEMS:
        print(f"… and {len(problems) - MAX_PROBLEMS} more scenarios", file=sys.stderr)
    return bool(problems)


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
    """Score a model with less input, at another time in the recording, or at successive updates.

    Example: trajpred stress --checkpoint argoverse-nano --perturb all --group moving

    Args:
        checkpoint: As for evaluate, without predictions files, which are fixed.
        store: Folder written by prepare; by default the sample's.
        split: train, val or test.
        half: Evaluate only this half of the split.
        limit: Evaluate only the first LIMIT scenarios.
        joint: Also evaluate joint futures.
        perturb: Repeat with no-map, no-boundaries, no-marks, no-crossings, no-lane-types, no-classes (of road
            users), derived-states (headings and velocities from positions), gap (no states in the 0.5 s
            before the last observed step), fewer-agents (half), noise (0.2 m of white noise on positions;
            noise:0.1 for another size), slow-noise (correlated over 1 s), or all; join several with +, as in
            noise:0.1+derived-states.
        history: Repeat with this many seconds of history.
        observe_s: Set the last observed step this many seconds after the first recorded step; later steps are
            the future. Several values give several tables.
        updates: Predict at this many times up to the last observed step, and measure how much the predictions
            change between them.
        every_s: Seconds between updates.
        group: Agents of the tables, by default focal.
        plausibility: Also report plausibility and calibration, as for evaluate.
        out: Write the table of agents (.parquet), the summaries (.json), or the printed tables (.md).
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
    settings: dict[str, Any] = {"limit": limit, "plausibility": plausibility, "workers": workers}
    for data in stores:
        predictors = [predictor, *perturbed(predictor, perturb, history)]
        variants = [score(variant, data, **settings) for variant in predictors]
        results += variants
        report += tables(variants[0], groups=groups)
        report += degradation(variants, groups)
    write_and_show(results, report, out or [])
    return 0


def compare(*, results: list[Path], group: Group = "focal", scenes: Count = 0) -> int:
    """Print Markdown tables of results: mean and range over seeds, intervals over recordings, and origins.

    Example: trajpred compare --results baseline.json runs/forecaster/version_*/evaluation.json

    Args:
        results: Files written by evaluate --out and by training; differences are from the first. Different
            runs with the same name and seed are distinguished by folder.
        group: Agents of the table of means; intervals and differences are for focal and moving agents.
        scenes: How many of the most improved, and of the most degraded, scenarios of two recipes to list.
    """
    from trajpred.evaluation.origin import format_origin
    from trajpred.evaluation.recipes import by_recipe, change_tables, format_table, interval_table
    from trajpred.evaluation.report import note_of, show, to_markdown
    from trajpred.evaluation.results import read_results

    evaluations: list[Evaluation] = []
    files: list[Path] = []
    for of_files in zip_longest(*map(read_results, results)):  # by position in the files
        for path, result in zip(results, of_files, strict=True):
            if result is not None:
                evaluations.append(result)
                files.append(path)
    recipes = by_recipe(evaluations, files)
    print(f"{format_table(recipes, group)}\n")
    problems: list[DataError] = []
    for paired in PAIRED_GROUPS:
        try:
            print(to_markdown([interval_table(recipes, paired)], ""))
        except DataError as error:  # the files predict different agents
            problems.append(error)
    if len(problems) == len(PAIRED_GROUPS):
        raise problems[0]
    for problem in problems:
        print(f"{problem}\n")
    for name, seeds in recipes.items():
        print(f"- {name}: {format_origin(seeds)}")
    note = note_of(evaluations, "")
    if note:
        print(f"\n{note}")
    if scenes:
        require(len(recipes) == 2, "scenes", f"compares two recipes, {len(recipes)} are given")
        (first, before), (last, after) = recipes.items()
        show(change_tables(before, after, (first, last), scenes))
        _suggest_page(before, after, Path("STORE"), ["CHECKPOINT", "AGAINST"], scenes)
    return 0


def _suggest_page(
    before: Sequence[Evaluation],
    after: Sequence[Evaluation],
    store: Path,
    models: Sequence[str],
    count: int | None = None,
) -> None:
    """Print the command for a page of both models with the scenarios that changed most."""
    from trajpred.data.registry import import_words
    from trajpred.evaluation.recipes import MOST_CHANGED, most_changed
    from trajpred.store.sample import store_words

    improved, degraded = most_changed(before, after, count or MOST_CHANGED)
    names = [*improved, *degraded]
    if not names:
        return
    words = [*import_words(), "--out", "changes.html"]
    words += ["--checkpoint", models[0], "--against", models[1]]
    words += store_words(store)
    split = after[0].split
    if split != "val":
        words += ["--split", split]
    words += ["--scenario", *names]
    print("\nSee what changed most, side by side:")
    print(f"trajpred visualize {command_words(*words)}")
