"""Using models: evaluate, predict, calibrate, compare, visualize, ship. torch waits until one runs."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, Literal

from trajpred.errors import require
from trajpred.sample import SAMPLE_STORE, ensure_store


def evaluate(
    checkpoint: str = "constant_velocity",
    store: Path = SAMPLE_STORE,
    split: str = "val",
    k: list[int] | int | None = None,
    by: list[str] | str | None = None,
    group: Literal["focal", "scored", "all"] = "focal",
    limit: int | None = None,
    beyond: bool = False,
    joint: bool = False,
    mirror: bool = False,
    ensemble: list[str] | str | None = None,
    perturb: list[str] | str | None = None,
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
        group: whom the breakdowns and horizons are of.
        limit: only the first so many scenarios.
        beyond: also off-road, wrong-way, infeasible and colliding modes, calibration, spread; takes longer.
        joint: score a model's joint futures, in which mode k of all agents is one world.
        mirror: also ask every model about the mirrored scenes, and merge what it says.
        ensemble: more checkpoints or predictions files, whose modes are merged with those of the first.
        perturb: score again with no-map, short-history (1 s), fewer-agents (half) or noise (0.2 m); or all.
        json: write all results here (trajpred/evaluation/README.md).
        markdown: write the tables here.
        strict: exit with an error if anything is wrong with a predictions file, or missing in it.
        batch_size: scenarios at once.
    """
    from trajpred.evaluation import evaluate as score
    from trajpred.evaluation import write_results
    from trajpred.evaluation.perturb import perturbed
    from trajpred.evaluation.predictors import load_together, problems_of
    from trajpred.evaluation.report import degradation, fact_name, show, tables, to_markdown
    from trajpred.store import ScenarioStore

    for path in filter(None, (json, markdown)):
        require(not path.is_dir(), "json or markdown", f"{path} is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
    ks, facts = [k] if isinstance(k, int) else k or [1, 6], [by] if isinstance(by, str) else by or []
    facts = [name if name == "all" else fact_name(name) for name in facts]
    rows = ScenarioStore(ensure_store(store), split)
    others = [ensemble] if isinstance(ensemble, str) else ensemble or []
    predictor = load_together([checkpoint, *others], joint, mirror)
    disturbed = perturbed(predictor, perturb)
    options: dict[str, Any] = {"batch_size": batch_size, "limit": limit, "ks": ks, "beyond": beyond}
    result = score(predictor, rows, **options)
    worse = [score(one, rows, **options) for one in disturbed]
    if json is not None:
        write_results(json, [result, *worse] if worse else result)
    shown = [*tables(result, facts, group), *degradation([result, *worse], group)]
    if markdown is not None:
        markdown.write_text(to_markdown(shown))
    show(shown)
    if result.missing:
        print(f"\n{result.missing} tracks were not predicted and count in no metric.")
    problems = problems_of(predictor, rows.scenario_ids)
    _complain(problems)
    return int(strict and bool(problems))


def visualize(
    store: Path = SAMPLE_STORE,
    scenario: list[str] | str | None = None,
    checkpoint: str | None = None,
    split: str = "val",
    out: Path = Path("pictures"),
    limit: int = 10,
    format: Literal["png", "pdf", "svg"] = "png",
    radius_m: float | None = None,
) -> int:
    """Draw scenarios from above, with the futures that a checkpoint or a baseline predicts.

    Example: python tools/visualize.py --scenario 0a1e6f0a-1817-4a98-b02e-db8c9327d151 --out pictures

    Args:
        store: folder written by tools/prepare.py.
        scenario: id, or "[id, id]"; from the split, or else any other. By default the first of the split.
        checkpoint: path of a checkpoint, or the name of a baseline or of weights that ship; none draws the
            scenario alone.
        split: where to take scenarios from if none is named.
        out: folder for the pictures, one per scenario.
        limit: at most so many if no scenario is named.
        format: png, pdf or svg.
        radius_m: half the side of the picture in metres; by default what holds the focal agent's futures.
    """
    from trajpred.store import ScenarioStore, find_scenarios
    from trajpred.viz import draw_scene, save_scene

    require(limit > 0, "limit", "must be positive")
    ensure_store(store)
    out.mkdir(parents=True, exist_ok=True)
    if scenario:
        chosen = find_scenarios(store, [scenario] if isinstance(scenario, str) else scenario, first=split)
    else:
        rows = ScenarioStore(store, split)
        chosen = [rows[i] for i in range(min(limit, len(rows)))]
    predictor = None
    if checkpoint is not None:
        from trajpred.evaluation import load_predictor

        predictor = load_predictor(checkpoint)
    for one in chosen:
        forecast = predictor([one])[0] if predictor is not None else None
        path = out / f"{one.scenario_id}.{format}"
        save_scene(draw_scene(one, forecast, radius_m=radius_m), path)
        print(path)
    return 0


def calibrate(
    checkpoint: str,
    store: Path,
    out: Path,
    split: str = "val",
    coverage: float = 0.9,
    group: Literal["focal", "scored", "all"] = "scored",
    batch_size: int = 16,
) -> int:
    """Fit a temperature of the probabilities and conformal regions around the modes; measure both.

    Example: python tools/calibrate.py --checkpoint best.ckpt --store STORE --out calibrated.ckpt

    Args:
        checkpoint: path of a trained model, or the name of weights that ship.
        store: folder written by tools/prepare.py.
        out: the checkpoint with what was fitted; all tools then use it.
        split: scenarios that the model was not trained on: half are fitted on, half measured on.
        coverage: share of the true positions that the regions promise to hold.
        group: whom to fit to.
        batch_size: scenarios at once.
    """
    from trajpred.evaluation.calibrate import calibrate as fit
    from trajpred.scenario import OBJECT_TYPES
    from trajpred.store import ScenarioStore

    rows = ScenarioStore(ensure_store(store), split)
    found = fit(checkpoint, rows, out, coverage, group, batch_size)
    print(f"temperature {found.temperature:.3f}, fitted on {found.agents[0]} {group} agents")
    print(f"on {found.agents[1]} others, before and after:")
    for name, values in (("expected calibration error", found.ece), ("negative log-likelihood", found.nll)):
        print(f"  {name}: {values[0]:.4f}, {values[1]:.4f}")
    print(f"regions that promise {coverage:.0%} hold, after")
    for second, held in zip(found.regions.horizons_s, found.covered, strict=True):
        print(f"  {second:g} s: {held:.1%}")
    radius = found.regions.radius
    for kind in [i for i, n in enumerate(found.regions.count[:, -1]) if n]:
        print(f"  {OBJECT_TYPES[kind]}: radius " + ", ".join(f"{r:.1f}" for r in radius[kind]) + " m")
    print(f"written: {out}")
    return 0


def predict(
    checkpoint: str = "constant_velocity",
    out: Path = Path("predictions.parquet"),
    store: Path = SAMPLE_STORE,
    split: str = "val",
    agents: Literal["focal", "scored"] = "focal",
    joint: bool = False,
    batch_size: int = 16,
    limit: int | None = None,
) -> int:
    """Write the futures of a split's scenarios to a file of the Argoverse 2 challenges (parquet).

    Example: python tools/predict.py --checkpoint best.ckpt --store /data/av2-store --split test

    Args:
        checkpoint: path of a checkpoint, name of weights that ship, or of a baseline.
        out: the file, .parquet.
        store: folder written by tools/prepare.py.
        split: train, val or test; scenarios without a labelled future are predicted too.
        agents: focal (single-agent challenge), or scored (multi-agent challenge), which needs --joint.
        joint: mode k of all agents of a scenario is one possible world; for models with joint modes.
        batch_size: scenarios at once.
        limit: only the first so many scenarios.
    """
    from trajpred.predict import predict as write

    written = write(checkpoint, out, store, split, agents, joint, batch_size, limit)
    print(f"{out}: {written.tracks} tracks of {written.scenarios} scenarios")
    words = ["--checkpoint", out, "--store", store, "--split", split]
    print(f"Score it: python tools/evaluate.py {shlex.join(map(str, words))}")
    return 0


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
    from trajpred.evaluation.intervals import changes
    from trajpred.evaluation.results import read_results
    from trajpred.evaluation.table import by_recipe, format_intervals, format_origin, format_recipes

    paths = results if isinstance(results, list) else [results]
    recipes = by_recipe([one for path in paths for one in read_results(path)])
    print(f"{format_recipes(recipes, group)}\n")
    print("Focal agents, means and differences with 95 % bootstrap intervals over scenarios (paired):\n")
    print(f"{format_intervals(recipes)}\n")
    for name, seeds in recipes.items():
        print(f"- {name}: {format_origin(seeds)}")
    if scenes:
        require(len(recipes) == 2, "scenes", f"compares two recipes, {len(recipes)} are given")
        (first, before), (last, after) = recipes.items()
        for how, found in zip(("better", "worse"), changes(after, before, scenes), strict=True):
            print(f"\nminFDE6 of {last} is {how} than that of {first}, metres by scenario:")
            print("\n".join(f"  {scenario}  {change:+.2f}" for scenario, change in found))
            ids = shlex.join(scenario for scenario, _ in found)
            print(f"  python tools/visualize.py --scenario {ids} --store STORE --checkpoint CHECKPOINT")
    return 0


def ship(
    checkpoint: Path,
    name: str,
    store: Path,
    split: str = "val",
    note: str = "",
    half: bool = True,
    tolerance_m: float = 0.02,
) -> int:
    """Turn a checkpoint into weights that ship with the package (trajpred/weights), with their model card.

    Example: python tools/ship.py --checkpoint best.ckpt --name argoverse1-small --store runs/argoverse1-store

    Args:
        checkpoint: path of a trained model.
        name: what users will call it.
        store: scenarios that the card's table is made from, and on which half precision is tried.
        split: of the store.
        note: a sentence that opens the card.
        half: keep half precision.
        tolerance_m: by how many metres that may move any point of 99 % of the predictions.
    """
    from trajpred.store import ScenarioStore
    from trajpred.weights.ship import ship as make

    rows = ScenarioStore(ensure_store(store), split)
    print(make(checkpoint, name, rows, note=note, half=half, tolerance_m=tolerance_m))
    return 0


def _complain(problems: dict[str, list[str]], shown: int = 10) -> None:
    """Tell what is wrong with a predictions file, by scenario."""
    for scenario, told in list(problems.items())[:shown]:
        print(f"{scenario}: {'; '.join(told)}", file=sys.stderr)
    if len(problems) > shown:
        print(f"… and {len(problems) - shown} scenarios more", file=sys.stderr)
