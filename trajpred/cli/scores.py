"""Scoring and comparing: evaluate, compare. torch waits until one runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trajpred.cli.arguments import as_list
from trajpred.errors import require
from trajpred.store.sample import SAMPLE_STORE, ensure_store

if TYPE_CHECKING:
    from trajpred.evaluation.results import Evaluation
    from trajpred.predictors.predictor import Predictor
    from trajpred.store import ScenarioStore


def evaluate(
    checkpoint: str = "constant_velocity",
    store: Path = SAMPLE_STORE,
    split: str = "val",
    k: list[int] | int | None = None,
    by: list[str] | str | None = None,
    group: list[str] | str = "focal",
    limit: int | None = None,
    beyond: bool = False,
    joint: bool = False,
    mirror: bool = False,
    ensemble: list[str] | str | None = None,
    perturb: list[str] | str | None = None,
    against: str | None = None,
    scenes: int = 20,
    json: Path | None = None,
    markdown: Path | None = None,
    strict: bool = False,
    batch_size: int = 16,
) -> int:
    """Score a model, a baseline or a predictions file on the labelled scenarios of a split.

    Example: python tools/evaluate.py --checkpoint argoverse1-small --store STORE --by class manoeuvre

    Args:
        checkpoint: path of a checkpoint or of a predictions file (.parquet), name of weights that ship
            (argoverse1-small), or constant_velocity, constant_turn_rate or lane_following.
        store: folder written by tools/prepare.py.
        split: train, val or test.
        k: judge so many of the most probable modes; several numbers for several tables. By default 1 and 6.
        by: break down by class, city, manoeuvre, speed, neighbours or error of constant velocity; or all.
        group: whom the breakdowns and horizons are of: focal, scored or all; several are put side by side.
        limit: only the first so many scenarios.
        beyond: also off-road, wrong-way, infeasible and colliding modes, calibration, spread; takes longer.
        joint: score a model's joint futures, in which mode k of all agents is one world.
        mirror: also ask every model about the mirrored scenes, and merge what it says.
        ensemble: more checkpoints or predictions files, whose modes are merged with those of the first.
        perturb: score again with no-map, short-history (1 s), fewer-agents (half) or noise (0.2 m); or all.
        against: also score this one, as it is; tell by how much the first is better, scenario by scenario.
        scenes: list so many scenarios that are better than with the other by most, and as many worse ones.
        json: write all results here (trajpred/evaluation/README.md).
        markdown: write the tables here.
        strict: exit with an error if anything is wrong with a predictions file, or missing in it.
        batch_size: scenarios at once.
    """
    from trajpred.evaluation import evaluate as score
    from trajpred.evaluation import write_results
    from trajpred.evaluation.intervals import in_common
    from trajpred.evaluation.judged import GROUPS
    from trajpred.evaluation.report import changed, degradation, fact_name, show, tables, to_markdown
    from trajpred.predictors.perturbed import perturbed
    from trajpred.predictors.predictor import load_ensemble
    from trajpred.store import ScenarioStore

    for path in filter(None, (json, markdown)):
        require(not path.is_dir(), "json or markdown", f"{path} is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
    require(scenes >= 0, "scenes", "must not be negative")
    ks = [k] if isinstance(k, int) else k or [1, 6]
    facts = [name if name == "all" else fact_name(name) for name in as_list(by)]
    groups = as_list(group)
    for name in groups:
        require(name in GROUPS, "group", f"{name!r} is none of {', '.join(GROUPS)}")
    rows = ScenarioStore(ensure_store(store), split)
    predictor = load_ensemble([checkpoint, *as_list(ensemble)], joint, mirror)
    rivals = [load_ensemble([against], joint and Path(against).suffix != ".parquet")] if against else []
    asked = [predictor, *perturbed(predictor, perturb)]
    each = [
        score(one, rows, batch_size=batch_size, limit=limit, ks=ks, beyond=beyond) for one in asked + rivals
    ]
    if json is not None:
        write_results(json, each if len(each) > 1 else each[0])
    result, other = each[0], each[-1]
    shown = [*tables(result, facts, groups), *degradation(each[: len(asked)], groups[0])]
    if against:
        before, after = in_common(other, result)
        shown += changed([before], [after], scenes, (against, checkpoint))
    if markdown is not None:
        markdown.write_text(to_markdown(shown), encoding="utf-8")
    show(shown)
    if against:
        _picture_changes([before], [after], scenes, store, checkpoint)
    sound = [
        _tell_of(one, found, rows) for one, found in ((predictor, result), *((r, other) for r in rivals))
    ]
    return int(strict and not all(sound))


def _tell_of(predictor: Predictor, result: Evaluation, rows: ScenarioStore) -> bool:
    """Print what was not predicted, and what is wrong with predictions files; whether nothing is."""
    from trajpred.predictors.predictions_file import problems_of

    if result.missing["all"]:
        which = "tracks were not predicted and count in no metric (scored: {scored}, focal: {focal})."
        print(f"\n{predictor.name}: {result.missing['all']} {which.format(**result.missing)}")
    problems = problems_of(predictor, rows.scenario_ids)
    _complain(problems)
    return not problems


def compare(
    results: list[Path] | Path, group: Literal["focal", "scored", "all"] = "focal", scenes: int = 0
) -> int:
    """Make the Markdown tables of results: mean and range over seeds, intervals over scenarios, their origin.

    Example: python tools/compare.py --results baseline.json runs/forecaster/version_*/evaluation.json

    Args:
        results: files that tools/evaluate.py --json and training wrote; differences are from the first.
        group: focal, scored or all agents; intervals are always the focal agents'.
        scenes: also list so many scenarios in which the last of two recipes is better, and worse, most.
    """
    from trajpred.evaluation.report import changed, show
    from trajpred.evaluation.results import read_results
    from trajpred.evaluation.table import by_recipe, format_intervals, format_origin, format_recipes

    paths = results if isinstance(results, list) else [results]
    recipes = by_recipe([one for path in paths for one in read_results(path)])
    print(f"{format_recipes(recipes, group)}\n")
    print("Focal agents, means and differences with 95 % bootstrap intervals over scenarios (paired):\n")
    print(f"{format_intervals(recipes)}\n")
    for name, seeds in recipes.items():
        print(f"- {name}: {format_origin(seeds)}")
    require(scenes >= 0, "scenes", "must not be negative")
    if scenes:
        require(len(recipes) == 2, "scenes", f"compares two recipes, {len(recipes)} are given")
        (first, before), (last, after) = recipes.items()
        show(changed(before, after, scenes, (first, last)))
        _picture_changes(before, after, scenes)
    return 0


def _picture_changes(
    before: Sequence[Evaluation],
    after: Sequence[Evaluation],
    count: int,
    store: Path = Path("STORE"),
    checkpoint: str = "CHECKPOINT",
) -> None:
    """Print the commands that draw the scenarios that changed most."""
    from trajpred.evaluation.intervals import changes

    for how, found in zip(("better", "worse"), changes(after, before, count), strict=True):
        if found:
            words = ["--scenario", *(name for name, _ in found), "--store", store, "--checkpoint", checkpoint]
            print(f"\nSee what became {how}:\npython tools/visualize.py {shlex.join(map(str, words))}")


def _complain(problems: dict[str, list[str]], shown: int = 10) -> None:
    """Tell what is wrong with a predictions file, by scenario."""
    for scenario, told in list(problems.items())[:shown]:
        print(f"{scenario}: {'; '.join(told)}", file=sys.stderr)
    if len(problems) > shown:
        print(f"… and {len(problems) - shown} scenarios more", file=sys.stderr)
