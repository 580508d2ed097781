"""What the train command reports, draws and advises after a run."""

from __future__ import annotations

import shlex
from pathlib import Path

from trajpred.evaluation import Evaluation, evaluate, write_results
from trajpred.evaluation.report import beside, show, tables, to_markdown
from trajpred.predictors import load_predictor
from trajpred.predictors.predictor import Predictor
from trajpred.store import ScenarioStore
from trajpred.store.sample import store_words
from trajpred.training.record import RunHistory
from trajpred.training.train import TrainedRun
from trajpred.viz.curves import draw_curves
from trajpred.viz.scene import draw_scene, save_scene

#: The learning curves, in the folder of a run.
CURVES = "curves.png"
#: The results as numbers, the input of ``trajpred compare``.
EVALUATION = "evaluation.json"
#: The results as tables.
TABLES = "evaluation.md"
#: The worst scenes, numbered from 1.
WORST = "worst_{}.png"
#: The metric of the focal agent that chooses the worst scenes.
WORST_BY = "minFDE6"
#: Resolution of the pictures.
DPI = 110


def report(trained: TrainedRun) -> None:
    """Evaluate the best checkpoint on the validation scenes, print the outcome, and fill the run's folder."""
    rows = trained.scenes
    checkpoint = trained.checkpoint
    print(f"\nEvaluating {checkpoint.name} on {len(rows):,} validation scenes", flush=True)
    predictor = load_predictor(checkpoint)
    result = evaluate(predictor, rows)
    baseline = evaluate(load_predictor("constant_velocity"), rows)
    show([beside(result, baseline)], note="")
    if result.missing["all"]:
        print(f"{result.missing['all']} agents beyond the model's limits were not predicted.")
    if trained.folder is not None:
        run = trained.folder
        write_results(run / EVALUATION, [baseline, result])
        (run / TABLES).write_text(to_markdown(tables(result)), encoding="utf-8")
        _draw(run, trained.history, predictor, result, rows, trained.pictures)
        _print_files(run, checkpoint)
    _advise(rows, checkpoint, trained.folder)


def _draw(
    run: Path,
    history: RunHistory,
    predictor: Predictor,
    result: Evaluation,
    rows: ScenarioStore,
    count: int,
) -> None:
    """Draw the learning curves and the ``count`` worst scenes into the folder of the run."""
    title = f"{run.parent.name}/{run.name}"
    curves = draw_curves(history.rows, title, result.training.get("steps"))
    save_scene(curves, run / CURVES, dpi=DPI)
    for number, name in enumerate(result.worst(WORST_BY, count), 1):
        scenario = rows[rows.index(name)]
        [forecast] = predictor([scenario])
        save_scene(draw_scene(scenario, forecast), run / WORST.format(number), dpi=DPI)


def _print_files(run: Path, checkpoint: Path) -> None:
    """Print which files are where."""
    model = checkpoint.resolve()
    if model.is_relative_to(run.resolve()):
        model = model.relative_to(run.resolve())
    texts = {
        CURVES: "learning curves",
        TABLES: "validation tables",
        EVALUATION: "the same and more, for trajpred compare",
        WORST.format(1): f"the validation scene with the largest {WORST_BY}; further ones follow",
        "config.yaml": "all settings",
        model.as_posix(): "the model",
    }
    files = [name for name in texts if (run / name).exists()]
    width = max(len(name) for name in files)
    print(f"Results in {run}:")
    for name in files:
        print(f"  {name:<{width}}  {texts[name]}")


def _advise(rows: ScenarioStore, checkpoint: Path, run: Path | None) -> None:
    """Print the commands that look further into the model."""
    options = shlex.join(["--checkpoint", str(checkpoint), *store_words(rows.path)])
    pictures = (run or Path()) / "pictures"
    print("Next:")
    print(f"  trajpred visualize {options} --out {shlex.quote(str(pictures))}")
    print(f"  trajpred evaluate {options} --by all")
    if run is not None and any(run.glob("events.*")):
        print(f"  tensorboard --logdir {shlex.quote(str(run))}")
