"""What the train command reports, draws and advises after a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trajpred.data.environment import command_words
from trajpred.data.registry import import_words
from trajpred.evaluation import Evaluation, evaluate, write_results
from trajpred.evaluation.recipes import interval_table
from trajpred.evaluation.report import note_of, show, tables, to_markdown
from trajpred.evaluation.table import compare
from trajpred.model import pretrained
from trajpred.predictors import load_predictor
from trajpred.predictors.derived import of_same_seconds
from trajpred.predictors.predictor import Predictor
from trajpred.store import ScenarioStore
from trajpred.store.sample import split_words
from trajpred.training.record import EVALUATION, RunHistory
from trajpred.training.train import TrainedRun
from trajpred.viz.curves import draw_curves
from trajpred.viz.scene import draw_scene, save_scene

#: The learning curves, in the folder of a run.
CURVES = "curves.png"
#: The results as tables.
TABLES = "evaluation.md"
#: The worst scenes, numbered from 1.
WORST = "worst_{}.png"
#: The metric of the focal agent that chooses the worst scenes.
WORST_BY = "minFDE6"
#: Baselines that a trained model is compared with, besides the weights it started from.
BASELINES = ("lane_following", "constant_velocity")
#: How to read the table.
NOTE = (
    "Metres; MR: fraction of agents missed by more than 2 m. Differences are from the trained model: larger "
    "errors are positive."
)
#: Resolution of the pictures.
DPI = 110


def report(trained: TrainedRun) -> None:
    """Evaluate the best checkpoint on the validation scenes, print the outcome, and fill the run's folder."""
    rows = trained.scenes
    checkpoint = trained.checkpoint
    print(f"\nEvaluating {checkpoint.name} on {len(rows):,} validation scenes", flush=True)
    predictor = load_predictor(checkpoint)
    predictors = {"trained": predictor, **_others(predictor, rows)}
    results: dict[str, Evaluation] = {}
    for name, of_same_time in zip(predictors, of_same_seconds([*predictors.values()]), strict=True):
        results[name] = evaluate(of_same_time, rows)
    result = results["trained"]
    _compare(results)
    for note in result.notes:
        print(note)
    if trained.folder is not None:
        run = trained.folder
        write_results(run / EVALUATION, [*results.values()])
        (run / TABLES).write_text(to_markdown(tables(result), note_of([result])), encoding="utf-8")
        _draw(run, trained.history, predictor, result, rows, trained.pictures)
        _print_files(run, checkpoint)
    _advise(rows, checkpoint, trained.folder)


def _others(trained: Predictor, rows: ScenarioStore) -> dict[str, Predictor]:
    """Load the predictors a trained model is compared with, by their names in the table."""
    others: dict[str, Predictor] = {}
    weights = trained.training.get("weights")
    if weights is not None and pretrained.locate(weights).is_file():
        before = load_predictor(weights)
        if before.steps(rows[0]) < trained.steps(rows[0]):
            print(f"{weights} predicts fewer seconds than the trained model and is not compared.")
        else:
            others[f"before ({weights})"] = before
    for name in BASELINES:
        others[name.replace("_", " ")] = load_predictor(name)
    return others


def _compare(results: Mapping[str, Evaluation]) -> None:
    """Print the means of the trained model and the others, with paired differences from the trained one."""
    trained = results["trained"]
    recipes = {name: [result] for name, result in results.items()}
    groups = [group for group in ("moving", "focal") if trained.metrics[group]["count"]]
    print(f"Validation, {trained.data}. {NOTE}\n")
    show([interval_table(recipes, group) for group in groups], note="")
    for name, result in results.items():
        if not name.startswith("before"):
            continue
        worse = [
            metric
            for metric in ("minFDE6", "minFDE1")
            if compare([trained], [result], metric, groups[0]).low > 0
        ]
        if worse:
            advice = f"keep {result.predictor}, or lower --model.optimizer.learning_rate"
            print(f"Fine-tuning has made the {' and '.join(worse)} of {groups[0]} agents worse: {advice}.\n")


def _draw(
    run: Path, history: RunHistory, predictor: Predictor, result: Evaluation, rows: ScenarioStore, count: int
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
    model = checkpoint.resolve()
    if model.is_relative_to(run.resolve()):
        model = model.relative_to(run.resolve())
    texts = {
        CURVES: "learning curves",
        TABLES: "validation tables",
        EVALUATION: "results as numbers, for trajpred compare",
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
    """Print commands for examining the model further."""
    options = command_words(*import_words(), "--checkpoint", checkpoint, *split_words(rows))
    pictures = (run or Path()) / "pictures"
    print("Next:")
    print(f"  trajpred visualize {options} --out {command_words(pictures)}")
    print(f"  trajpred evaluate {options} --by all")
    if run is not None and any(run.glob("events.*")):
        print(f"  tensorboard --logdir {command_words(run)}")
